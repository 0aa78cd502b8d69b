"""English."""

from __future__ import annotations

from typing import Final

from engine.text.languages.rules import (
    ENGLISH_NUMERALS,
    ENGLISH_QUOTATION,
    Abbreviation,
    Dates,
    LanguageRules,
    last_words,
    words,
)

TITLES: Final = {
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
}
DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
YEAR: Final = r"\d{4}(?!\w)"
RULES: Final = LanguageRules(
    numerals=ENGLISH_NUMERALS,
    quotation_marks=ENGLISH_QUOTATION,
    first_words=words(
        "hello hi hey thanks thank you please good morning evening night day bye goodbye yes no how",
        "are what who where when why the a an and i he she it we they is not my your house dog cat",
        "world with of to for welcome help love sorry upload login log out sign in save cancel open",
        "file settings search maybe next back problem time water bread come here later delete share",
        "found forgot password home today tomorrow see all right well done",
    ),
    small_words=words("the a an one of to please"),
    conjunction="and",
    short_words=words("my so no we he me do is"),
    capital_letters=words("i"),
    articles=("Th[eaio]", "Our", "Your", "An"),
    hyphenated=("and", "the", "for", "old", "year", "hour", "out"),
    company_words=("Company",),
    titles=TITLES,
    abbreviations={
        "for example": Abbreviation("e.g.", r"e\.g\."),
        "that is": Abbreviation("i.e.", r"i\.e\."),
    },
    dates=Dates(
        ("January", "February", "March", "April", "May", "June")
        + ("July", "August", "September", "October", "November", "December"),
        # without a year only May is a date: "may" is a verb, but not next to a day
        rf"(?<!\w)(?:(?:{{}}) {DAY},? {YEAR}|{DAY} (?:{{}}),? {YEAR}|May {DAY}(?!\w)|{DAY} May(?!\w))",
        "{} {}",
    ),
    numbered_words=("ext",),
    # "Professor" is an ordinary noun too; "Sir" and "Lady" have no counterpart in other languages
    title_words=last_words(TITLES.values()) - {"Professor"} | {"Sir", "Lady"},
)
