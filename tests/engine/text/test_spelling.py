"""Spelling of amounts and names in answers."""

from __future__ import annotations

import pytest

from engine.api import MarkedText
from engine.text.placeables.escapes import Escaped, escapes_of, read_escape
from engine.text.placeables.masking import MaskRules
from engine.text.placeables.spelling import spell_names
from tests.support.finished import mask

SYMBOLS = tuple(f"<ph{i}>" for i in range(16))


@pytest.mark.parametrize(
    ("source", "answer", "written"),
    [
        ("Es dauert 1,7 Tage.", "It takes 1.7 days.", "It takes 1,7 days."),
        ("Das kostet 5000 €.", "That costs €5,000.", "That costs 5000 €."),
        ("Es sind 1.234 und 1,7.", "It's 1,234 and 1.7.", "It's 1.234 and 1,7."),
        (
            "Es sind 30 cm.",
            "It's 30 inches.",
            "It's 30 inches.",
        ),  # without the unit the answer is decoded again
        ("Um 12:30 kam er.", "He came at 1230.", "He came at 1230."),
        ("Es sind 17 oder 1,7.", "It's 17 or 1.7.", "It's 17 or 1,7."),
    ],
)
def test_number_is_spelled_as_in_the_source(source, answer, written):
    found = mask(MarkedText(source), MaskRules(protect=True, symbols=SYMBOLS))
    assert found.phrases
    assert found.respelled(answer, range(len(found.phrases)), len) == written


@pytest.mark.parametrize(
    ("name", "answer", "written"),
    [
        ("Oscar Wilde", "Oscar wilde once said it.", "Oscar Wilde once said it."),
        ("Paul Keres", "He saw Paul Kerks there.", "He saw Paul Keres there."),
        ("Christoph Columbus", "Christianoph Columbus came.", "Christoph Columbus came."),
        ("Ludwig van Beethoven", "It is by Ludwig van Beethowen.", "It is by Ludwig van Beethoven."),
        ("George Orwell", "I know George was here.", "I know George Orwell was here."),
        ("Nordschweden", "I live in nordschweden.", "I live in Nordschweden."),
        ("Samsung Galaxy", "A Samsung-Galaxy is new.", "A Samsung Galaxy is new."),
    ],
)
def test_misspelled_or_partial_name_is_spelled_as_in_the_source(name, answer, written):
    assert spell_names(answer, [name], len) == written


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("George Orwell", "I know George Bush."),  # another person
        ("George Orwell", "George saw George."),  # two places
        ("Anna Li", "Anna came."),  # a short word may have been translated
        ("Tom Jackson", "Jackson came."),  # the beginning is missing
        ("Leonardo da Vinci", "Leonardo came."),
        ("Christoph Columbus", "Christian oph Columbus came."),  # the name is there with a space in it
        ("Karla Karlsson", "Karla saw Karlson."),
        ("von Bülow", "It is from von here."),  # a particle marks no place
        ("Oscar Wilde", "oscar wilde and Oscar wilde"),
        ("Nordschweden", "I live in Northern Sweden."),
    ],
)
def test_name_stays_lost_if_its_place_or_translation_is_in_doubt(name, answer):
    assert spell_names(answer, [name], len) == answer


@pytest.mark.parametrize(("answer", "garbled"), [("5 and 7", False), ("5 and 7 and 7", True), ("5", True)])
def test_number_that_an_answer_lacks_or_repeats_is_noticed(answer, garbled):
    found = mask(MarkedText("5 und 7"), MaskRules(protect=True, symbols=SYMBOLS))
    assert found.garbles(answer, range(len(found.phrases)), "en") is garbled


@pytest.mark.parametrize(
    ("escape", "written"),
    [("&#244;", "caf&#233;"), ("&#xf4;", "caf&#xe9;"), ("&ocirc;", "caf&eacute;"), ("\\u00f4", "caf\\u00e9")],
)
def test_letters_of_an_answer_are_escaped_in_the_form_of_the_source(escape, written):
    assert escapes_of([Escaped(escape, read_escape(escape))]).write("café") == written


def test_ampersand_of_an_answer_is_escaped_unless_it_begins_an_escape():
    escapes = escapes_of([Escaped("&amp;", read_escape("&amp;")), Escaped("&nbsp;", read_escape("&nbsp;"))])
    assert escapes.write("Fish & chips\u00a0&lt; R&D") == "Fish &amp; chips&nbsp;&lt; R&amp;D"


def test_escapes_of_signs_stand_for_no_letter():
    assert [read_escape(escape) for escape in ("&plus;", "&#36;", "&copy;", "&ocirc;", "&rsquo;")] == [
        *("", "", ""),
        *("ô", "’"),
    ]
