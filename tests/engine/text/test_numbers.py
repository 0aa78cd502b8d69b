"""Numbers in digits and in words: which numbers of an answer its source lacks."""

import pytest

from engine.text.numbers import (
    find_numbers,
    foreign_magnitudes,
    foreign_numbers,
    foreign_words,
    names_number,
)

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
    assert foreign_numbers(answer, source, ("de" if language == "en" else "en", language)) == []


@pytest.mark.parametrize(("language", "source", "answer", "foreign"), OTHER)
def test_number_that_the_source_lacks_is_foreign(language, source, answer, foreign):
    assert foreign_numbers(answer, source, ("de" if language == "en" else "en", language)) == foreign


def test_digits_are_not_compared_with_a_language_without_number_words():
    assert foreign_numbers("At 2:30.", "Klo pół do ósmej.", ("en", "pl")) == []


def test_number_in_words_is_compared_with_words_and_digits():
    assert foreign_words("Come at eight-thirty.", "Kommen Sie um halb acht.", ("en", "de")) == []
    assert foreign_words("Come at six.", "Kommen Sie um halb acht.", ("en", "de")) == [6]
    assert foreign_words("soixante-dix jours (60)", "sixty (60) days", ("fr", "en")) == [70]
    assert foreign_words("One moment, a second.", "Moment mal.", ("en", "de")) == []


NAMED_OTHERWISE = (
    (
        "de",
        "en",
        "Das Wort siebenjährig, der Sechsuhrzug, ein Milliardenunternehmen.",
        "Seven, six, a billion.",
    ),
    ("de", "en", "27 Millionen Morgen Wald.", "Twenty-seven million acres."),
    ("de", "en", "5 Mio. Leute.", "Five million people."),
    ("de", "en", "Ich habe sechs Bücher.", "I have half a dozen books."),
    ("de", "en", "Er kam nach anderthalb Stunden um halb acht.", "He came at seven-thirty."),
    ("en", "de", "She has 3,500 books.", "Sie hat dreitausendfünfhundert Bücher."),
    ("en", "de", "Call me at 6:30.", "Ruf mich um halb sieben an."),
    ("en", "de", "Half past six.", "Um halb sieben."),
    ("en", "de", "In private; be careful, oh!", "Unter vier Augen; gib acht, ach!"),
    ("en", "de", "In the 1990s.", "In den neunziger Jahren."),
    ("en", "fr", "At 2:30.", "À quatorze heures trente."),
    (
        "en",
        "fr",
        "This afternoon, about 80 cents and 10 percent.",
        "Cet après-midi, 80 cents, dix pour cent.",
    ),
    ("en", "fr", "In a few days, all dressed up.", "Dans deux ou trois jours, sur leur trente et un."),
    (
        "fr",
        "en",
        "Au XIXe siècle, le vingt et unième jour.",
        "In the nineteenth century, the twenty-first day.",
    ),
    ("fr", "en", "Une douzaine, une couple, une vingtaine.", "A dozen, a couple, twenty or so."),
)
OTHER_WORDS = (
    ("de", "en", "Vor 5000 Jahren.", "Third 5000 years ago.", [3]),
    ("de", "en", "Es ist einfach so.", "It is nine.", [9]),
    ("de", "en", "Mittag ist um eins.", "It is at five.", [5]),
    ("fr", "en", "Trente-cinq avocats.", "Thirty-four lawyers.", [34]),
)


@pytest.mark.parametrize(("source", "target", "text", "answer"), NAMED_OTHERWISE)
def test_number_that_another_language_names_in_its_own_way_is_not_foreign(source, target, text, answer):
    assert foreign_words(answer, text, (target, source)) == []
    assert foreign_numbers(answer, text, (target, source)) == []


@pytest.mark.parametrize(("source", "target", "text", "answer", "foreign"), OTHER_WORDS)
def test_number_in_words_that_the_source_lacks_is_foreign(source, target, text, answer, foreign):
    assert foreign_words(answer, text, (target, source)) == foreign


def test_hours_of_work_are_not_times_of_day():
    assert not names_number("He worked for nine hours every day.", 7, "en")


def test_minutes_before_and_after_half_hours_name_no_other_number():
    assert not names_number("Sie ist fünf nach halb drei.", 25, "de")
    assert names_number("Sie ist fünfundzwanzig.", 25, "de")


def test_year_in_digits_is_named_by_its_decade():
    assert foreign_numbers("In the 1950s.", "Dans les années 50.", ("en", "fr")) == []
    assert foreign_numbers("In the 19th century.", "Au XIXe siècle.", ("en", "fr")) == []
    assert foreign_numbers("In the 1960s.", "Dans les années 50.", ("en", "fr")) == ["1960"]


IN_WORDS = (
    ("de", "Siebenhundertfünfzig Leute, zweiundzwanzig Hunde.", [750, 22]),
    ("de", "Neunzehnhundertachtzig waren es drei.", [1980, 3]),
    ("de", "Vierzig und fünf, der einundzwanzigste, zweieinhalb.", []),
    ("de", "Gib acht, hundert Dank, eine Million.", []),
    ("en", "One hundred and twenty people and seventy-five dogs.", [120, 75]),
    ("en", "Two thousand three hundred and one; twenty and five.", [2301]),
    ("en", "Nineteen eighty-four, the twenty-first, a second, the fort.", []),
    ("fr", "Quatre-vingt-dix-neuf, soixante et onze, vingt et un.", [99, 71, 21]),
    ("fr", "Mille neuf cent quatre-vingt-dix, deux cents.", [1990, 200]),
    ("fr", "Quoi de neuf ? Mille mercis, la vingtaine, le cinquième.", []),
    ("pl", "Siedem osób.", []),
    ("en", "A four-year-old and a three-dimensional chart, the size-ten shoe.", []),
    ("de", "Der ELF-Interpreter und die ELF.", []),
)


@pytest.mark.parametrize(("language", "text", "values"), IN_WORDS)
def test_cardinal_numbers_in_words_are_found_with_their_values(language, text, values):
    found = list(find_numbers(text, language))
    assert [number.value for number in found] == values
    for number in found:
        assert names_number(text[number.begin : number.end], number.value, language)


@pytest.mark.parametrize(
    ("language", "text", "number"),
    [
        ("en", "There are twenty-five.", 22),
        ("en", "He is sixty and eleven.", 71),
        ("en", "It was seven.", 750),
        ("de", "Der Dezember hat dreißig Tage.", 31),
        ("fr", "Ça coûte dix-sept-cinq dollars.", 75),
    ],
)
def test_a_part_of_a_number_does_not_name_it(language, text, number):
    assert not names_number(text, number, language)


def test_million_that_the_source_lacks_is_foreign():
    languages = ("en", "de")
    assert foreign_magnitudes("3 billion", "3 Millibar", languages) == [1_000_000_000]
    for source in ("5 Mio. Leute", "fünf Millionen", "5.000.000", "3 Mrd. €"):
        assert not foreign_magnitudes("5 million", source, languages)
