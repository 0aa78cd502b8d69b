"""Amounts in the form of each language, and list marks that look like numbers."""

import pytest

from engine.text.languages import LANGUAGES
from engine.text.numerals import localise
from engine.text.placeables.masked_text import MarkedText
from engine.text.placeables.masking import MaskRules
from tests.support.finished import mask, split

W, N = "\u00a0", "\u202f"


@pytest.mark.parametrize(
    ("number", "pair", "wanted"),
    [
        ("19,99 €", "de-en", "€19.99"),
        ("(3,5 %)", "de-en", "(3.5%)"),
        ("1,5 – 2,5", "de-en", "1.5 – 2.5"),
        ("€19.99", "en-de", f"19,99{W}€"),
        ("−1.234,56 €", "de-en", "−€1,234.56"),
        ("$1,500", "en-de", f"1.500{W}$"),
        ("1,234.5 kg", "en-fr", f"1{N}234,5 kg"),
        ("1 234,5 °C", "fr-en", "1,234.5 °C"),
        ("3 %", "de-en", "3%"),
        ("EUR 1.234,50", "de-en", "EUR 1,234.50"),
        ("-CHF 1,234.50", "en-de", "-CHF 1.234,50"),
        ("1.234,50 EUR", "de-en", "1,234.50 EUR"),
        ("3.5%", "en-de", f"3,5{W}%"),
        ("€ 5", "en-nl", f"€{W}5"),
        ("1.234", "de-es", "1234"),  # Spanish groups from five digits on
        ("12.345", "de-es", "12.345"),
        # not amounts of the source language, or not amounts
        *(
            (same, "de-en", same)
            for same in ("12:30", "2024-05-12", "12.05.2024", "1.2.3", "2024", "0800 330 1000")
        ),
        ("3,5", "en-de", "3,5"),
        ("19,99 €", "de-xx", "19,99 €"),
    ],
)
def test_amounts_get_the_form_of_the_target_language_and_other_numbers_stay(number, pair, wanted):
    assert localise(number, *pair.split("-")) == wanted


@pytest.mark.parametrize("language", [code for code, rules in LANGUAGES.items() if rules.numerals])
def test_amount_written_in_another_language_and_back_is_the_same(language):
    for amount in ("€1,234,567.89", "-12%", "98,765", "0.5"):
        there = localise(amount, "en", language)
        assert localise(there, language, "en") == amount


def test_numbers_change_only_on_request_and_then_get_placeholders():
    text = MarkedText("Das kostet 19,99 € um 12:30.")
    plain, local = (
        mask(text, MaskRules(protect=True, local=local))
        for local in (None, lambda n: localise(n, "de", "en"))
    )
    assert [(p.target, p.trusted) for p in plain.phrases] == [("19,99 €", True), ("12:30", True)]
    assert [(p.target, p.trusted) for p in local.phrases] == [("€19.99", False), ("12:30", True)]


@pytest.mark.parametrize(
    ("text", "language", "fixed"),
    [
        ("1. Open the file.\n2. Save it.", "en", ["1.", "2."]),
        ("1. Datei öffnen.\n2. Speichern.", "de", ["1.", "2."]),
        ("7. - Save it.", "en", ["7. -"]),
        ("1. Mai ist ein Feiertag.", "de", []),
        ("3. Oktober\n9. November", "de", []),
        ("It costs\n10.50 more.", "en", []),
        ("2.", "en", []),
    ],
)
def test_number_with_a_dot_is_a_list_mark_unless_it_may_be_an_ordinal(text, language, fixed):
    layout = split(text, language)
    assert [layout.sentences[i] for i in sorted(layout.fixed)] == fixed
    assert layout.join(layout.sentences) == text
