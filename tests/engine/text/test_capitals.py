"""Words in capitals within a text in small letters."""

import pytest

from engine.text.placeables.markup import PlainText
from tests.support.finished import read_capitals, read_markup

KNOWN = {"sehr", "Haus", "ACHTUNG", "don", "can"}


def tokens(word):
    return 1 if word in KNOWN else 4


def test_words_in_capitals_are_lowered_if_the_vocabulary_has_them():
    plain = read_capitals(read_markup("Das **HAUS** ist SEHR gut, XYZZY."), "de", tokens)
    assert plain.text == "Das Haus ist sehr gut, XYZZY."
    assert sorted((f.begin, f.end, f.parent) for f in plain.formats if f.capitals) == [
        (4, 8, 0),
        (13, 17, -1),
    ]
    title = read_markup("SEHR GUT")
    assert read_capitals(title, "de", tokens) == title


@pytest.mark.parametrize("apostrophe", ["'", "’"])
def test_contraction_in_capitals_is_lowered_as_a_whole(apostrophe):
    """The model reads `don'T` as `do`."""
    plain = read_capitals(read_markup(f"Please DON{apostrophe}T go, you CAN{apostrophe}T."), "en", tokens)
    assert plain.text == f"Please don{apostrophe}t go, you can{apostrophe}t."
    assert [(f.begin, f.end) for f in plain.formats if f.capitals] == [(7, 12), (21, 26)]


def test_adjacent_words_in_capitals_are_one_format():
    count = {"auf": 1, "keinen": 1, "KEINEN": 4, "AUF": 3}.get
    plain = read_capitals(PlainText("Tu das AUF KEINEN Fall."), "de", lambda word: count(word, 4))
    assert plain.text == "Tu das auf keinen Fall."
    assert [(f.begin, f.end) for f in plain.formats] == [(7, 17)]
