"""What another language has a fixed form for: titles before names, dates, abbreviations.

A model hardly knows what "Frau" means before a placeholder, what "9 novembre" means between two, and what the
dots of "z. B." end. So these stay together, and the answer has them as its language writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from engine.text.codes import primary

# how each language writes a title, the usual form first
TITLES_OF: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "de": {
        "mr": ("Herr", "Herrn"),
        "ms": ("Frau",),
        "mrs": ("Frau",),
        "miss": ("Fräulein",),
        "dr": ("Dr.", "Herr Dr.", "Herrn Dr.", "Frau Dr.", "Dr"),
        "prof": ("Prof.", "Professor", "Herr Prof.", "Frau Prof.", "Herr Professor", "Frau Professorin"),
        "dear mr": ("Sehr geehrter Herr", "Lieber Herr", "Hallo Herr"),
        "dear ms": ("Sehr geehrte Frau", "Liebe Frau", "Hallo Frau"),
        "dear mrs": ("Sehr geehrte Frau",),
        "dear dr": ("Sehr geehrte/r Dr.", "Sehr geehrter Herr Dr.", "Sehr geehrte Frau Dr."),
        "dear prof": ("Sehr geehrte/r Prof.", "Sehr geehrter Herr Prof.", "Sehr geehrte Frau Prof."),
    },
    "en": {
        "mr": ("Mr.", "Mr"),
        "ms": ("Ms.", "Ms"),
        "mrs": ("Mrs.", "Mrs"),
        "miss": ("Miss",),
        "dr": ("Dr.", "Dr"),
        "prof": ("Prof.", "Professor"),
        "dear mr": ("Dear Mr.", "Dear Mr"),
        "dear ms": ("Dear Ms.", "Dear Ms"),
        "dear mrs": ("Dear Mrs.", "Dear Mrs"),
        "dear dr": ("Dear Dr.", "Dear Dr"),
        "dear prof": ("Dear Prof.", "Dear Professor"),
    },
    "fr": {
        "mr": ("M.", "Monsieur", "M"),
        "ms": ("Mme", "Madame"),
        "mrs": ("Mme",),
        "miss": ("Mlle", "Mademoiselle"),
        "dr": ("Dr", "Docteur", "Dr."),
        "prof": ("Pr", "Professeur", "Prof."),
        "dear mr": ("Cher M.", "Cher Monsieur"),
        "dear ms": ("Chère Mme", "Chère Madame"),
        "dear mrs": ("Chère Mme",),
        "dear dr": ("Cher Dr", "Cher Docteur", "Cher Dr."),
        "dear prof": ("Cher Pr", "Cher Professeur"),
    },
}
LONGEST_TITLE: Final = 32  # characters, with a greeting
ABBREVIATIONS_OF: Final[dict[str, tuple[tuple[str, str], ...]]] = {  # as it is written, and a pattern
    "de": (("z. B.", r"z\. ?B\."), ("d. h.", r"d\. ?h\.")),
    "en": (("e.g.", r"e\.g\."), ("i.e.", r"i\.e\.")),
    "fr": (("p. ex.", r"p\. ?ex\."), ("c.-à-d.", r"c\.-à-d\.")),
}
MONTHS_OF: Final[dict[str, tuple[str, ...]]] = {
    "de": ("Januar", "Februar", "März", "April", "Mai", "Juni")
    + ("Juli", "August", "September", "Oktober", "November", "Dezember"),
    "en": ("January", "February", "March", "April", "May", "June")
    + ("July", "August", "September", "October", "November", "December"),
    "fr": ("janvier", "février", "mars", "avril", "mai", "juin")
    + ("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
}
DIGITS: Final = re.compile(r"\d+")
YEAR_DIGITS: Final = 4
YEAR: Final = r"\d{4}(?!\w)"
ENGLISH_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
DATES_OF: Final[dict[str, str]] = {  # {} are the months; May is one beside its day, else it may be a verb
    "de": rf"(?<!\w)\d{{1,2}}\. ?(?:{{}}) {YEAR}",
    "en": rf"(?<!\w)(?:(?:{{}}) {ENGLISH_DAY},? {YEAR}|{ENGLISH_DAY} (?:{{}}),? {YEAR}"
    rf"|May {ENGLISH_DAY}(?!\w)|{ENGLISH_DAY} May(?!\w))",
    "fr": rf"(?<!\w)(?:\d{{1,2}}|1er) (?:{{}}) {YEAR}",
}
WRITTEN_DATES: Final[dict[str, str]] = {"de": "{}. {} {}", "en": "{} {} {}", "fr": "{} {} {}"}
REMEMBERED_PAIRS: Final = 256


def title_before(text: str, name: int, languages: tuple[str, str]) -> tuple[int, str]:
    """Find the title before a name.

    text: a text.
    name: where the name begins.
    languages: codes of the languages of the text and of the answer.

    Returns where the title begins, and the title as the other language writes it, with a space after it;
    `name` and "" where there is none that both languages have.
    """
    titles = _titles(*languages)
    match = titles[0].search(text, max(0, name - LONGEST_TITLE), name) if titles else None
    return (match.start(), titles[1][match[1]] + " ") if match and titles else (name, "")


def find_counterparts(text: str, languages: tuple[str, str]) -> Iterator[tuple[int, int, str]]:
    """Find dates and abbreviations: begin and end of each in order, and what the other language writes.

    text: a text.
    languages: codes of the languages of the text and of the answer.
    """
    pattern = _pattern(*languages)
    for match in pattern.finditer(text) if pattern else ():
        yield *match.span(), _counterpart(match[0], *map(primary, languages))


def _counterpart(written: str, there: str, here: str) -> str:
    numbers = DIGITS.findall(written)
    if not numbers:
        known = enumerate(pattern for _, pattern in ABBREVIATIONS_OF[there])
        return ABBREVIATIONS_OF[here][next(i for i, p in known if re.fullmatch(p, written))][0]
    year = next((number for number in numbers if len(number) == YEAR_DIGITS), "")
    day = next(number for number in numbers if number != year)
    month = next(i for i, name in enumerate(MONTHS_OF[there]) if name in written)
    day = "1er" if here == "fr" and day == "1" else day
    return WRITTEN_DATES[here].format(day, MONTHS_OF[here][month], year).rstrip()


@lru_cache(REMEMBERED_PAIRS)
def _pattern(language: str, into: str) -> re.Pattern[str] | None:
    there, here = primary(language), primary(into)
    if there == here or there not in DATES_OF or here not in DATES_OF:
        return None
    abbreviations = "|".join(form for _, form in ABBREVIATIONS_OF[there])
    dates = DATES_OF[there].replace("{}", "|".join(MONTHS_OF[there]))
    return re.compile(rf"{dates}|(?<!\w)(?:{abbreviations})(?!\w)")


@lru_cache(REMEMBERED_PAIRS)
def _titles(language: str, into: str) -> tuple[re.Pattern[str], dict[str, str]] | None:
    """A pattern of the titles of one language at the end of a text, and each in another language."""
    there, here = (TITLES_OF.get(primary(code)) for code in (language, into))
    if there is None or here is None:
        return None
    written: dict[str, str] = {}
    for title, forms in there.items():
        for form in forms:
            written.setdefault(form, here[title][0])
    every = "|".join(map(re.escape, sorted(written, key=len, reverse=True)))
    return re.compile(rf"(?<!\w)({every}) \Z"), written
