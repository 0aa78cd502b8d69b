"""Attention between pieces of a source and pieces of its answer, through one model or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.schedule.slices import Slices
from engine.text.places import Range, locate
from engine.text.tokenizers.left_to_right import SPACE

BLANK: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence.

    source, target: vocabulary pieces with end-of-sentence; a protected phrase is one piece. If a pivot joins
        two sentences of a source, each ends with end-of-sentence.
    matrix: float32 [len(target), len(source)]; rows sum to 1.
    source_places, target_places: range of characters of each piece in its text; None for end-of-sentence, and
        for a piece that is not found in the text.
    fixed: whether the matrix is by the places of words: for a fixed translation, and for the answer
        of an upstream.
    """

    source: list[str]
    target: list[str]
    matrix: Any
    source_places: Sequence[Range | None] = ()
    target_places: Sequence[Range | None] = ()
    fixed: bool = False


def make_alignments(
    source: str,
    target: str,
    sources: Sequence[list[str]],
    targets: Sequence[list[str]],
    matrices: Sequence[Any],
) -> Slices[list[Alignment]]:
    """Make the alignments of sentences, with the places of their pieces, in slices.

    source, target: texts of all sentences.
    sources, targets: pieces of each sentence.
    matrices: attention of each sentence, float32 [target, source].
    """
    source_places = yield from _by_sentence(source, sources)
    target_places = yield from _by_sentence(target, targets)
    rows = zip(sources, targets, matrices, source_places, target_places, strict=True)
    return [Alignment(*row) for row in rows]


def by_words(source: str, target: str) -> tuple[list[str], list[str], Any]:
    """Align a sentence with its fixed translation by the places of their words.

    source, target: sentence and translation.

    Returns the words of both, each with an end-of-sentence, and the matrix float32 [target, source]: with as
    many words on both sides each word has its counterpart, otherwise words share by their place.
    """
    sources, targets = source.split(), target.split()
    shares = shares_by_place(len(targets), len(sources))
    matrix = np.eye(len(targets) + 1, len(sources) + 1, dtype=np.float32)
    matrix[-1], matrix[:, -1] = 0, 0
    matrix[:-1, :-1], matrix[-1, -1] = shares, 1
    return [*(SPACE + word for word in sources), ""], [*(SPACE + word for word in targets), ""], matrix


def shares_by_place(targets: int, sources: int) -> Any:
    """Return the shares of words at the same relative places, float64 [targets, sources]; rows sum to 1."""
    first, last = np.arange(targets)[:, None] / targets, np.arange(sources) / sources
    ends = np.minimum(first + 1 / targets, last + 1 / sources)
    return np.maximum(ends - np.maximum(first, last), 0.0) * targets


def _by_sentence(text: str, sentences: Sequence[Sequence[str]]) -> Slices[list[list[Range | None]]]:
    """Return the places of the pieces of each sentence; None for end-of-sentence."""
    places = iter((yield from locate(text, [piece for pieces in sentences for piece in pieces[:-1]])))
    return [[*(next(places) for _ in pieces[:-1]), None] for pieces in sentences]


def through(first: Sequence[Alignment], second: Sequence[Alignment]) -> list[Alignment]:
    """Compose alignments of source to pivot and of pivot to target.

    The attention of a target sentence on the source is the product of both matrices, summed over pieces of
    the pivot. The models may split the pivot into different pieces and sentences: a piece that the second
    model reads is mapped to the first model's pieces that share characters with it, weighted by the number of
    these characters, or to the nearest piece. End-of-sentence is mapped to the end of the last sentence.
    """
    if not first:
        return []
    extents = [_extent(sentence.target_places) for sentence in first]
    composed = []
    for sentence in second:
        begin, end = _extent(sentence.source_places)
        overlaps = [f for f, (b, e) in zip(first, extents, strict=True) if min(e, end) > max(b, begin)]
        if not overlaps:
            overlaps = [min(zip(extents, first, strict=True), key=lambda one: abs(one[0][0] - begin))[1]]
        shares = _shares(sentence.source_places, [place for f in overlaps for place in f.target_places])
        attention = np.asarray(sentence.matrix) @ shares @ diagonal([f.matrix for f in overlaps])
        composed.append(
            Alignment(
                [piece for f in overlaps for piece in f.source],
                sentence.target,
                attention.astype(np.float32),
                [place for f in overlaps for place in f.source_places],
                sentence.target_places,
                sentence.fixed,
            )
        )
    return composed


def _extent(places: Sequence[Range | None]) -> Range:
    """Return the range from the first to the last place."""
    ranges = [place for place in places if place]
    return (ranges[0][0], ranges[-1][1]) if ranges else BLANK


def _shares(pieces: Sequence[Range | None], others: Sequence[Range | None]) -> Any:
    """Return the share of each piece that each other piece has: float64 [pieces, others], rows sum to 1.

    pieces, others: places of the pieces of two tokenizations of a text, end-of-sentence last.

    Shares are by common characters. A piece without common characters belongs to the nearest other piece.
    """
    rows, columns = np.array(_fill_gaps(pieces), float), np.array(_fill_gaps(others), float)
    begin = np.maximum(rows[:, None, 0], columns[None, :, 0])
    end = np.minimum(rows[:, None, 1], columns[None, :, 1])
    mask = [place is not None for place in others]
    shares = np.maximum(end - begin, 0.0) * mask
    # twice the distance between the middles of two pieces
    distance = np.where(mask, np.abs(rows.sum(1)[:, None] - columns.sum(1)[None, :]), np.inf)
    apart = np.flatnonzero(shares.sum(1) == 0)
    shares[apart, distance[apart].argmin(1)] = 1.0
    shares[-1] = np.arange(len(others)) == len(others) - 1
    return shares / shares.sum(1, keepdims=True)


def _fill_gaps(places: Sequence[Range | None]) -> list[Range]:
    """Replace each None by the place before it, or at the beginning by the first place."""
    place = next((place for place in places if place), BLANK)
    filled = []
    for candidate in places:
        place = candidate or place
        filled.append(place)
    return filled


def diagonal(matrices: Sequence[Any]) -> Any:
    """Return the block-diagonal matrix of some matrices.

    matrices: float arrays [rows, columns].
    """
    sizes = np.array([np.shape(matrix) for matrix in matrices])
    whole = np.zeros(sizes.sum(0))
    for (row, column), matrix in zip(np.cumsum(sizes, 0) - sizes, matrices, strict=True):
        whole[row : row + len(matrix), column : column + matrix.shape[1]] = matrix
    return whole
