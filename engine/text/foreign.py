"""Quotations in another language than their text, such as titles of songs, which stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from engine.text.first_words import WORD
from engine.text.languages import LANGUAGES, rules_of

QUOTATION: Final = re.compile(
    r"[\"„“«](?: |\u00a0|\u202f)?([^\W\d_][^\"„“”«»\n]{3,80}?)[ \u00a0\u202f]?[\"“”»]"
)
LANGUAGES_OF_TITLES: Final = ("de", "en", "es", "fr", "it")
FEW_WORDS: Final = 4  # one known word of so many is enough


def find_foreign_quotations(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Find begin and end of each quotation of two or more words that are in another language.

    text: text with quotation marks.
    language: code of its language.
    """
    own = _common_words(language)
    for match in QUOTATION.finditer(text) if own else ():
        words = {word.casefold() for word in WORD.findall(match[1])}
        if len(words) < 2 or words & own:
            continue
        known = max(len(words & _common_words(other)) for other in LANGUAGES_OF_TITLES)
        if known >= (1 if len(words) <= FEW_WORDS else 2):
            yield match.span(1)


@cache
def _common_words(language: str) -> frozenset[str]:
    """Return the common small words of a language, with their case folded."""
    rules = rules_of(language) if language in LANGUAGES else None
    words = rules.first_words | rules.small_words | rules.empty_words if rules else frozenset[str]()
    return frozenset(word.casefold() for word in words)
