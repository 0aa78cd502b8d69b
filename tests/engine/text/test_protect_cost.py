"""Protection reads each character of a text a bounded number of times, counted instead of timed."""

import pytest

from engine.text.placeables import grammar, markup
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from tests.support.finished import mask, read_capitals, read_markup

MOST_PASSES = 3  # for markup, for words in capitals and for placeables
TEXTS = {
    "prose": "Tom geht heute nicht nach Hause.",
    "numbers": "Am 3. Mai um 18:30 kamen 1.234,56 € an. ",
    "codes": "Setze user_id=5 in src/app.ts:12:7 und rufe arn:aws:iam::12:role/Admin auf. ",
    "markup": "Das ist <b>SEHR</b> *wichtig* und (sehr) „alt“. ",
    "signs": ">.< ~*~*~ [====>  ] s/a/b/ X-A: b=1; 0 5 * * 1 ",
}


@pytest.fixture
def searched(monkeypatch):
    """Lengths of the texts that the grammar searched."""
    lengths = []
    for room in (grammar, markup):

        def search(pattern, long, text, matches=room.matches):
            lengths.append(len(text))
            return matches(pattern, long, text)

        monkeypatch.setattr(room, "matches", search)
    return lengths


def protect(text):
    plain = read_capitals(read_markup(text), "de", len)
    return mask(MarkedText(plain.text), MaskRules(protect=True, languages=("de", "en")))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("times", [1, 50])
def test_protection_reads_a_text_three_times_at_most(searched, text, times):
    protect(text * times)
    assert sum(searched) <= MOST_PASSES * len(text) * times


def test_a_sentence_of_plain_words_is_not_searched(searched):
    protect(TEXTS["prose"])
    assert not searched


def test_a_line_with_codes_is_searched_for_them(searched):
    masked = protect(TEXTS["codes"])
    assert [phrase.source for phrase in masked.phrases][1:] == [
        "src/app.ts:12:7",
        "arn:aws:iam::12:role/Admin",
    ]
    assert searched


@pytest.mark.parametrize("times", [1, 40])
def test_phrases_of_the_caller_add_no_pass(searched, times):
    """Each part between two spans is searched once, whatever their number."""
    part = "Rufe user_id auf. "
    spans = tuple((len(part) * n, len(part) * n + 4) for n in range(times))
    mask(MarkedText(part * times, spans), MaskRules(protect=True))
    assert sum(searched) <= len(part) * times
