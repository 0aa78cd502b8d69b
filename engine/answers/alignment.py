"""Attention from the pieces of a source to those of its answer, through one model or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.text.places import Range, locate

BLANK: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention of one sentence.

    source, target: vocabulary pieces, ending with end-of-sentence; a protected phrase is one piece. Where two
        sentences of a source became one by way of a pivot, each ends with end-of-sentence.
    matrix: float32 [len(target), len(source)]; rows sum to 1.
    source_places, target_places: range of characters of each piece in its text; None for an end of sentence,
        and for a piece that is not found there.
    """

    source: list[str]
    target: list[str]
    matrix: Any
    source_places: Sequence[Range | None] = ()
    target_places: Sequence[Range | None] = ()


def make_alignments(
    source: str,
    target: str,
    sources: Sequence[list[str]],
    targets: Sequence[list[str]],
    matrices: Sequence[Any],
) -> list[Alignment]:
    """Make the alignments of sentences, with the places of their pieces.

    source, target: the texts.
    sources, targets: pieces of each sentence.
    matrices: attention of each sentence, float32 [target, source].
    """
    source_places, target_places = _by_sentence(source, sources), _by_sentence(target, targets)
    rows = zip(sources, targets, matrices, source_places, target_places, strict=True)
    return [Alignment(*row) for row in rows]


def _by_sentence(text: str, sentences: Sequence[Sequence[str]]) -> Iterator[list[Range | None]]:
    """Places of the pieces of sentences; ends have none."""
    places = iter(locate(text, [piece for pieces in sentences for piece in pieces[:-1]]))
    for pieces in sentences:
        yield [*(next(places) for _ in pieces[:-1]), None]


def through(first: Sequence[Alignment], second: Sequence[Alignment]) -> list[Alignment]:
    """Compose alignments of source to pivot and of pivot to target.

    Each target sentence attends to the source by the product of both matrices, summed over the pieces of the
    pivot. The two models may cut the pivot into other pieces, and into other sentences: a piece that the
    second model reads stands for the pieces of the first model's target that share characters with it, by
    their number, or else for the nearest one; an end of sentence stands for the end of the last sentence
    read.
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
        attention = np.asarray(sentence.matrix) @ shares @ _diagonal([f.matrix for f in overlaps])
        composed.append(
            Alignment(
                [piece for f in overlaps for piece in f.source],
                sentence.target,
                attention.astype(np.float32),
                [place for f in overlaps for place in f.source_places],
                sentence.target_places,
            )
        )
    return composed


def _extent(places: Sequence[Range | None]) -> Range:
    ranges = [place for place in places if place]
    return (ranges[0][0], ranges[-1][1]) if ranges else BLANK


def _shares(pieces: Sequence[Range | None], others: Sequence[Range | None]) -> Any:
    """Say which of the others each piece is: float64 [pieces, others], rows sum to 1. Each has an end."""
    ours, theirs = np.array(_fill_gaps(pieces), float), np.array(_fill_gaps(others), float)
    begin = np.maximum(ours[:, None, 0], theirs[None, :, 0])
    end = np.minimum(ours[:, None, 1], theirs[None, :, 1])
    mask = [place is not None for place in others]
    shares = np.maximum(end - begin, 0.0) * mask
    distance = np.where(mask, np.abs(ours.sum(1)[:, None] - theirs.sum(1)[None, :]), np.inf)
    lost = np.flatnonzero(shares.sum(1) == 0)
    shares[lost, distance[lost].argmin(1)] = 1.0
    shares[-1] = np.arange(len(others)) == len(others) - 1
    return shares / shares.sum(1, keepdims=True)


def _fill_gaps(places: Sequence[Range | None]) -> list[Range]:
    """What has no place of its own is where the piece before it is, the first ones where the next is."""
    place = next((place for place in places if place), BLANK)
    filled = []
    for candidate in places:
        place = candidate or place
        filled.append(place)
    return filled


def _diagonal(matrices: Sequence[Any]) -> Any:
    """The matrices beside and below each other, zeros elsewhere."""
    sizes = np.array([np.shape(matrix) for matrix in matrices])
    whole = np.zeros(sizes.sum(0))
    for (row, column), matrix in zip(np.cumsum(sizes, 0) - sizes, matrices, strict=True):
        whole[row : row + len(matrix), column : column + matrix.shape[1]] = matrix
    return whole
