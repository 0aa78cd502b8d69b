"""Words that people type first, by language: of one to three words a detector of n-grams knows little."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from engine.text.languages import LANGUAGES

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MAX_WORDS: Final = 4  # of a text in which they count
MAX_CHARACTERS: Final = 64

# codes as py3langid has them
FIRST_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: rules.first_words for language, rules in LANGUAGES.items() if rules.first_words
}


def _languages_by_word() -> dict[str, list[str]]:
    """The languages of each word, by its folded case, in which Greek has one sigma."""
    found: dict[str, list[str]] = {}
    for language, words in FIRST_WORDS.items():
        for word in {word.casefold() for word in words}:
            found.setdefault(word, []).append(language)
    return found


LANGUAGES_BY_WORD: Final[Mapping[str, list[str]]] = _languages_by_word()


def words_of(text: str) -> list[str]:
    """List the words of a text, as they are written; none of one that is too long to be told by them."""
    words = WORD.findall(text.replace("’", "'")) if len(text) <= MAX_CHARACTERS else []
    return words if len(words) <= MAX_WORDS else []


def known_weights(words: Sequence[str]) -> dict[str, float]:
    """Weigh how well each language's first words explain a text of few words.

    words: of `words_of`.

    Returns the square of the share of the words that are among a language's, times the root of their number,
    from 0 to 2: two that are known say more than one, and one of two says little. A language that has none of
    them is left out.
    """
    counts = Counter(language for word in words for language in LANGUAGES_BY_WORD.get(word.casefold(), ()))
    return {language: count**2 / len(words) ** 1.5 for language, count in counts.items()}
