"""Coverage and repetition, on artificial attention and on real translations."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answers.quality import MISSED, coverage, repetition
from engine.api import Placement, Service, ServiceSettings, TextOptions
from tests.support.golden_fixtures import ROOT
from tests.support.served import server

MODELS = ROOT.parent / "models"


def test_a_word_that_nothing_attended_to_is_missed():
    attention = np.array([[0.9, 0.0, 0.05, 0.05, 0.0], [0.0, 0.0, 0.5, 0.2, 0.3], [0.1, 0.1, 0, 0, 0.8]])
    found = coverage(attention, ["Haus", "auf", "."], [0, 1, 3])
    assert found.mass == pytest.approx([1.0, 0.65, 0.25])
    assert found.missed == []
    found = coverage(attention * 0.3, ["Haus", "auf", "."], [0, 1, 3])
    assert found.missed == [1]  # 0.3 is above MISSED; punctuation does not count
    assert 0.3 * 0.65 < MISSED < 0.3


def test_words_without_a_counterpart_are_never_missed():
    attention = np.array([[0.8, 0.0, 0.1, 0.0, 0.1]])
    found = coverage(attention, ["Ich", "Habe,", "(haben)", "habend"], [0, 1, 2, 3], {"habe", "haben"})
    assert found.missed == [3]


@given(st.integers(1, 6), st.integers(1, 9))
def test_attention_mass_is_conserved(target, source):
    attention = np.random.default_rng(target * source).dirichlet(np.ones(source + 1), target)
    found = coverage(attention, ["w"] * source, list(range(source)))
    assert sum(found.mass) == pytest.approx(target - attention[:, -1].sum())


@pytest.mark.parametrize(
    ("tokens", "share", "loop"),
    [
        ([], 0, False),
        ([5, 5, 5], 0, False),
        ([5] * 6, 2 / 3, True),
        ([5, 6, 7, 8, 9, 10, 11], 0, False),
        ([5, 6] * 3, 1 / 3, True),
        ([5, 6, 5, 6], 0, False),
        ([9, *[5, 6, 7] * 3, 4], 3 / 8, True),
        ([1, 2, 3, 4, 9, 1, 2, 3, 4], 1 / 6, False),
        (list(range(25)) * 3, 47 / 72, False),  # too long for a loop, but much of it twice
    ],
)
def test_repeats_and_loops(tokens, share, loop):
    found = repetition([[1, 2, 3], tokens])
    assert found.share == pytest.approx(share)
    assert found.loop is loop


def test_coverage_and_repetition_of_real_answers():
    made = Service.open([MODELS / "tatoeba-de-en"], ServiceSettings(Placement(lanes=((1, 8), (5, 8)))))
    made.start()
    try:
        text = "Tom wohnt in Boston. Wo ist der Bahnhof?"
        whole = asyncio.run(made.run("tatoeba-de-en", [text], TextOptions(coverage=True)))[0]
        short = asyncio.run(
            made.run(
                "tatoeba-de-en",
                ["Tom wohnt seit zwei Jahren mit Maria in Boston."],
                TextOptions({"max_length": 2}, coverage=True),
            )
        )[0]
        text = "Ich habe gestern leider den Zug verpasst."
        perfect = asyncio.run(made.run("tatoeba-de-en", [text], TextOptions(coverage=True)))[0]
        longer = {"beam_size": 1, "min_length": 80, "max_length": 80}
        loop = asyncio.run(made.run("tatoeba-de-en", ["Hallo, Welt!"], TextOptions(longer)))[0]
    finally:
        made.stop(drain=False, timeout=30)
    assert [c.words for c in whole.coverage] == [
        ["Tom", "wohnt", "in", "Boston."],
        ["Wo", "ist", "der", "Bahnhof?"],
    ]
    assert not whole.coverage[0].missed
    assert not whole.repetition.loop
    assert whole.alignment == []
    missed = {short.coverage[0].words[i] for i in short.coverage[0].missed}
    assert {"Jahren", "Maria", "Boston."} & missed
    assert not perfect.coverage[0].missed  # "habe" has no counterpart in "I missed the train"
    assert loop.repetition.loop
    assert loop.repetition.share > 0.1


def test_the_server_answers_coverage_and_repetition_on_request():
    body = {"q": "Das ist gut. Wer bist du?", "source": "de", "target": "en", "coverage": True}
    with server() as (client, house, _):
        one = client.post("/translate", json=body | {"repetition": True}).json()
        many = client.post("/translate", json=body | {"q": [body["q"], "😀"]}).json()
        summary = {"q": "We prove it.", "coverage": True, "repetition": True}
        title = client.post("/summarize", json=summary).json()
        (result,) = asyncio.run(house.service.run("toy-de-en", [body["q"]], TextOptions(coverage=True)))
    wanted = [{"words": c.words, "mass": c.mass, "missed": c.missed} for c in result.coverage]
    assert one["coverage"] == wanted
    assert [c["words"] for c in wanted] == [["Das", "ist", "gut."], ["Wer", "bist", "du?"]]
    assert one["repetition"] == {"share": result.repetition.share, "loop": result.repetition.loop}
    assert many["coverage"] == [wanted, []]
    assert title["coverage"][0]["words"] == ["We", "prove", "it."]
    assert set(title["repetition"]) == {"share", "loop"}
    assert "repetition" not in many
