"""The rules of one language, as its file in this folder fills them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NARROW, WIDE = "\u202f", "\u00a0"  # spaces at which no line is broken
LETTERS: Final = r"[^\W\d_]+"
ENGLISH_CLITIC: Final = r"(?:s|m|d|t|re|ve|ll)\b"  # after an apostrophe, and not part of a name: Tom's
# words made of other names, which are translated: Norwegian, Portuguese, Yiddish, Buddhism
DERIVED_NAMES: Final = ".*(?:ese|ish|[ie]an|ism|ist)s?"


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
    """An abbreviation with dots.

    written: usual form.
    pattern: regular expression of all forms.
    """

    written: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Dates:
    """How a language writes dates.

    months: names of the twelve months.
    pattern: regular expression of a date; "{}" stands for any month.
    form: format of a date from day and month.
    year_form: format of a year behind them.
    first_day: number of the first day of a month.
    """

    months: tuple[str, ...]
    pattern: str
    form: str
    year_form: str = " {}"
    first_day: str = "1"


@dataclass(frozen=True, slots=True)
class CapitalNouns:
    """Signs that tell names from nouns in a language that writes both with capitals.

    pronouns: words with capitals that are no nouns.
    place_prepositions: words before places; a noun after one has an article, a place has none.
    determiners: regular expression of words that stand before nouns and rarely before names.
    adjectives: regular expression of adjectives that are made of names of places.
    inflected: regular expression of words that may be an inflected adjective at the start of a sentence.
    """

    pronouns: frozenset[str]
    place_prepositions: frozenset[str]
    determiners: str
    adjectives: str
    inflected: str


@dataclass(frozen=True, slots=True)
class LanguageRules:
    """All that the text side knows about a language. The defaults suit a language that has no rules.

    numerals: form of amounts; without it amounts stay as they are.
    quotation_marks: marks of quotations; without them a mark stays as it is.
    final_marks: marks at the end of a sentence, by the Latin mark, where they differ from it.
    dotted_ordinals: whether "1." may be an ordinal: "1. Mai".
    first_words: greetings, thanks, buttons and the commonest small words, for language detection.
    small_words: articles and the like; a format of a word does not extend to them.
    conjunction: word for "&" between two names.
    short_words: words of two letters that are no abbreviations when they are in capitals.
    capital_letters: words of one letter that are written as capitals, here in lower case.
    articles: regular expressions of the beginnings of articles, at the start of a sentence.
    hyphenated: words between hyphens in ordinary compounds: state-of-the-art.
    company_words: regular expressions of nouns that stand before the name of a company.
    titles: forms of each title, by its meaning, the usual one first.
    abbreviations: abbreviations by their meaning.
    dates: form of dates; without it dates and abbreviations stay as they are.
    numbered_words: regular expressions of words with a dot that stand before a number: Art. 5.
    word: regular expression of a word that may be a name.
    title_words: words of titles after which a name stands, in texts of any language, without their dots.
    own_title_words: words of titles that are no title in other languages.
    own_particles: particles of names ("van", "de") that are ordinary words of the language; they are part of
        a name only after a title.
    country_articles: articles that stand before countries.
    translated_names: regular expression of names that have a translation.
    not_names: abbreviations with a capital that stand before a number.
    nouns: signs of names in a language that writes nouns with capitals; None for other languages.
    """

    numerals: Numerals | None = None
    quotation_marks: QuotationMarks | None = None
    final_marks: Mapping[str, str] = field(default_factory=dict)
    dotted_ordinals: bool = False
    first_words: frozenset[str] = frozenset()
    small_words: frozenset[str] = frozenset()
    conjunction: str = ""
    short_words: frozenset[str] = frozenset()
    capital_letters: frozenset[str] = frozenset()
    articles: tuple[str, ...] = ()
    hyphenated: tuple[str, ...] = ()
    company_words: tuple[str, ...] = ()
    titles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    abbreviations: Mapping[str, Abbreviation] = field(default_factory=dict)
    dates: Dates | None = None
    numbered_words: tuple[str, ...] = ()
    word: str = rf"{LETTERS}(?:-{LETTERS}|[’'](?!{ENGLISH_CLITIC}){LETTERS})*"
    title_words: frozenset[str] = frozenset()
    own_title_words: frozenset[str] = frozenset()
    own_particles: frozenset[str] = frozenset({"und", "y"})
    country_articles: frozenset[str] = frozenset()
    translated_names: str = DERIVED_NAMES
    not_names: frozenset[str] = frozenset()
    nouns: CapitalNouns | None = None


def words(*texts: str) -> frozenset[str]:
    """Return the words of texts, which are parted by spaces."""
    return frozenset(word for text in texts for word in text.split())


def last_words(titles: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return the last word of each form of titles, without its dot: "Herr", "Dr"."""
    return frozenset(form.split()[-1].rstrip(".") for forms in titles for form in forms)
