"""Sentences and clauses of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TooLarge
from engine.text.split import _columns, break_long
from tests.support.finished import split
from tests.support.timing import assert_linear

PROSE = st.lists(st.sampled_from([*" .!?\n\r\u2028\u00a0\x85A2aü。\ud800", "z.B. ", "Dr.", "\r\n"])).map(
    "".join
)


def test_abbreviations_do_not_end_a_sentence():
    text = "Das ist z.B. ein Test. Dr. Müller kommt am 3. Mai. Wirklich?  Ja!"
    assert split(text, "de").sentences == [
        "Das ist z.B. ein Test.",
        "Dr. Müller kommt am 3. Mai.",
        "Wirklich?",
        "Ja!",
    ]
    text = "Mr. Smith went by train, e.g. to Washington. He left."
    assert split(text, "en").sentences == ["Mr. Smith went by train, e.g. to Washington.", "He left."]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Gut – aber teuer.", ["Gut", "–", "aber teuer."]),
        ("Ich weiß nicht ... vielleicht.", ["Ich weiß nicht", "...", "vielleicht."]),
        ("Ich wiege 70 kg – gut.", ["Ich wiege 70 kg", "–", "gut."]),
        ("3 Eier (Größe M).", ["3 Eier", "(", "Größe M", ")."]),
        ("“Come here!” he said.", ["“Come here!”", "he said."]),
        # not split: years, quotations, labels, brackets within a sentence
        ("Er kam 1990 – 1995 oft.", ["Er kam 1990 – 1995 oft."]),
        ("„Gut – aber teuer.“", ["„Gut – aber teuer.“"]),
        ("Baltisch (Windows-1257)", ["Baltisch (Windows-1257)"]),
        ("Er (Tom) kommt.", ["Er (Tom) kommt."]),
        ("Datei(en)", ["Datei(en)"]),
    ],
)
def test_clauses_are_split_at_marks_that_models_lose(text, sentences):
    layout = split(text, "de", clauses=True)
    assert layout.sentences == sentences
    assert {layout.sentences[number] for number in layout.fixed} == {
        s for s in sentences if not any(c.isalpha() for c in s)
    }
    assert split(text, "de").sentences == [text]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Was?? 5 € dafür", ["Was??", "5 € dafür"]),
        ("À 9 h ?? j'ai faim", ["À 9 h ??", "j'ai faim"]),
        ("Ne pas ouvrir ! 220 V", ["Ne pas ouvrir !", "220 V"]),
        ("Ah ! que c'est beau", ["Ah ! que c'est beau"]),
        ("« Quoi ?? 5 € » dit-il", ["« Quoi ?? 5 € » dit-il"]),
    ],
)
def test_several_marks_and_a_mark_before_a_number_end_a_sentence(text, sentences):
    assert split(text, "fr").sentences == sentences


@given(st.text() | PROSE | st.text("a – .…!?()„“\"'"))
def test_joined_clauses_give_the_text(text):
    layout = split(text, "de", clauses=True)
    assert layout.join(layout.sentences) == text


def test_translations_keep_the_layout_of_the_text():
    layout = split("  Eins. Zwei!\r\n\r\n\tDrei\u00a0\nVier", "de")
    assert layout.sentences == ["Eins.", "Zwei!", "Drei", "Vier"]
    assert layout.join(["1.", "2!", "3", ""]) == "  1. 2!\r\n\r\n\t3\u00a0\n"


def test_sentences_that_touch_can_get_a_space():
    layout = split("これは文です。次の文です。", "ja")
    assert layout.join(["One.", "Two."], lambda gap, _: gap or " ") == "One. Two."


def test_text_without_sentences_stays():
    for text in ("", " ", "\n \n"):
        assert split(text, "de").sentences == []
        assert split(text, "de").join([]) == text


@given(st.text() | PROSE, st.sampled_from(["de", "en", "fr", "ja", "de-AT", "xx", ""]))
def test_joined_sentences_give_the_text(text, language):
    layout = split(text, language)
    assert layout.join(layout.sentences) == text
    assert all(s == s.strip() and s for s in layout.sentences)


@given(st.text() | PROSE, st.integers(1, 12))
def test_long_sentences_are_cut_so_that_each_part_fits(text, longest):
    def fits(part):
        return len(part) <= longest

    parts = list(break_long(text, fits))
    assert "".join(parts) == text
    assert all(fits(part) for part in parts)
    layout = split(text, "de", fits)
    assert layout.join(layout.sentences) == text
    assert all(fits(s) for s in layout.sentences)


def test_cuts_prefer_clauses_then_spaces():
    assert list(break_long("one two, three four, five", lambda s: len(s) <= 21)) == [
        "one two, three four, ",
        "five",
    ]
    assert list(break_long("one two three", lambda s: len(s) <= 9)) == ["one two ", "three"]
    assert list(break_long("abcdef, gh", lambda s: len(s) <= 4)) == ["abcd", "ef, ", "gh"]
    assert list(break_long("1,000,000", lambda s: len(s) <= 9)) == ["1,000,000"]


def test_character_that_does_not_fit_is_too_large():
    with pytest.raises(TooLarge, match="single character 'a'"):
        list(break_long("abc", lambda s: False))


def test_breaking_a_very_long_sentence_measures_few_parts():
    asked = []

    def fits(part):
        asked.append(len(part))
        return len(part) <= 1000

    list(break_long("word " * 40_000, fits))
    assert sum(asked) < 40 * 200_000


def test_long_line_is_split_like_a_short_line_and_loses_no_text():
    sentence = 'Sie sagte: "Das ist gut." '
    line = sentence * 400  # longer than a stretch
    layout = split(line, "de")
    assert layout.join(layout.sentences) == line
    assert len(layout.sentences) == 400 * len(split(sentence, "de").sentences)


def test_columns_of_a_long_row_take_linear_time():
    assert_linear(lambda count: list(_columns("|a" * count + " ")), 25_000)
