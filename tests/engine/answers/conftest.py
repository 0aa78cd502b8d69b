"""The service of most tests of answers."""

import pytest

from tests.support.served import running


@pytest.fixture(scope="module")
def service():
    with running() as made:
        yield made
