"""Numbers in digits and in words: which numbers of an answer its source lacks."""

import pytest

from engine.text.numbers import foreign_numbers, foreign_words

SAME = (
    ("de", "Um halb acht.", "At 7:30."),
    ("de", "Um halb acht abends.", "At 19:30."),
    ("de", "Er ist siebenundzwanzig.", "He is 27."),
    ("de", "Im Jahr neunzehnhundertachtzig.", "In 1980."),
    ("de", "Dreitausendfünfhundert Euro.", "€3,500."),
    ("de", "Es sind zweieinhalb Stunden.", "It takes 2.5 hours."),
    ("de", "In den achtziger Jahren.", "In the 80s."),
    ("de", "Im zwanzigsten Jahrhundert.", "In the 20th century."),
    ("de", "Ein Dutzend Eier.", "12 eggs."),
    ("de", "Zwei Komma fünf Prozent.", "2.5 %."),
    ("de", "1.234,56 €", "€1,234.56"),
    ("en", "In nineteen eighty-four.", "1984."),
    ("en", "Two hundred and three thousand people.", "203.000 Menschen."),
    ("en", "It's a quarter to nine.", "Es ist 8:45."),
    ("en", "He was fifth, I was eighth.", "Er war 5., ich 8."),
    ("en", "At two in the afternoon.", "Um 14 Uhr."),
    ("en", "For a fortnight.", "14 Tage lang."),
    ("en", "Call five five five.", "Ruf 555 an."),
    ("fr", "Quatre-vingt-dix-sept personnes.", "97 people."),
    ("fr", "Soixante et onze mille deux cents.", "71,200."),
    ("fr", "Le vingt et unième siècle.", "The 21st century."),
    ("fr", "Huit heures et demie.", "8:30."),
    ("fr", "À midi.", "At 12 o'clock."),
)
OTHER = (
    ("de", "Um halb acht.", "At 2:30.", ["2:30"]),
    ("de", "Sie zahlten viel.", "They paid $500.", ["500"]),
    ("de", "Er ist siebenundzwanzig.", "He is 72.", ["72"]),
    ("de", "Das kostet 54321 Euro.", "It costs 54345 euros.", ["54345"]),
    ("en", "Two of them came.", "3 von ihnen kamen.", ["3"]),
    ("fr", "Quatre-vingt-dix-sept personnes.", "87 people.", ["87"]),
    ("fr", "Deux facteurs.", "-100 factors, 2", ["100"]),
)


@pytest.mark.parametrize(("language", "source", "answer"), SAME)
def test_number_that_the_source_has_in_words_is_not_foreign(language, source, answer):
    assert foreign_numbers(answer, source, language) == []


@pytest.mark.parametrize(("language", "source", "answer", "foreign"), OTHER)
def test_number_that_the_source_lacks_is_foreign(language, source, answer, foreign):
    assert foreign_numbers(answer, source, language) == foreign


def test_digits_are_not_compared_with_a_language_without_number_words():
    assert foreign_numbers("At 2:30.", "Klo pół do ósmej.", "pl") == []


def test_number_in_words_is_compared_with_words_and_digits():
    assert foreign_words("Come at eight-thirty.", "Kommen Sie um halb acht.", ("en", "de")) == []
    assert foreign_words("Come at six.", "Kommen Sie um halb acht.", ("en", "de")) == [6]
    assert foreign_words("soixante-dix jours (60)", "sixty (60) days", ("fr", "en")) == [70]
    assert foreign_words("One moment, a second.", "Moment mal.", ("en", "de")) == []
