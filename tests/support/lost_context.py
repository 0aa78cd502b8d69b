"""Skip the tests that need the GPU after a test has lost it.

After an illegal access "any further CUDA work will return the same error" (CUDA Runtime API), so all later
GPU tests of the process would fail for the error of one. `tests/conftest.py` imports the hooks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from engine.executors.device_errors import is_device_lost

LOST = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store the name of the test that lost the device."""
    report = yield
    error: Any = call.excinfo.value if call.excinfo else None
    if error is not None and item.get_closest_marker("gpu") and is_device_lost(error):
        item.config.stash.setdefault(LOST, item.nodeid)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test if the device is lost."""
    culprit = item.config.stash.get(LOST, None)
    if culprit is not None and item.get_closest_marker("gpu"):
        pytest.skip(f"not run: the CUDA context of this process was lost at {culprit}")
