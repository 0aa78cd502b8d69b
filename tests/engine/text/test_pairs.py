"""Pairs of quotation marks and brackets in sentences and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.placeables.pairs import close_as_opened, find_pairs, keeps_pairs, without_pairs
from tests.support.finished import apply, formats_of

MARKS = st.text(alphabet="ab \u00a0„“”\"'«»‚‘’()[].", max_size=24)


def restored(text, language):
    """Remove the marks of a sentence and put them back in the form of a language."""
    plain = without_pairs(text, language)
    return plain.text, apply(formats_of(text, plain, ()), plain.text, (), (), ("de", language)).text


@pytest.mark.parametrize(
    ("text", "plain", "english"),
    [
        ("„Haus“ und »Hund« und ‚Katze‘", "Haus und Hund und Katze", "“Haus” und “Hund” und ‘Katze’"),
        ("Das (sehr [große]) Haus", "Das sehr große Haus", "Das (sehr [große]) Haus"),
        ("Il dit : « Oui. »", "Il dit : Oui.", "Il dit : “Oui.”"),
        ("Er sagte: „Sie sagte ‚ja‘.“", "Er sagte: Sie sagte ja.", "Er sagte: “Sie sagte ‘ja’.”"),
        ('Das "Haus" (das "alte")', "Das Haus das alte", 'Das "Haus" (das "alte")'),
        ("„Das ist gut.", "Das ist gut.", "“Das ist gut."),
        ('Ich komme."', "Ich komme.", 'Ich komme."'),
    ],
)
def test_marks_come_back_in_the_form_of_the_target(text, plain, english):
    assert restored(text, "en") == (plain, english)


@pytest.mark.parametrize(
    ("language", "written"), [("fr", "«\u202fHaus\u202f»"), ("de", "„Haus“"), ("xx", "»Haus«")]
)
def test_marks_are_those_of_the_target_if_it_has_marks(language, written):
    assert restored("»Haus«", language)[1] == written


@pytest.mark.parametrize(
    "text", ["Tom's dogs' bones", "don’t", "Er ist 1,80 m (6'1\" groß", "a) b", "a ) ( b", ""]
)
def test_marks_without_a_pair_stay(text):
    assert without_pairs(text, "en").text == text


@pytest.mark.parametrize(
    ("source", "answer", "kept"),
    [
        ("Das „Haus“ ist rot.", 'The "house" is red.', True),
        ("Das „Haus“ ist rot.", "The house is red.", False),
        ("Das „Haus“ ist rot.", "\"He's red.", False),
        ("Das „Haus“ ist rot.", 'The "house"" is red.', False),
        ("‚Katze‘ ist ein Wort.", '"Cat" is a word.', True),
        ("Das (alte (rote) Haus)", "The (rote) house", False),
        ("Das (rote) Haus", "The [red] house", False),
        ("„Das ist gut.", "It's good.", False),
        ("„Das ist gut.", "\"It's good.", True),
    ],
)
def test_missing_marks_of_an_answer_are_noticed(source, answer, kept):
    assert keeps_pairs(source, answer) is kept


@given(MARKS)
def test_any_sentence_keeps_its_own_marks_and_gets_them_back(text):
    assert keeps_pairs(text, text)
    text = text.strip()
    plain = without_pairs(text, "xx")
    formats = plain.formats
    assert all(0 <= f.begin <= f.end <= len(plain.text) for f in formats)
    assert all(
        f.parent < 0 or formats[f.parent].begin <= f.begin <= f.end <= formats[f.parent].end for f in formats
    )
    assert len(formats) == len(find_pairs(text).pairs)
    length = len(plain.text) + sum(len(f.before) + len(f.after) for f in formats)
    spaces = sum(text.count(space) for space in " \u00a0")
    assert len(text) - spaces <= length <= len(text)


@pytest.mark.parametrize(
    ("answer", "language", "closed"),
    [
        ('Er dachte: "Das ist gut!“', "de", 'Er dachte: "Das ist gut!"'),
        ('"Wer sagte „Wer“?“', "de", '"Wer sagte „Wer“?"'),
        ("„Wer hat 'nein' gesagt?\"", "de", "„Wer hat 'nein' gesagt?“"),
        ("« C'est vrai ?\"", "fr", "« C'est vrai ?\u202f»"),
        ("'zugzwang\", the player", "en", "'zugzwang', the player"),
        ('“Dogs’ names aren\'t "ours".”', "en", '“Dogs’ names aren\'t "ours".”'),
        ("“Über, “ja”", "xx", "“Über, “ja”"),
    ],
)
def test_closing_mark_is_the_partner_of_the_first(answer, language, closed):
    assert close_as_opened(answer, language) == closed


@given(MARKS, st.sampled_from(["de", "en", "fr", "xx"]))
def test_mending_closing_marks_keeps_all_letters(text, language):
    letters = [c for c in close_as_opened(text, language) if c in "ab()[]."]
    assert letters == [c for c in text if c in "ab()[]."]
