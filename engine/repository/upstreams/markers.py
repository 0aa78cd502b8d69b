"""Formats of a text for a language model: marks at their borders, which come back as protected phrases do.

The words between two marks of the answer belong to the words between the same marks of the source. This gives
the answer an alignment without attention.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from engine.answers.alignment import Alignment, shares_by_place
from engine.answers.compose import TextResult
from engine.repository.catalogue import ModelRoute
from engine.text.placeables.masked_text import MarkedText
from engine.text.places import Range

MARKS: Final = range(0xF700, 0xF8FF)  # private-use characters that never stand for a phrase
MAX_MARKS: Final = 48  # of one text; more would leave no placeholders for its phrases
WORD: Final = re.compile(r"\S+")


def marked_for(route: ModelRoute, texts: Sequence[str | MarkedText]) -> Sequence[str | MarkedText]:
    """Return texts with marks at the borders of their formats if one upstream answers them."""
    if not route.is_upstream:
        return texts
    return [text if isinstance(text, str) else with_marks(text) for text in texts]


def unmarked(
    route: ModelRoute, texts: Sequence[str | MarkedText], results: list[TextResult]
) -> list[TextResult]:
    """Return the answers to the texts of `marked_for` without their marks.

    route: route that answered.
    texts: texts of the caller.
    results: answers.
    """
    if not route.is_upstream:
        return results
    pairs = zip(texts, results, strict=True)
    return [result if isinstance(text, str) else without_marks(text, result) for text, result in pairs]


def borders_of(marked: MarkedText) -> list[int]:
    """Return the places that get a mark: borders of formats within the text and outside of its spans."""
    inner = {place for begin, end in marked.spans for place in range(begin + 1, end)}
    places = sorted({place for place in marked.borders if 0 < place < len(marked.text)} - inner)
    used = any(ord(character) in MARKS for character in marked.text) if places else False
    return [] if used or len(places) > MAX_MARKS else places


def with_marks(marked: MarkedText) -> MarkedText:
    """Return a text with a mark at each border, as a span that must not change."""
    places = borders_of(marked)
    parts = [marked.text[begin:end] for begin, end in pairwise([0, *places, len(marked.text)])]
    text = "".join(
        part + mark for part, mark in zip(parts, [*map(chr, MARKS[: len(places)]), ""], strict=True)
    )
    # the mark at the begin of a span is before it, and the mark at its end is behind it
    moved = [
        (begin + bisect_right(places, begin), end + bisect_right(places, end - 1))
        for begin, end in marked.spans
    ]
    marks = [(place + number, place + number + 1) for number, place in enumerate(places)]
    return MarkedText(text, tuple(sorted([*moved, *marks])))


def without_marks(marked: MarkedText, result: TextResult) -> TextResult:
    """Return the answer to `with_marks` without its marks, with the alignment that they give.

    marked: text of the caller.
    result: answer to the text with marks.
    """
    places = borders_of(marked)
    if not places:
        return result
    found = [at for at, character in enumerate(result.text) if ord(character) in MARKS]
    marks = [(at - number, MARKS.index(ord(result.text[at]))) for number, at in enumerate(found)]
    text, asked = _bare(result.text), with_marks(marked)
    numbers = [span for span, (begin, _) in enumerate(asked.spans) if ord(asked.text[begin]) not in MARKS]
    own = {span: number for number, span in enumerate(numbers)} | {-1: -1}
    kept = [
        replace(span, begin=_moved(span.begin, found), end=_moved(span.end, found), span=own[span.span])
        for span in result.kept
        if span.span in own
    ]
    alignment = [_align(marked.text, places, text, marks)] if text.strip() and marked.text.strip() else []
    alternatives = [_bare(other) for other in result.alternatives]
    return replace(result, text=text, alternatives=alternatives, kept=kept, alignment=alignment)


def _bare(text: str) -> str:
    return "".join(character for character in text if ord(character) not in MARKS)


def _moved(place: int, found: Sequence[int]) -> int:
    """Return a place of a text after the marks before it were removed."""
    return place - bisect_right(found, place - 1)


def _align(source: str, places: Sequence[int], target: str, marks: Sequence[tuple[int, int]]) -> Alignment:
    """Return the alignment of words between marks.

    source: text of the caller.
    places: place of each mark in it.
    target: answer.
    marks: place and number of each mark in the answer, in its order.
    """
    words, read = _words(target, [place for place, _ in marks]), _words(source, places)
    between = [-1, *(number for _, number in marks), len(places)]
    # number of the source's part for each part of the answer; -1: the marks around it are no neighbours there
    parts = [last if last == first + 1 else -1 for first, last in pairwise(between)]
    rows = np.array([parts[part] for part, _ in words])
    columns = np.array([part if part in parts else -1 for part, _ in read])
    matrix = np.zeros((len(words) + 1, len(read) + 1), np.float32)
    for part in set(rows.tolist()):
        inside = np.flatnonzero(columns == part)
        inside = inside if len(inside) else np.arange(len(read))
        wanted = np.flatnonzero(rows == part)
        matrix[np.ix_(wanted, inside)] = shares_by_place(len(wanted), len(inside))
    matrix[-1, -1] = 1.0
    pieces = [
        [*(text[begin:end] for _, (begin, end) in some), ""]
        for text, some in ((source, read), (target, words))
    ]
    of_source, of_target = ([*(place for _, place in some), None] for some in (read, words))
    return Alignment(pieces[0], pieces[1], matrix, of_source, of_target, fixed=True)


def _words(text: str, places: Sequence[int]) -> list[tuple[int, Range]]:
    """Return the place of each word of a text, cut at some places, with the number of its part."""
    return [
        (part, (begin + match.start(), begin + match.end()))
        for part, (begin, end) in enumerate(pairwise([0, *places, len(text)]))
        for match in WORD.finditer(text[begin:end])
    ]
