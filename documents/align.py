"""Converts the cross-attention of vocabulary pieces to the attention of words on source characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from documents.answers import SentenceAlignment, TranslatedText

# scripts without spaces have a word for each character
WORD_OR_MARK: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[\w'’]+|[^\w\s]")

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The attention of one sentence.

    first: source position of the first character of the sentence.
    begins, ends: int64 [pieces], source characters [begin, end) of each piece, or -1.
    words: int64 [words], numbers of the sentence's words in the translation.
    rows: float64 [words, pieces], attention of each word on each source piece.
    """

    first: int
    begins: Any
    ends: Any
    words: Any
    rows: Any


class WordAttention:
    """The attention of each word of a translation on the characters of the source.

    words: range of characters [begin, end) of each word in the translation.
    known: bool [words], the model wrote the word, so that it has attention.
    """

    def __init__(self, source: str, result: TranslatedText) -> None:
        self.words: list[Range] = [match.span() for match in WORD_OR_MARK.finditer(result.text)]
        self.known: Any = np.zeros(len(self.words), bool)
        self._sentences: list[_Sentence] = []
        word = 0
        for sentence in result.alignment:
            places = sentence.source_places
            numbers, rows, word = _rows(sentence, self.words, word)
            if numbers and any(places):
                self.known[numbers] = True
                begins = np.array([place[0] if place else -1 for place in places], np.int64)
                ends = np.array([place[1] if place else -1 for place in places], np.int64)
                first = int(begins[begins >= 0].min())
                self._sentences.append(_Sentence(first, begins, ends, np.array(numbers, np.int64), rows))
        # largest end of each sentence and those before: sorted, so that a search finds the first sentence
        self._reach = list(accumulate((int(s.ends.max()) for s in self._sentences), max))

    def extent(self, begin: int, end: int) -> Range | None:
        """Return the range of words of the sentences with source characters [begin, end).

        None if the text has only one sentence, or no sentence has these characters.
        """
        words = list[int]()
        for number in range(bisect_right(self._reach, begin), len(self._sentences)):
            sentence = self._sentences[number]
            if words and end <= sentence.first:
                break
            words += (int(sentence.words.min()), int(sentence.words.max()) + 1)
        return (min(words), max(words)) if words and len(self._sentences) > 1 else None

    def mass(self, begin: int, end: int) -> Any:
        """Return the share of each word's attention on source characters [begin, end): float64 [words]."""
        mass = np.zeros(len(self.words))
        for number in range(bisect_right(self._reach, begin), len(self._sentences)):
            sentence = self._sentences[number]
            if end <= sentence.first:
                break
            size = np.maximum(sentence.ends - sentence.begins, 1)
            share = np.minimum(end, sentence.ends) - np.maximum(begin, sentence.begins)
            inside = np.where(sentence.begins < 0, 0.0, np.maximum(share, 0) / size)
            if inside.any():
                mass[sentence.words] = sentence.rows @ inside
        return mass


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
