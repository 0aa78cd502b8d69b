"""Positions of tokens in a text."""

from tests.support.finished import locate
from tests.support.timing import assert_linear


def test_pieces_are_found_in_their_text():
    text = "Großes  Haus — ½ Don't well-known &"
    pieces = ["▁Gro", "ß", "es", "▁Haus", "<unk>", "▁1⁄2", "▁Don", "'", "t", "well", "@-@", "known", "&amp;"]
    found = [text[place[0] : place[1]] if place else None for place in locate(text, pieces)]
    assert found == ["Gro", "ß", "es", "Haus", None, "½", "Don", "'", "t", "well", "-", "known", "&"]
    assert locate("abc", ["ab@@", "c"]) == [(0, 2), (2, 3)]


def test_sentence_without_letters_is_skipped():
    text = "🎉" * 200 + " Gut"
    assert locate(text, ["▁Gut"]) == [(201, 204)]


def test_pieces_that_a_long_row_of_marks_lacks_take_linear_time():
    assert_linear(lambda count: locate("." * count + "x", ["b"] * count), 4_000)
