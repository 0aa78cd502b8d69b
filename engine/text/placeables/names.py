"""Names of people and places that the vocabulary breaks into crumbs: a model loses such words.

Which words are taken for names was tried on validation sets (docs/text.md): a word with a capital that stands
after a title, beside another such word, or alone, in a language that writes no nouns with capitals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from engine.text.form import CAPITAL_NOUNS

WORD: Final = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
TITLES: Final = frozenset(
    {"Herr", "Herrn", "Frau", "Fräulein", "Familie", "Mr", "Mrs", "Ms", "Miss", "Sir", "Lady", "Dr", "Prof"}
    | {"Monsieur", "Madame", "Mademoiselle", "Mme", "Mlle"}
)
FRENCH_TITLES: Final = frozenset({"M", "MM"})
# a German noun without an article after these is a place
PLACED: Final = frozenset({"in", "nach", "aus", "namens"})
# German words with capitals that are no nouns: pronouns, and an adjective that begins a sentence
PRONOUNS: Final = frozenset({"Sie", "Ihnen", "Ihr", "Ihre", "Ihren", "Ihrem", "Ihrer", "Ihres"})
INFLECTION: Final = re.compile("[^\\W\\d_]{3,}e[mnrs]?")
MIN_PLACED_TOKENS: Final = 4
MIN_TOKENS_BESIDE: Final = 2
MIN_TOKENS_OF_NOUNS: Final = 5  # of a name beside another one together, where nouns have capitals too
MAX_SMALL_TOKENS: Final = 2  # of a word that is known in small letters
MAX_CAPITALS_SHARE: Final = 0.67  # of the words after the first one; headings have more
STARTS: Final = frozenset('.!?:„“"»«\n')  # a sentence begins after them


@dataclass(frozen=True, slots=True)
class NameRule:
    """What of a text is taken for names.

    language: code of its language.
    tokens: counts the tokens of a word.
    alone: least number of tokens of a name that stands alone; nouns of languages that write nouns with
        capitals are no names.
    """

    language: str
    tokens: Callable[[str], int]
    alone: int

    @property
    def nouns(self) -> bool:
        """Whether the language writes nouns with capitals."""
        return self.language.partition("-")[0].lower() in CAPITAL_NOUNS


@dataclass(frozen=True)
class _Word:
    """A word at a place of a text; its tokens are counted where they decide.

    capital: whether it may be of a name.
    starts: whether it stands where sentences begin.
    """

    text: str
    begin: int
    end: int
    capital: bool
    starts: bool
    rule: NameRule

    @property
    def common(self) -> bool:
        """Whether its capital only says that a sentence begins."""
        return self.starts and self._counts[1]

    @property
    def tokens(self) -> int:
        """Number of tokens of the word as it is, or in small letters if these are fewer; 0 of no capital."""
        return self._counts[0] if self.capital else 0

    @cached_property
    def _counts(self) -> tuple[int, bool]:
        """The tokens, and whether it is an ordinary word."""
        word, rule = self.text, self.rule
        tokens = rule.tokens(word)
        small = rule.tokens(word[0].lower() + word[1:]) if self.starts or tokens > 1 else tokens
        ordinary = small <= min(tokens, 1 if rule.nouns else MAX_SMALL_TOKENS)
        if rule.nouns and not ordinary:
            ordinary = small < tokens or (small == tokens and INFLECTION.fullmatch(word) is not None)
        return min(tokens, small), ordinary


def find_names(text: str, rule: NameRule) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each name, in order; words beside one another are one name."""
    words = [_word(text, match, rule) for match in WORD.finditer(text)]
    heading = not rule.nouns and _heading(words)
    first = 0
    while first < len(words):
        end, word = first + 1, words[first]
        if word.capital and word.text not in TITLES:
            before = _word_before(text, words, first)
            titled = _after_title(before, rule)
            if titled or not word.common:
                while end < len(words) and _goes_on(text, words[end - 1], words[end]):
                    end += 1
                if titled or (not heading and _is_name(words[first:end], before, rule)):
                    yield word.begin, words[end - 1].end
        first = end


def _word(text: str, match: re.Match[str], rule: NameRule) -> _Word:
    word, (begin, end) = match[0], match.span()
    capital = len(word) > 1 and word[0].isupper() and not word.isupper()
    before = text[max(0, begin - 2) : begin].rstrip(" ")[-1:]
    starts = not begin or before in STARTS
    return _Word(word, begin, end, capital and not (rule.nouns and word in PRONOUNS), starts, rule)


def _heading(words: Sequence[_Word]) -> bool:
    capitals = sum(word.capital for word in words[1:])
    return len(words) > 1 and capitals > MAX_CAPITALS_SHARE * (len(words) - 1)


def _word_before(text: str, words: Sequence[_Word], number: int) -> str:
    """The word before one of the words, or the marks between; "" at the beginning of a sentence."""
    if not number:
        return ""
    before, one = words[number - 1], words[number]
    between = text[before.end : one.begin]
    if between.isspace() or (between.strip() == "." and before.text in TITLES | FRENCH_TITLES):
        return before.text
    return "" if STARTS.intersection(between) else between.strip()


def _goes_on(text: str, one: _Word, other: _Word) -> bool:
    return other.capital and other.text not in TITLES and text[one.end : other.begin] == " "


def _after_title(before: str, rule: NameRule) -> bool:
    return before in TITLES or (before in FRENCH_TITLES and rule.language.startswith("fr"))


def _is_name(row: Sequence[_Word], before: str, rule: NameRule) -> bool:
    """Whether words in a row are a name.

    row: the words.
    before: the word before them, "" at the beginning of a sentence.
    """
    if len(row) == 1 and (before not in PLACED if rule.nouns else not (before and rule.alone)):
        return False
    *_, second, most = sorted([0, *(word.tokens for word in row)])
    if rule.nouns:
        several = len(row) > 1 and second >= MIN_TOKENS_BESIDE and second + most >= MIN_TOKENS_OF_NOUNS
        return several or (before in PLACED and most >= MIN_PLACED_TOKENS)
    return most >= (MIN_TOKENS_BESIDE if len(row) > 1 else rule.alone)
