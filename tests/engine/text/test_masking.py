"""Masking of phrases in a text, and their return."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import MarkedText, TooLarge
from engine.text.placeables.masked_text import MaskedText, Phrase
from engine.text.placeables.masking import MaskRules
from tests.support.finished import mask

THINGS = [
    "{name}",
    "%s",
    "%(count)d",
    "%1$s",
    "{{user.id}}",
    "${x}",
    "https://example.org/a?b=1&c",
    "www.example.org",
    "a.b@example.org",
    "3,141.59",
    "2024",
    "12:30",
]
SYMBOLS = tuple(f"<ph{i}>" for i in range(16))


@pytest.mark.parametrize("thing", THINGS)
def test_each_thing_is_found_as_a_whole(thing):
    found = mask(MarkedText(f"Das ({thing}), ist {thing}."), MaskRules(protect=True, symbols=SYMBOLS))
    assert [phrase.source for phrase in found.phrases] in ([thing, thing], [f"({thing})", thing])


@pytest.mark.parametrize("text", ["100%ig", "3D", "zu 5x", "z.B."])
def test_patterns_do_not_match_prose(text):
    found = mask(MarkedText(text), MaskRules(protect=True, symbols=SYMBOLS))
    assert not [p.source for p in found.phrases if not p.source.isdigit()]


@given(
    text=st.lists(st.sampled_from([*THINGS, "Haus", " ", ".", "ü", "<ph1>", "\ue000", "\n"])).map("".join),
    ignore=st.lists(st.sampled_from(["Haus", "ü", "name"])),
    cuts=st.lists(st.integers(0, 40), max_size=6, unique=True).map(sorted),
)
def test_masked_text_can_be_restored(text, ignore, cuts):
    spans = tuple((a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b <= len(text))
    marked = MarkedText(text, spans)
    found = mask(marked, MaskRules(ignore=ignore, protect=True, symbols=SYMBOLS))
    restored, kept = found.restore(found.text, range(len(found.phrases)))
    assert restored == text
    assert len(found.stand_in) == len(found.text)
    asked = [(k.begin, k.end) for k in kept if found.phrases[k.span].spans]
    assert asked == list(spans)
    for k, phrase in zip(kept, found.phrases, strict=True):
        assert restored[k.begin : k.end] == phrase.source


def test_requested_phrases_and_the_first_others_are_masked_if_symbols_run_out():
    found = mask(
        MarkedText("1.5 Haus 2.5 Haus 3.5"), MaskRules(ignore=["Haus"], protect=True, symbols=SYMBOLS)
    )
    assert [phrase.source for phrase in found.phrases] == ["1.5", "Haus", "2.5", "Haus", "3.5"]
    fewer = found.at_most(3)
    assert [phrase.source for phrase in fewer.phrases] == ["1.5", "Haus", "Haus"]
    assert fewer.restore(fewer.text, range(3))[0] == "1.5 Haus 2.5 Haus 3.5"
    with pytest.raises(TooLarge):
        found.at_most(1)


def test_beginning_of_a_text_is_restored_to_the_beginning_of_the_result():
    masked = MaskedText("", "\ue000", (Phrase("a", "long one", True), Phrase("b", "", True)))
    text = "x\ue000y\ue000z"
    whole_text, _ = masked.restore(text, [1, 0])
    assert whole_text == "xylong onez"
    for end in range(len(text)):
        assert whole_text.startswith(masked.restore(text[:end], [1, 0])[0])


def test_longer_one_of_two_phrases_with_the_same_beginning_is_found():
    found = mask(MarkedText("ab abc ab c"), MaskRules(ignore=["ab", "ab c", "abc"], symbols=SYMBOLS))
    assert [phrase.source for phrase in found.phrases] == ["ab", "abc", "ab c"]


@pytest.mark.parametrize(
    ("glossary", "text", "found"),
    [
        ({"station": "Bahnhof"}, "Station STATION station", ["Bahnhof", "BAHNHOF", "Bahnhof"]),
        ({"gare": "station"}, "Gare, GARE, gare, Gares", ["Station", "STATION", "station"]),
        ({"gare|gares": "station"}, "gares Gares GARES", ["station", "Station", "STATION"]),
        ({"Gare": "stop"}, "gare Gare GARE", ["stop", "STOP"]),
        ({"=it": "EDV", "=gare|x": "y"}, "it It IT gare|x gare", ["EDV", "y"]),
        ({"it": "es", "IT": "EDV"}, "it It IT", ["es", "Es", "EDV"]),
        ({"été": "summer"}, "Été ÉTÉ", ["Summer", "SUMMER"]),
        ({"|": "or", "=": "is", "a|": "b"}, "a| | = a", ["b", "or", "is"]),
    ],
)
def test_glossary_follows_case_and_forms_of_its_entries(glossary, text, found):
    assert [p.target for p in mask(MarkedText(text), MaskRules(glossary=glossary)).phrases] == found


def test_phrase_that_stays_wins_over_other_capitals_of_an_entry():
    rules = MaskRules(ignore=["IT"], glossary={"it": "es"})
    assert [p.target for p in mask(MarkedText("IT it"), rules).phrases] == ["IT", "es"]
