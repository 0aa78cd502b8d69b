"""The fast search for sentences of plain words."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.placeables.grammar import PROSE, SIGNS

WORDS = [
    "Tom",
    "geht",
    "l'eau",
    "est-il",
    "C",
    "x",
    "xxxx",
    "a",
    "Inc",
    "plc",
    "GmbH",
    "AG",
    "XI",
    "iPad",
    "z.B.",
]
WORDS += ["a-b-c", "Anna", "Müller", "5", "J.", "L'eau", "foo-bar-baz", "»", "No"]


@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", ", ", "", "-"]))),
    st.sampled_from([".", " ?", "!", "", ". "]),
)
def test_sentence_of_plain_words_has_no_sign_of_a_placeable(parts, end):
    text = "".join(word + gap for word, gap in parts) + end
    assert not (PROSE.match(text) and SIGNS.search(text)), text


def test_most_sentences_are_found_to_be_plain_at_once():
    plain = ("Tom geht heute nicht nach Hause.", "Où est-il, mon ami\u00a0?", "I don't know, do you?")
    assert all(map(PROSE.match, plain))
