"""Cross-attention of vocabulary pieces as masses of words on characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import unescape
from typing import Any, Final

import numpy as np

from documents.answers import Aligned, Answer

# scripts without spaces have a word for each character
WORD: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[\w'’]+|[^\w\s]")
MARK: Final = "▁"  # of SentencePiece, for a space
JOINER: Final = "@@"  # of subword-nmt, at the end of a piece that goes on
WINDOW: Final = 64  # folded characters between two pieces, at most

Range = tuple[int, int]


class Attention:
    """words: ranges [begin, end) of the translation. known: bool [words], those that the model wrote."""

    def __init__(self, source: str, result: Answer) -> None:
        self.words: list[Range] = [match.span() for match in WORD.finditer(result.text)]
        self.known: Any = np.zeros(len(self.words), bool)
        self._sentences: list[tuple[list[Range | None], list[int], Any]] = []
        sources = _by_sentence(source, [sentence.source for sentence in result.alignment])
        targets = _by_sentence(result.text, [sentence.target for sentence in result.alignment])
        first = 0
        for sentence, places, ranges in zip(result.alignment, sources, targets, strict=True):
            numbers, rows, first = _rows(sentence, self.words, ranges, first)
            if numbers:
                self.known[numbers] = True
                self._sentences.append((places, numbers, rows))

    def mass(self, begin: int, end: int) -> Any:
        """Share of each word's attention on source characters [begin, end): float64 [words]."""
        found = np.zeros(len(self.words))
        for places, numbers, rows in self._sentences:
            inside = np.array([_overlap(place, begin, end) for place in places])
            if inside.any():
                found[numbers] = rows @ inside
        return found


def _rows(
    sentence: Aligned, words: Sequence[Range], ranges: Sequence[Range | None], first: int
) -> tuple[list[int], Any, int]:
    """Words of a sentence, their attention [words, source pieces] and the first word that may be the next
    sentence's. End-of-sentence is left out: it is where the attention rests that means nothing."""
    matrix = np.nan_to_num(np.asarray(sentence.matrix, np.float64))[:, :-1]
    matrix = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-9)
    sums: dict[int, Any] = {}
    for place, row in zip(ranges, matrix, strict=False):  # the last row is end-of-sentence's
        if place is None:
            continue
        while first < len(words) and words[first][1] <= place[0]:
            first += 1
        number = first
        while number < len(words) and words[number][0] < place[1]:
            sums[number] = sums.get(number, 0.0) + row * row.max(initial=0.0)  # sharp rows know more
            number += 1
    numbers = [number for number, row in sums.items() if row.sum() > 0]
    return numbers, np.stack([sums[n] / sums[n].sum() for n in numbers]) if numbers else matrix, first


def _by_sentence(text: str, sentences: Sequence[Sequence[str]]) -> list[list[Range | None]]:
    """Ranges of the pieces of sentences, without end-of-sentence."""
    places = locate(text, [piece for sentence in sentences for piece in sentence[:-1]])
    found, begin = [], 0
    for sentence in sentences:
        found.append(places[begin : begin + len(sentence) - 1])
        begin += len(sentence) - 1
    return found


def locate(text: str, pieces: Sequence[str]) -> list[Range | None]:
    """Where in a text its pieces are: ranges of characters; None for what is not found, such as "<unk>".

    Tokenizers normalise: both sides are compared folded (NFKC, case), without white space.
    """
    plain, origin = _folded(text)
    found: list[Range | None] = []
    cursor = 0
    for piece in pieces:
        body, _ = _folded(_bare(piece))
        at = plain.find(body, cursor, cursor + WINDOW + len(body)) if body else -1
        if at < 0 and body[:1].isalnum():  # a sentence without letters was not read by the model
            skipped = cursor
            while skipped < len(plain) and not plain[skipped].isalnum():
                skipped += 1
            at = plain.find(body, skipped, skipped + WINDOW + len(body)) if skipped > cursor else -1
        if at < 0:
            found.append(None)
            continue
        cursor = at + len(body)
        found.append((origin[at], origin[cursor - 1] + 1))
    return found


def _bare(piece: str) -> str:
    if piece == "@-@":  # Moses' hyphen inside a word
        return "-"
    return unescape(piece.removesuffix(JOINER).replace(MARK, " "))


def _folded(text: str) -> tuple[str, list[int]]:
    """Comparable characters, and for each its place in the text."""
    parts, origin = list[str](), list[int]()
    for place, character in enumerate(text):
        folded = unicodedata.normalize("NFKC", character).casefold() if character > "~" else character.lower()
        if not folded.isspace():
            parts.append(folded)
            origin += [place] * len(folded)
    return "".join(parts), origin


def _overlap(place: Range | None, begin: int, end: int) -> float:
    if place is None:
        return 0.0
    return max(0, min(end, place[1]) - max(begin, place[0])) / (place[1] - place[0])
