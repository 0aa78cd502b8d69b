"""Rules of each language: its marks, small words, titles, dates and signs of names.

rules   fields of the rules
de      German
en      English
fr      French
others  marks and first words of further languages
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.text.codes import primary
from engine.text.languages import de, en, fr
from engine.text.languages.others import OTHERS
from engine.text.languages.rules import LanguageRules

LANGUAGES: Final[Mapping[str, LanguageRules]] = {
    **OTHERS,
    "de": de.RULES,
    "en": en.RULES,
    "fr": fr.RULES,
}
UNKNOWN: Final = LanguageRules()  # rules of a language without an entry


def rules_of(language: str) -> LanguageRules:
    """Return the rules of a language by its code ("de", "de-AT"), or `UNKNOWN`."""
    return LANGUAGES.get(primary(language), UNKNOWN)


def of_all(field: Callable[[LanguageRules], Iterable[str]]) -> list[str]:
    """List the words (or patterns) of a field of the rules of all languages."""
    return [word for rules in LANGUAGES.values() for word in field(rules)]
