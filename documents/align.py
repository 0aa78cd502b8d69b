"""Converts the cross-attention of vocabulary pieces to the attention of words on source characters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from documents.answers import SentenceAlignment
from documents.restoring import Steps

# scripts without spaces have a word for each character
WORD_OR_MARK: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[\w'’]+|[^\w\s]")
# tokens that have the same meaning if they are copied
COPIED_TOKEN: Final = re.compile(r"\S*[^\w\s]\S*|\S*\d\S*|\w{5,}")

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The attention of one sentence.

    begins, ends: int64 [pieces], source characters [begin, end) of each piece, or -1.
    words: int64 [words], numbers of the sentence's words in the translation.
    rows: float64 [words, pieces], attention of each word on each source piece.
    """

    begins: Any
    ends: Any
    words: Any
    rows: Any


def words_of(text: str) -> Steps[list[Range]]:
    """Return the range of characters [begin, end) of each word and mark of a text, in steps."""
    words = list[Range]()
    for match in WORD_OR_MARK.finditer(text):
        words.append(match.span())
        yield
    return words


class WordAttention:
    """The attention of each word of a translation on the characters of the source.

    Sentences are in the order of both texts. Searches in sorted positions find the few sentences that a range
    cuts; the attention on whole sentences is known, so that no range takes the time of all sentences in it.

    words: range of characters [begin, end) of each word in the translation.
    known: bool [words], the model wrote the word, so that it has attention.
    """

    def __init__(self, words: list[Range]) -> None:
        """words: result of `words_of` for the translation. `add` adds its sentences."""
        self.words = words
        self.known: Any = np.zeros(len(self.words), bool)
        self._whole: Any = np.zeros(len(self.words))  # attention of each word on its whole sentence
        self._sentences: list[_Sentence] = []
        # of each sentence and those before: largest position of a first and of a last source character, and
        # of a first and of a last word; sorted, as searches need
        self._firsts, self._reach = list[int](), list[int]()
        self._low, self._high = list[int](), list[int]()
        self._next = 0  # first word that may belong to the next sentence

    def add(self, sentence: SentenceAlignment) -> None:
        """Add the next sentence of the translation."""
        places = sentence.source_places
        numbers, rows, self._next = _rows(sentence, self.words, self._next)
        if not numbers or not any(places):
            return
        begins = np.array([place[0] if place else -1 for place in places], np.int64)
        ends = np.array([place[1] if place else -1 for place in places], np.int64)
        self._sentences.append(_Sentence(begins, ends, np.array(numbers, np.int64), rows))
        self.known[numbers] = True
        self._whole[numbers] = rows @ np.where(begins < ends, 1.0, 0.0)
        for positions, new in (
            (self._firsts, int(begins[begins >= 0].min())),
            (self._reach, int(ends.max())),
            (self._low, min(numbers)),
            (self._high, max(numbers) + 1),
        ):
            positions.append(max(new, positions[-1]) if positions else new)

    def extent(self, begin: int, end: int) -> Range | None:
        """Return the range of words of the sentences with source characters [begin, end).

        None if the text has only one sentence, or no sentence has these characters.
        """
        first = bisect_right(self._reach, begin)
        if first == len(self._sentences) or len(self._sentences) == 1:
            return None
        last = max(bisect_left(self._firsts, end, first), first + 1)
        return self._low[first], self._high[last - 1]

    def mass(self, begin: int, end: int, low: int, high: int) -> Any:
        """Return the share of each word's attention on a range of the source: float64 [words].

        begin, end: source characters [begin, end).
        low, high: words [low, high) of the translation.
        """
        mass = np.zeros(high - low)
        first = max(bisect_right(self._reach, begin), bisect_right(self._high, low))
        last = min(bisect_left(self._firsts, end, first), bisect_left(self._low, high, first))
        # sentences [whole, cut) are in the range as a whole
        whole = bisect_left(self._firsts, begin, first, last)
        cut = bisect_right(self._reach, end, whole, last)
        for number in range(first, whole):
            self._add_mass(mass, number, begin, end, low)
        if whole < cut:
            inside = slice(max(self._low[whole], low), min(self._high[cut - 1], high))
            mass[inside.start - low : inside.stop - low] = self._whole[inside]
        for number in range(cut, last):
            self._add_mass(mass, number, begin, end, low)
        return mass

    def _add_mass(self, mass: Any, number: int, begin: int, end: int, low: int) -> None:
        """Set the mass of the words of a sentence, of those from `low` on that `mass` has."""
        sentence = self._sentences[number]
        size = np.maximum(sentence.ends - sentence.begins, 1)
        share = np.minimum(end, sentence.ends) - np.maximum(begin, sentence.begins)
        inside = np.where(sentence.begins < 0, 0.0, np.maximum(share, 0) / size)
        if inside.any():
            words = sentence.words - low
            seen = (words >= 0) & (words < len(mass))
            mass[words[seen]] = (sentence.rows @ inside)[seen]


def _rows(sentence: SentenceAlignment, words: Sequence[Range], first: int) -> tuple[list[int], Any, int]:
    """Return the numbers of the words of a sentence, their attention [words, source pieces], and the first
    word that may belong to the next sentence.

    sentence: alignment of the sentence.
    words: target characters [begin, end) of each word.
    first: number of the first word that may belong to the sentence.

    Attention on end-of-sentence has no meaning and is ignored. A word's attention is the mean of its pieces,
    weighted by their largest values.
    """
    end = sentence.source[-1]  # the piece end-of-sentence
    matrix = np.nan_to_num(np.asarray(sentence.matrix, np.float64)) * [p != end for p in sentence.source]
    matrix = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-9)
    sums: dict[int, Any] = {}
    for place, row in zip(sentence.target_places, matrix, strict=True):
        if place is None:
            continue
        while first < len(words) and words[first][1] <= place[0]:
            first += 1
        number = first
        while number < len(words) and words[number][0] < place[1]:
            sums[number] = sums.get(number, 0.0) + row * row.max(initial=0.0)
            number += 1
    numbers = [number for number, row in sums.items() if row.sum() > 0]
    return numbers, np.stack([sums[n] / sums[n].sum() for n in numbers]) if numbers else matrix, first


def copied_positions(source: str, target: str) -> Iterator[tuple[int, int]]:
    """Yield source and target position of each character of the tokens that occur once in both texts."""
    in_target: dict[str, int] = {}  # -1: the token occurs more than once
    for match in COPIED_TOKEN.finditer(target):
        in_target[match[0]] = -1 if match[0] in in_target else match.start()
    in_source: dict[str, int] = {}
    for match in COPIED_TOKEN.finditer(source):
        in_source[match[0]] = -1 if match[0] in in_source else match.start()
    for token, begin in in_source.items():
        target_begin = in_target.get(token, -1)
        if begin >= 0 and target_begin >= 0:
            yield from ((begin + i, target_begin + i) for i in range(len(token)))
