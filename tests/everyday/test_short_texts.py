"""Most texts of a few words are of the language that they are taken for, and hardly a name is refused."""

import pytest

from tests.everyday.short_texts import MODELS, NAMES, open_service, outcomes

pytestmark = pytest.mark.skipif(
    not all((MODELS / name).is_dir() for name in NAMES), reason="the shipped models are not there"
)


@pytest.fixture(scope="module")
def service():
    return open_service()


@pytest.fixture(scope="module")
def counts(service):
    return outcomes(service)


def share(count, *outcomes):
    return sum(count[outcome] for outcome in outcomes) / sum(count.values())


def test_greetings_and_buttons_are_known(counts):
    known = counts["list"]
    assert known["wrong"] == 0
    assert share(known, "right", "named", "refused") > 0.97


def test_of_texts_that_are_in_no_list_most_are_told_right(counts):
    new = counts["new"]
    assert new["right"] / (new["right"] + new["wrong"]) > 0.85
    assert share(new, "right", "named", "refused") > 0.6


def test_names_are_hardly_ever_refused(counts):
    assert share(counts["name"], "refused") < 0.05


def test_the_vocabularies_are_asked_when_all_are_in_memory(service):
    """Else what is said of a text would depend on which of them are."""
    unloaded = open_service(budget=10**12)
    assert service.detect("Carrinho").other == "pt"
    assert unloaded.detect("Carrinho").other is None
    assert unloaded.detect("Saluton").other == "eo"  # by heart
