"""Types for the rules of one language; each language has a file with its own rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

NARROW, WIDE = "\u202f", "\u00a0"  # spaces at which no line is broken
LETTERS: Final = r"[^\W\d_]+"
# after an abbreviation: No. 7083-441/B  p. 88 f.
NUMBER: Final = (
    r"[ \u00a0\u202f]?(?=[A-Z]{0,5}_?[/-]?\d)[A-Z\d](?:[\w.,/–-]{0,40}[^\W_])?+"
    r"(?: (?:ff?\.|et suiv\.)(?! [A-ZÄÖÜ]))?"
)
TIME_ZONE: Final = r"(?:UTC|GMT|BST|CES?T|[ECMP][SD]?T|MES?Z)(?!\w)"
ENGLISH_CLITIC: Final = r"(?:s|m|d|t|re|ve|ll)\b"  # after an apostrophe, and not part of a name: Tom's
# words made of other names, which are translated: Norwegian, Portuguese, Yiddish, Buddhism
# weekdays too: the vocabulary may split Thursday
DERIVED_NAMES: Final = ".*(?:ese|ish|[ie]an|ism|ist|[nseri]day)s?"


@dataclass(frozen=True, slots=True)
class Numerals:
    """How a language writes amounts (Unicode's CLDR).

    decimal: mark before the fraction.
    group: mark between groups of three digits.
    min_grouped_digits: digits from which a whole number is grouped.
    currency: place of the currency sign: "before", "before with space" or "after".
    percent: characters before the per cent sign.
    """

    decimal: str
    group: str
    min_grouped_digits: int = 4
    currency: str = "after"
    percent: str = WIDE


ENGLISH_NUMERALS: Final = Numerals(".", ",", currency="before", percent="")


class QuotationMarks(NamedTuple):
    """Marks around a quotation, and around a quotation within a quotation (Unicode's CLDR)."""

    opening: str
    closing: str
    inner_opening: str
    inner_closing: str


ENGLISH_QUOTATION: Final = QuotationMarks("“", "”", "‘", "’")


class Abbreviation(NamedTuple):
    """An abbreviation that has a counterpart in other languages.

    written: usual form; before a number, without the number.
    pattern: regular expression of all forms, with the number.
    """

    written: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Dates:
    """How a language writes dates.

    months: names of the twelve months.
    pattern: regular expression of a date; "{}" stands for any month.
    form: format of day and month.
    year_form: format of the year, which follows them.
    first_day: written number of the first day of a month.
    short_months: patterns of the abbreviations of the twelve months, without the dot, or none.
    day: pattern of a day in a list or range of days of one month.
    short_days: the seven short weekdays from Monday on, without the dot, or none.
    day_dot: mark after a short weekday as it is usually written.
    until: word between the ends of a range.
    since: word before a range with `until`: von 8 bis 20 Uhr.
    """

    months: tuple[str, ...]
    pattern: str
    form: str
    year_form: str = " {}"
    first_day: str = "1"
    short_months: tuple[str, ...] = ()
    day: str = r"\d{1,2}"
    short_days: tuple[str, ...] = ()
    day_dot: str = ""
    until: str = "–"
    since: str = ""

    def month_of(self, written: str) -> int:
        """Return the month of a date, from 0 on.

        written: date with the name of a month or its abbreviation.
        """
        months = zip(self.months, self.short_months or self.months, strict=True)
        return next(i for i, (name, short) in enumerate(months) if re.search(f"{name}|{short}", written))


class ClockTimes(NamedTuple):
    """Half hours and quarters of hours in words, which models take for those of another hour.

    hours: words of the hours from one to twelve, in small letters.
    at: word before a time with a space after it: "at ".
    forms: article, form with "{}" for the hour, and 1 if the form names the next hour ("halb acht" is 7:30),
        by the minutes.
    others: minutes, pattern and 1 or 0 as in `forms` of each other form, which is only read: "eight-thirty".
    signs: characters in small letters of which every form has some.
    digits: pattern of a time in digits, with groups hour and minutes, with groups p of p.m. if hours are
        those of half days, and with a group at of the preposition if models lose it; "": none.
    in_digits: formats of a full hour and of an hour with minutes, by the clock of 24 hours.
    first, last: patterns of the ends of a range of times in digits; "": none.
    """

    hours: tuple[str, ...]
    at: str
    forms: Mapping[int, tuple[str, str, int]]
    others: tuple[tuple[int, str, int], ...]
    signs: tuple[str, ...]
    digits: str = ""
    in_digits: tuple[str, str] = ("", "")
    first: str = ""
    last: str = ""


class Ordinals(NamedTuple):
    """Ordinal numbers in digits.

    pattern: regular expression of an ordinal number before a noun.
    forms: pattern of a number and format of its ordinal; the first pattern counts.
    """

    pattern: str
    forms: tuple[tuple[str, str], ...]

    def write(self, number: str) -> str:
        """Return the ordinal of a number in digits."""
        return next(form.format(number) for pattern, form in self.forms if re.fullmatch(pattern, number))


class NumberWords(NamedTuple):
    """Numbers in words; patterns are in small letters.

    text: each part of a number before its value, as "zwei 2 drei 3".
    joiner: pattern of words between two parts.
    ending: pattern of endings: of ordinals, of plurals.
    half, quarter: patterns of the beginnings of words for one half and for one quarter.
    clock: pattern of words for a time of the day.
    signs: ends of words for numbers from three to ninety that are nothing else ("acht" may be attention), and
        words of which larger numbers are made.
    ordinals: words of `text` that end ordinal numbers: first.
    idioms: pattern of words and phrases of `text` that are no numbers, or may be none: unter vier Augen.
    half_before: whether a half is named by the next hour: halb acht.
    units_first: whether units come before tens, in one word: dreiundzwanzig.
    long_tens: tens before numbers up to nineteen: soixante-quinze. Ten comes before units: dix-sept.
    """

    text: str
    joiner: str
    ending: str
    half: str
    quarter: str
    clock: str
    signs: tuple[str, ...]
    ordinals: tuple[str, ...]
    idioms: str = ""
    half_before: bool = False
    units_first: bool = False
    long_tens: tuple[int, ...] = ()

    @property
    def parts(self) -> Mapping[str, int]:
        """Value of each part."""
        return _number_parts(self.text)


@cache
def _number_parts(text: str) -> Mapping[str, int]:
    found = text.split()
    return dict(zip(found[::2], map(int, found[1::2]), strict=True))


@dataclass(frozen=True, slots=True)
class CapitalNouns:
    """Differences of names and nouns in a language that writes both with capitals.

    pronouns: pronouns with capitals.
    place_prepositions: prepositions before places. A noun after them has an article, a place has none.
    place_endings: pattern of names of places.
    streets: pattern of the second word in names of streets: Lindenauer Straße.
    waters: pattern of rivers and lakes, which have an article.
    name_prepositions: prepositions before names; most other nouns have an article there.
    determiners: pattern of words before nouns, rarely before names.
    adjectives: pattern of adjectives from names of places.
    endings: pattern of words that are no names: of abstract nouns, adjectives and verbs.
    inflected: pattern of words at the start of a sentence that may be inflected adjectives.
    """

    pronouns: frozenset[str]
    place_prepositions: frozenset[str]
    place_endings: str
    streets: str
    waters: str
    name_prepositions: frozenset[str]
    determiners: str
    adjectives: str
    endings: str
    inflected: str


@dataclass(frozen=True, slots=True)
class LanguageRules:
    """Rules of a language. The defaults suit a language without rules; patterns are regular expressions.

    numerals: form of amounts; None leaves amounts unchanged.
    quotation_marks: marks of quotations; None leaves marks unchanged.
    final_marks: mark at the end of a sentence by the Latin mark, for marks that differ from it.
    dotted_ordinals: whether "1." may be an ordinal: "1. Mai".
    first_words: greetings, thanks, buttons and the commonest small words, for language detection.
    small_words: articles and other words that a format of the next word does not extend to.
    empty_words: articles, auxiliaries and particles, which often have no counterpart in a translation.
    conjunction: word for "&".
    short_words: words of two letters; other words of two capitals are abbreviations.
    capital_letters: words of one letter that are always capitals, here in lower case.
    capital_sharp_s: whether "SS" in capitals may be "ß".
    articles: patterns of the beginnings of articles at the start of a sentence.
    hyphenated: words between hyphens in ordinary compounds: state-of-the-art.
    company_words: patterns of nouns before the name of a company.
    titles: forms of each title by its meaning, the usual form first.
    abbreviations: abbreviation by its meaning.
    long_forms: words that a model reads in the place of each abbreviation.
    dates: form of dates; None leaves dates and abbreviations unchanged.
    clock_times: half hours and quarters in words; None: models translate them.
    ordinals: ordinal numbers in digits; None leaves them unchanged.
    number_words: numbers in words; None: the numbers of an answer are not compared with words.
    numbered_words: patterns of further abbreviations before a number: Art. 5.
    word: pattern of a word.
    endings: pattern of the endings of words, without which they are stems.
    title_words: last words of titles before a name, without dots; they count in texts of all languages.
    own_title_words: the same, for words that count only in texts of this language.
    name_particles: small words within names of places and organisations: Gare de Lyon.
    own_particles: particles of names ("van", "de") that are ordinary words of the language. They belong to
        a name only after a title.
    country_articles: articles before countries.
    translated_names: pattern of words with capitals that are translated, such as names of countries.
    not_names: abbreviations with a capital before a number.
    nouns: rules for a language that writes nouns with capitals, otherwise None.
    given_names: common given names that may be other words, beside those of `engine.text.given_names`.
    surnames: common surnames that may be other words; a language that writes nouns with capitals needs them
        to find a name in a sentence.
    before_labels: pattern of words before a key, command or other label in capitals: press RESET.
    after_labels: pattern of words after one: RESET button.
    stressed_words: words that may be in capitals there without being a label: press ALL buttons.
    place_words: words before names of places and clubs that are other words too: Bad Homburg, SC Adler.
    """

    numerals: Numerals | None = None
    quotation_marks: QuotationMarks | None = None
    final_marks: Mapping[str, str] = field(default_factory=dict)
    dotted_ordinals: bool = False
    first_words: frozenset[str] = frozenset()
    small_words: frozenset[str] = frozenset()
    empty_words: frozenset[str] = frozenset()
    conjunction: str = ""
    short_words: frozenset[str] = frozenset()
    capital_letters: frozenset[str] = frozenset()
    capital_sharp_s: bool = False
    articles: tuple[str, ...] = ()
    hyphenated: tuple[str, ...] = ()
    company_words: tuple[str, ...] = ()
    titles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    abbreviations: Mapping[str, Abbreviation] = field(default_factory=dict)
    long_forms: Mapping[str, str] = field(default_factory=dict)
    dates: Dates | None = None
    clock_times: ClockTimes | None = None
    ordinals: Ordinals | None = None
    number_words: NumberWords | None = None
    numbered_words: tuple[str, ...] = ()
    word: str = rf"{LETTERS}(?:-{LETTERS}|[’'](?!{ENGLISH_CLITIC}){LETTERS})*"
    endings: str = ""
    title_words: frozenset[str] = frozenset()
    own_title_words: frozenset[str] = frozenset()
    name_particles: frozenset[str] = frozenset()
    own_particles: frozenset[str] = frozenset({"und", "y"})
    country_articles: frozenset[str] = frozenset()
    translated_names: str = DERIVED_NAMES
    not_names: frozenset[str] = frozenset()
    nouns: CapitalNouns | None = None
    given_names: frozenset[str] = frozenset()
    surnames: frozenset[str] = frozenset()
    before_labels: str = "(?!)"
    after_labels: str = "(?!)"
    stressed_words: frozenset[str] = frozenset()
    place_words: frozenset[str] = frozenset()


def words(*texts: str) -> frozenset[str]:
    """Return the words of texts, which are parted by spaces."""
    return frozenset(word for text in texts for word in text.split())


def last_words(titles: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return the last word of each form of titles, without its dot: "Herr", "Dr"."""
    return frozenset(form.split()[-1].rstrip(".") for forms in titles for form in forms)
