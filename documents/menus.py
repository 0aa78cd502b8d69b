"""Menus: segments with all words in links or in formats between separators.

Attention does not always distinguish the links of a menu, and a link with the text of another link is a
serious fault. The text of each link is therefore translated by itself, and the separators stay. The texts of
`<a>Start</a> | <a>Hilfe</a>` are "Start" and "Hilfe".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, starmap
from typing import Final

from documents.restoring import Restorer, finished
from documents.spans import Segment, Span, goes_on

SEPARATOR: Final = re.compile(r"[|·•›»→>/()\[\]]")
WORD: Final = re.compile(r"\w")
END_MARK: Final = re.compile(r"[.!?…]\W{0,3}\Z")
MAX_LABEL_WORDS: Final = 3  # of an item next to a link without a separator: `<a>Cart</a> <span>new</span>`


@dataclass(frozen=True, slots=True)
class Menu:
    """A segment that is translated item by item.

    segment: the whole text.
    items: numbers of the spans with a text each, in the order of the text.
    ranges: characters of the text of each item, without white space at both ends.
    inner: numbers of the spans in each item.
    texts: segment of each item.
    """

    segment: Segment
    items: list[int]
    ranges: list[tuple[int, int]]
    inner: list[list[int]]
    texts: list[Segment]

    def write(self, texts: Sequence[Segment]) -> Segment:
        """Return the whole text with new items; with the old ones, the old segment."""
        if all(new is old for new, old in zip(texts, self.texts, strict=True)):
            return self.segment
        source, spans = self.segment.text, list(self.segment.spans)
        ends = [end for _, end in self.ranges]
        moved, parts, position = [0], list[str](), 0  # characters that the text before has grown
        for (begin, end), new in zip(self.ranges, texts, strict=True):
            parts += [source[position:begin], new.text]
            moved.append(moved[-1] + len(new.text) - (end - begin))
            position = end

        def at(place: int) -> int:
            return place + moved[bisect_right(ends, place)]

        new_spans = [replace(span, begin=at(span.begin), end=at(span.end)) for span in spans]
        for (begin, _), numbers, new in zip(self.ranges, self.inner, texts, strict=True):
            for number, span in zip(numbers, new.spans, strict=True):
                moved_span = replace(spans[number], begin=at(begin) + span.begin, end=at(begin) + span.end)
                new_spans[number] = moved_span
        written = Segment("".join([*parts, source[position:]]), tuple(new_spans))
        kept = {n: written.text[span.begin : span.end] for n, span in enumerate(new_spans) if span.kept}
        return finished(Restorer(self.segment, written, kept).restored())


def menu_of(segment: Segment) -> Menu | None:
    """Return the menu of a segment; None: it is a sentence, or has one item only."""
    spans, text = segment.spans, segment.text
    if len(spans) < 2 or not any(span.link for span in spans):
        return None
    items, owners = _items(spans, text)
    if len(items) < 2 or not _are_apart(items, spans, text) or _has_words_outside(items, spans, text):
        return None
    inner: dict[int, list[int]] = {item: [] for item in items}
    for number, owner in enumerate(owners):
        if owner >= 0 and owner != number:
            inner[owner].append(number)
    ranges = [_bare(text, spans[item]) for item in items]
    texts = [_text_of(spans, text, place, inner[item]) for item, place in zip(items, ranges, strict=True)]
    return Menu(segment, items, ranges, [inner[item] for item in items], texts)


def divide(segments: Sequence[Segment]) -> tuple[list[Segment], Callable[[Sequence[Segment]], list[Segment]]]:
    """Return the segments with menus in parts, and the function that returns whole segments for new ones."""
    menus = [menu_of(segment) for segment in segments]
    parts = [
        part
        for segment, menu in zip(segments, menus, strict=True)
        for part in (menu.texts if menu else [segment])
    ]

    def unite(new: Sequence[Segment]) -> list[Segment]:
        rest = iter(new)
        return [menu.write([next(rest) for _ in menu.texts]) if menu else next(rest) for menu in menus]

    return parts, unite


def _items(spans: Sequence[Span], text: str) -> tuple[list[int], list[int]]:
    """Return the numbers of the outermost links, and of outermost formats without links in them, both with
    words; and for each span the number of its item, or -1."""
    has_links, owners, items = [False] * len(spans), [-1] * len(spans), list[int]()
    for number in range(len(spans) - 1, -1, -1):  # parents come first
        if spans[number].parent >= 0 and (spans[number].link or has_links[number]):
            has_links[spans[number].parent] = True
    for number, span in enumerate(spans):
        if span.parent >= 0 and owners[span.parent] >= 0:
            owners[number] = owners[span.parent]
        elif (
            not span.kept and (span.link or not has_links[number]) and WORD.search(text, span.begin, span.end)
        ):
            owners[number] = number
            items.append(number)
    return sorted(items, key=lambda item: spans[item].begin), owners


def _are_apart(items: Sequence[int], spans: Sequence[Span], text: str) -> bool:
    """Return whether a separator is between any two items; white space is enough between two links, and where
    all items are labels of a few words."""
    labels = _are_labels([text[spans[item].begin : spans[item].end] for item in items])
    for first, second in pairwise(items):
        gap = text[spans[first].end : spans[second].begin]
        links = spans[first].link and spans[second].link
        within_word = text[spans[second].begin - 1].isalnum() and not text[spans[second].begin].isupper()
        beside = (links and (gap or not within_word)) or (labels and gap.isspace())
        if not beside and not SEPARATOR.search(gap):
            return False
    return True


def _are_labels(texts: Sequence[str]) -> bool:
    """Return whether texts have a few words each and are no parts of a sentence."""
    short = all(len(text.split()) <= MAX_LABEL_WORDS for text in texts)
    return short and not END_MARK.search(texts[-1]) and not any(starmap(goes_on, pairwise(texts)))


def _has_words_outside(items: Sequence[int], spans: Sequence[Span], text: str) -> bool:
    """Return whether words are neither in an item nor in a kept span."""
    ranges = [(spans[item].begin, spans[item].end) for item in items]
    ranges += [(span.begin, span.end) for span in spans if span.kept]
    return any(WORD.search(text, begin, end) for begin, end in _gaps(sorted(ranges), len(text)))


def _gaps(ranges: Sequence[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Yield the gaps between sorted ranges of [0, length)."""
    position = 0
    for begin, end in ranges:
        yield position, begin
        position = max(position, end)
    yield position, length


def _bare(text: str, span: Span) -> tuple[int, int]:
    """Return the characters of a span without white space at both ends."""
    whole = text[span.begin : span.end]
    return span.end - len(whole.lstrip()), span.begin + len(whole.rstrip())


def _text_of(spans: Sequence[Span], text: str, place: tuple[int, int], inner: Sequence[int]) -> Segment:
    """Return the text of an item with the spans in it.

    spans, text: spans and text of the whole segment.
    place: characters of the item.
    inner: numbers of the spans in it.
    """
    first, last = place
    places = {number: at for at, number in enumerate(inner)}
    moved = (
        replace(
            spans[number],
            begin=min(max(spans[number].begin, first), last) - first,
            end=min(max(spans[number].end, first), last) - first,
            parent=places.get(spans[number].parent, -1),
        )
        for number in inner
    )
    return Segment(text[first:last], tuple(moved))
