"""Words that a model has not learnt: names, and rare words that it would garble (Luong et al. 2015,
"Addressing the rare word problem").

A word with a capital within an English sentence is a name, unless the training data translates it. Elsewhere
a capital is no sign of a name, and a word is unknown if the training data lacks its stem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from os.path import commonprefix
from typing import Final, NamedTuple

from engine.text.given_names import GIVEN_NAMES, MAX_CAPITALS_SHARE, NOT_NAMES, PARTICLES
from engine.text.known_words import KnownWords
from engine.text.languages import rules_of

MIN_COMMON_SHARE: Final = 0.8  # common beginning of a word and its translation, as a share of the word
ANSWER_WORD: Final = re.compile(r"[^\W\d_]+")
WITHIN_SENTENCE: Final = frozenset({" ", ", "})  # gaps between two words
DIGIT: Final = re.compile(r"\d")  # addresses and tables have digits, headings rarely
INITIALS_BEFORE: Final = re.compile(r"(?<![\w.])(?:[^\W\d_a-zß-öø-ÿ]\. ?){1,4}\Z")  # G. W. Leibniz
INITIAL_AFTER: Final = re.compile(r" [^\W\d_a-zß-öø-ÿ]\.(?! ?[^\W\d_a-zß-öø-ÿ])")  # Alois H.
MIN_SMALL_LETTERS: Final = 4  # of an unlearnt word in small letters
MAX_INITIALS: Final = 12  # characters before a name


class UnknownWord(NamedTuple):
    """A word, or adjacent words, of a text.

    begin, end: characters of the text.
    name: whether it is a name. Another word may have a similar word in the answer.
    """

    begin: int
    end: int
    name: bool


def find_unknown_words(text: str, known: KnownWords) -> Iterator[UnknownWord]:
    """Find the unknown words of a text, in order."""
    words = _UnknownWordFinder(text, known)
    number = 0
    while number < len(words.words):
        end, name = words.unknown_until(number)
        if end > number:
            first, last = words.spans[number][0], words.spans[end - 1][1]
            initials = INITIALS_BEFORE.search(text[max(0, first - MAX_INITIALS) : first])
            after = INITIAL_AFTER.match(text, last)
            yield UnknownWord(
                first - len(initials[0] if initials else ""), after.end() if after else last, name
            )
        number = max(end, number + 1)


def has_similar_word(answer: str, word: str) -> bool:
    """Return whether a word, or one with the same beginning, is in an answer: Feminismus, feminism."""
    small, least = word.lower(), MIN_COMMON_SHARE * len(word)
    others = (match[0].lower() for match in ANSWER_WORD.finditer(answer))
    return word in answer or any(len(commonprefix([small, other])) >= least for other in others)


class _UnknownWordFinder:
    """Words of a text; methods take the number of a word."""

    def __init__(self, text: str, known: KnownWords) -> None:
        self.known, self.rules = known, rules_of(known.language)
        self.not_names = NOT_NAMES | self.rules.own_title_words
        matches = re.finditer(rf"(?<![\w@#])(?:{self.rules.word})(?![\w@#])", text)
        self.spans = [match.span() for match in matches]
        self.words = [text[begin:end] for begin, end in self.spans]
        self.gaps = ["", *(text[a[1] : b[0]] for a, b in pairwise(self.spans)), ""]
        capitals = sum(word[0].isupper() for word in self.words[1:])
        self.heading = capitals > MAX_CAPITALS_SHARE * (len(self.words) - 1) and not DIGIT.search(text)

    def unknown_until(self, number: int) -> tuple[int, bool]:
        """Return the end of the unknown words from a word on, and whether they are a name."""
        if not self._has_capital(number):
            return number, False
        end = number + 1
        while end < len(self.words) and self.gaps[end] == " " and self._has_capital(end):
            end += 1
        run = range(number, end)  # adjacent words with capitals
        return (
            (self._end_inside(run), True) if self._is_inside(number) else (self._end_of_unlearnt(run), False)
        )

    def _end_inside(self, run: range) -> int:
        """Return the end of the name that words with capitals within a sentence begin with."""
        words, known = [self.words[number] for number in run], self.known
        titled = len(words) > 1 and known.precedes_names(words[0]) and words[0].lower() not in PARTICLES
        article = self.words[run.start - 1] in self.rules.small_words
        unlearnt = any(map(self._is_unlearnt, words))
        if titled or not (unlearnt or not (article or known.translates(words[0]))):
            return run.start
        return self._with_small_word(run.stop)

    def _end_of_unlearnt(self, run: range) -> int:
        """Return the end of the unlearnt words at the beginning of a run.

        German nouns are rarely side by side, so a whole run is a name there: Borussia Dortmund.
        """
        end = run.start
        while end < run.stop and (self._is_unlearnt(self.words[end]) or self._is_place(end)):
            end = run.stop if self.rules.nouns else end + 1
        bracketed = self.gaps[run.start].endswith("(")
        return self._with_small_word(end) if end > run.start and bracketed else end

    def _is_place(self, number: int) -> bool:
        """Return whether a word ends like the name of a place and follows no article."""
        before = self.words[number - 1] if number else ""
        nouns = self.rules.nouns
        article = nouns is not None and re.fullmatch(nouns.determiners, before)
        return not article and self.known.may_be_place(self.words[number])

    def _with_small_word(self, end: int) -> int:
        """Return the end of a name with an unlearnt word in small letters after it: Arion vulgaris."""
        follows = end < len(self.words) and self.gaps[end] == " " and not self.words[end][0].isupper()
        return end + (
            follows and len(self.words[end]) >= MIN_SMALL_LETTERS and self._is_unlearnt(self.words[end])
        )

    def _is_unlearnt(self, word: str) -> bool:
        """Return whether the training data neither translates a word nor has its stem."""
        known, parts = self.known, word.split("-")
        if known.translates(word):
            return False
        if self.rules.nouns:  # the last part of a German compound names the thing
            return not known.knows(parts[-1]) or (len(parts) > 1 and parts[0] in GIVEN_NAMES)
        capitals = sum(part[:1].isupper() for part in parts)
        return capitals > 1 or not any(map(known.knows, parts))

    def _has_capital(self, number: int) -> bool:
        word = self.words[number]
        return word[0].isupper() and not word.isupper() and word not in self.not_names

    def _is_inside(self, number: int) -> bool:
        """Return whether a capital of the word is a sign of a name: not at the beginning of a sentence."""
        return not (self.rules.nouns or self.heading) and self.gaps[number] in WITHIN_SENTENCE
