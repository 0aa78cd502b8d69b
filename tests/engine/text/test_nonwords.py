"""Parts of a text that are no words are phrases, with all signs that belong to them."""

import pytest

from engine.text.foreign import find_foreign_quotations
from tests.engine.text.test_grammar import phrases


@pytest.mark.parametrize(
    "thing",
    ["2d6+3", "a[1:-1]", "::before", "!important", "$?", "#!/bin/sh", "///anders.tafel.birne", "M8x1.25"]
    + ["J/(g·K)", "5'-ATGCGTAA-3'", "χ²(2) = 5,3", "↑↑↓↓←→←→BA", "~$*.docx", "ヽ(´▽`)/", "%anrede%"]
    + ["R U R' U'", "∀x ∈ ℝ: x² ≥ 0", "p < 0,05", "230 V ~ 50 Hz", "Map<String, List<Integer>>", "EUR/USD"]
    + ["Xy7!kPq2", "^[a-z]+$", r"\u2192", "#Berlin", "src/**/*.py", "std::vector<int>", "0xdeadbeef", "x2"]
    + ["1b4e28ba-2fa1-11d2-883f-0016d3cca427", "2024-05-12T08:30:00Z", "Tom&Jerry", "ΔT = 5 K", "6,3 A"],
)
def test_part_that_is_no_word_is_one_phrase(thing):
    assert phrases(f"Das hier {thing} ist gut.") == [thing]


@pytest.mark.parametrize(
    "text",
    [
        "Haus, „Garten“ (Hof) und/oder Straße?!",
        "Der G7-Staat, HTML5-Server, 90er, 5th",
        "Datei(en), Lehrer*innen, Autor:innen, Haus- und Hof",
        "... dann ging er --- und kam wieder...",
        "हिन्दी और العربية، 日本語。",
        "Milch**, Ei*",
        "价格(很贵)+运费=总价",
    ],
)
def test_words_with_ordinary_marks_are_no_phrases(text):
    assert phrases(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Im Jahr 70 n. Chr. war es so.", ["70"]),
        ("Ein Dollar = 3.8 Schekel", ["=", "3.8"]),
        ("Seite¹ und Straße{0}", ["¹", "{0}"]),
        ('{name}s Haus (2d6+3), "2d6+3"', ["{name}", "(2d6+3)", "2d6+3"]),
        ("Hallo😀 du", ["😀"]),
    ],
)
def test_words_and_marks_around_such_a_part_do_not_belong_to_it(text, found):
    assert phrases(text) == found


def test_quotation_in_another_language_stays():
    text = "Das Lied „Ne me quitte pas“ und „Let It Be“, nicht „Guten Morgen“ oder „Hurra Kinder“."
    spans = find_foreign_quotations(text, "de")
    assert [text[begin:end] for begin, end in spans] == ["Ne me quitte pas", "Let It Be"]
