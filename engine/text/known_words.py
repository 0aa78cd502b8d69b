"""`known_words.safetensors` of a bundle: words that the training data translates.

`training.words.known_words` writes the file. Models garble other words, so these are kept
(`engine.text.unknown_words`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final
from zlib import crc32

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from engine.bundle.bundle import Bundle
from engine.errors import BundleError
from engine.text.given_names import GIVEN_NAMES
from engine.text.languages import rules_of

KNOWN_WORDS_FILE: Final = "known_words.safetensors"
TENSORS: Final = ("stems", "capitals", "before_names", "acronyms")
REMEMBERED_WORDS: Final = 4_096
MIN_STEM_LETTERS: Final = 3
MIN_PART_LETTERS: Final = 4  # of each word in a compound
MIN_FIRST_LETTERS: Final = 3  # of its first word, if MIN_AFTER_FIRST letters follow
MIN_AFTER_FIRST: Final = 5
MIN_LAST_STEM: Final = 5  # letters in the stem of the last part of an unlearnt noun
UMLAUTS: Final = str.maketrans("äöü", "aou")  # Anträge, Antrag
MAX_COMPOUND_LETTERS: Final = 40
MIN_COMPOUND_LETTERS: Final = 12  # shorter ones may be surnames: Hinterhuber


@dataclass(frozen=True, slots=True)
class KnownWords:
    """Words of one language, as CRC-32 of their UTF-8 in ascending order; a false match is rare.

    language: code of the language.
    stems: stems of words in small letters. In a language that writes nouns with capitals, nouns too.
    capitals: words with a capital within a sentence that have a translation: Monday, French. In a language
        that writes nouns with capitals, only words in capitals.
    before_names: words that have one before a name: President, Lake, Yesterday.
    acronyms: words in capitals that stay, although another word has the same letters: WHO, IT.
    knows: function that returns whether training translated a word, or each word in a German compound, with
        a cache.
    """

    language: str
    stems: array[int]
    capitals: array[int]
    before_names: array[int]
    acronyms: array[int]
    knows: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "knows", lru_cache(REMEMBERED_WORDS)(self._knows))

    def _knows(self, word: str) -> bool:
        nouns = rules_of(self.language).nouns
        return self.has_stem_of(word) or (
            nouns is not None and is_compound(word, self.language, self._has_stem)
        )

    def may_be_place(self, word: str) -> bool:
        """Return whether a German word may be the name of a place that training lacks: Hoffenheim."""
        return ends_as_place(word, self.language) and not self.has_stem_of(word)

    def has_stem_of(self, word: str) -> bool:
        """Return whether training has a word itself, not only the words in a compound."""
        return self._has_stem(stem(word, self.language))

    def is_long_compound(self, word: str) -> bool:
        """Return whether a German word is long and consists of words that training has."""
        return len(word) >= MIN_COMPOUND_LETTERS and is_compound(word, self.language, self._has_stem)

    def ends_with_known(self, word: str) -> bool:
        """Return whether the last part of a word is a word that training has: Gummifisch."""
        begins = range(MIN_FIRST_LETTERS, min(len(word), MAX_COMPOUND_LETTERS))
        lasts = (stem(word[begin:], self.language) for begin in begins)
        return any(len(last) >= MIN_LAST_STEM and self._has_stem(last) for last in lasts)

    def translates(self, word: str) -> bool:
        """Return whether training translated a word with a capital within a sentence."""
        return _has(self.capitals, word)

    def precedes_names(self, word: str) -> bool:
        """Return whether a word with a capital is translated before a name, as a title is."""
        return _has(self.before_names, word)

    def knows_in_capitals(self, word: str) -> bool:
        """Return whether training translated the small letters of a word in capitals: SCHLIESSEN."""
        small = word.lower()
        sharp = rules_of(self.language).capital_sharp_s and "ss" in small
        return self.knows(small) or (sharp and self.knows(small.replace("ss", "ß")))

    def keeps(self, word: str, before: str) -> bool:
        """Return whether a word in capitals is an acronym or a surname that stays in translations.

        word: word in capitals, within a sentence in small letters.
        before: word before it. After a given name the word may be a surname; after an article an acronym may
            have the letters of another word.
        """
        rules, small = rules_of(self.language), word.lower()
        if self.translates(word) or len(word) == 1:
            return False
        if before in GIVEN_NAMES and (word.capitalize() in rules.surnames or not self.has_stem_of(word)):
            return True
        ordinary = self.knows_in_capitals(word)
        if len(word) == 2:
            ordinary = small in rules.short_words | rules.small_words | rules.empty_words
        article = not before.isupper() and before.lower() in rules.small_words
        return not ordinary or (article and _has(self.acronyms, word))

    def _has_stem(self, word: str) -> bool:
        return _has(self.stems, word)

    def dump(self) -> bytes:
        """Return the content of the file of a bundle."""
        return save({name: np.array(getattr(self, name), np.uint32) for name in TENSORS})


def hashes(words: Iterable[str]) -> array[int]:
    """Return the CRC-32 of each word, in ascending order."""
    return array("I", sorted({crc32(word.encode()) for word in words}))


def stem(word: str, language: str) -> str:
    """Return a word in small letters, without umlauts and endings, but with MIN_STEM_LETTERS letters."""
    small = word.lower().translate(UMLAUTS)
    ending = _endings(language).search(small, MIN_STEM_LETTERS)
    return small[: ending.start()] if ending else small


def ends_as_place(word: str, language: str) -> bool:
    """Return whether a word of a language that writes nouns with capitals ends like the name of a place."""
    nouns = rules_of(language).nouns
    return nouns is not None and re.fullmatch(nouns.place_endings, word.lower()) is not None


def is_compound(word: str, language: str, has_stem: Callable[[str], bool]) -> bool:
    """Return whether a word consists of at least two words with known stems.

    word: word; a longer one than MAX_COMPOUND_LETTERS is no compound.
    language: code of its language.
    has_stem: returns whether a stem is known.
    """
    if len(word) > MAX_COMPOUND_LETTERS:
        return False
    small = word.lower()
    borders = [0]  # between the words of the compound
    for end in range(MIN_FIRST_LETTERS, len(small) + 1):
        if end < MIN_PART_LETTERS and len(small) - end < MIN_AFTER_FIRST:
            continue
        begins = (b for b in borders if end - b >= (MIN_PART_LETTERS if b else MIN_FIRST_LETTERS))
        if any(has_stem(stem(small[begin:end], language)) for begin in begins):
            borders.append(end)
    return len(borders) > 2 and borders[-1] == len(small)


@cache
def _endings(language: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{rules_of(language).endings or '(?!)'})\Z")


def _has(ordered: array[int], word: str) -> bool:
    value = crc32(word.encode())
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value


def read_known_words(bundle: Bundle) -> KnownWords | None:
    """Read the known words of a bundle; None if it has none. Raises BundleError if the file is damaged."""
    if KNOWN_WORDS_FILE not in bundle.files():
        return None
    path = bundle.file(KNOWN_WORDS_FILE)
    try:
        tensors = load(path.read_bytes())
        parts = [tensors[name] for name in TENSORS]
    except (SafetensorError, KeyError, ValueError) as error:
        raise BundleError(
            f"{path} is damaged ({error}); run: convoy words {bundle.path} --pairs FILE"
        ) from None
    if any(part.ndim != 1 or part.dtype != np.uint32 or np.any(part[:-1] >= part[1:]) for part in parts):
        raise BundleError(
            f"{path}: must have ascending uint32 rows; run: convoy words {bundle.path} --pairs FILE"
        )
    return KnownWords(bundle.source, *(array("I", part.tobytes()) for part in parts))
