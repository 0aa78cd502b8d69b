"""Most texts of a few words are detected, and few names are refused."""

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


def test_listed_greetings_and_buttons_are_detected(counts):
    known = counts["list"]
    assert known["wrong"] == 0
    assert share(known, "right", "named", "refused") > 0.97


def test_most_texts_that_are_not_listed_are_detected(counts):
    new = counts["new"]
    assert new["right"] / (new["right"] + new["wrong"]) > 0.85
    assert share(new, "right", "named", "refused") > 0.6


def test_names_are_rarely_refused(counts):
    assert share(counts["name"], "refused") < 0.05


def test_vocabularies_are_used_only_if_all_models_are_in_memory(service):
    """Otherwise the result would depend on which models are in memory."""
    unloaded = open_service(budget=10**12)
    assert service.detect("Carrinho").other == "pt"
    assert unloaded.detect("Carrinho").other is None
    assert unloaded.detect("Saluton").other == "eo"  # a listed word
