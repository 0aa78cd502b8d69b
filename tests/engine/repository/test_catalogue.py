"""The choice of a model: what it can read whole, and which languages a chain of two serves."""

from dataclasses import replace

import pytest

from engine.bundle.manifest import DEMONSTRATION, Provenance
from engine.errors import UnknownModel
from engine.repository.catalogue import choose_route, parse_route
from tests.support.served import open_service


@pytest.fixture(scope="module")
def infos():
    return {info.name: info for info in open_service().models()}


@pytest.mark.parametrize(("characters", "name"), [(10, "letters"), (1_000, "letters"), (1_001, "words")])
def test_model_of_characters_reads_one_for_each_token(infos, characters, name):
    title = infos["toy-title"]
    letters = replace(title, name="letters", limits=replace(title.limits, vocab=400, source=1_000))
    words = replace(title, name="words", limits=replace(title.limits, vocab=401, source=400))
    route = choose_route([letters, words], "summarize", "en", None, characters)
    assert route.name == name
    # nothing reads a longer text whole: the model that reads most is chosen
    assert choose_route([letters, words], "summarize", "en", None, 10**6).name == "words"


def test_chain_serves_the_source_of_its_first_and_the_target_of_its_last_model(infos):
    models = [infos["toy-de-en"], infos["toy-en-de"]]
    chain = parse_route(models, "toy-de-en+toy-en-de")
    assert chain.serves("translate", "de", "de")
    assert not chain.serves("translate", "de", "en")
    assert not chain.serves("translate", "en", "de")
    assert not chain.serves("summarize", "de", "de")
    with pytest.raises(UnknownModel, match="does not translate from the first one's target"):
        parse_route(models, "toy-de-en+toy-de-en")


def test_other_models_are_chosen_before_the_shipped_demonstrations(infos):
    fetched = {name: replace(infos[name], name=f"z-{name}") for name in ("toy-de-en", "toy-en-de")}
    shipped = [
        replace(infos[name], provenance=Provenance(DEMONSTRATION)) for name in ("toy-de-en", "toy-en-de")
    ]
    models = [*shipped, fetched["toy-de-en"]]
    assert choose_route(models, "translate", "de", "en").name == "z-toy-de-en"
    assert choose_route(models, "translate", "en", "de").name == "toy-en-de"
    dutch = replace(fetched["toy-de-en"], name="nl-en", source="nl", sources=("nl",))
    assert choose_route([*shipped, dutch], "translate", "nl", "de").name == "nl-en+toy-en-de"
    models = [*shipped, dutch, fetched["toy-en-de"]]
    assert choose_route(models, "translate", "nl", "de").name == "nl-en+z-toy-en-de"
