"""Common words of each language: a detector of n-grams does badly on one to three words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from engine.text.languages import LANGUAGES

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MAX_WORDS: Final = 4  # longer texts are left to the detector
MAX_CHARACTERS: Final = 64

# by the codes of py3langid
FIRST_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: rules.first_words for language, rules in LANGUAGES.items() if rules.first_words
}


def _languages_by_word() -> dict[str, list[str]]:
    """Map each word, with its case folded, to its languages. Folding also unites the two sigmas of Greek."""
    languages_of: dict[str, list[str]] = {}
    for language, words in FIRST_WORDS.items():
        for word in {word.casefold() for word in words}:
            languages_of.setdefault(word, []).append(language)
    return languages_of


LANGUAGES_BY_WORD: Final[Mapping[str, list[str]]] = _languages_by_word()


def words_of(text: str) -> list[str]:
    """List the words of a text, or no words if the text has too many characters or words."""
    words = WORD.findall(text.replace("’", "'")) if len(text) <= MAX_CHARACTERS else []
    return words if len(words) <= MAX_WORDS else []


def known_weights(words: Sequence[str]) -> dict[str, float]:
    """Weigh how well each language's first words explain a text of few words.

    words: result of `words_of`.

    Returns the weight of each language that lists at least one of the words: the squared share of its words,
    times the square root of the number of words, from 0 to 2. Two listed words weigh more than one, and one
    of two weighs little.
    """
    counts = Counter(language for word in words for language in LANGUAGES_BY_WORD.get(word.casefold(), ()))
    return {language: count**2 / len(words) ** 1.5 for language, count in counts.items()}
