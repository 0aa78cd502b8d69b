"""Moves the formats of a source to its translation by cross-attention.

The mass of a target word on a range of the source is the share of its attention there. A span gets the range
of words with the largest sum of (mass - MIN_MASS); a point gets the boundary that best separates the words
from before it from the words from after it. Example: "Das <b>rote Haus</b><br/> brennt", with a span `b` and
a point `br`.

    target words                         The    red    house   burns
    mass on "rote Haus"                  0.1    0.9    0.8     0.1
    gain of b: mass - MIN_MASS          -0.3    0.5    0.4    -0.3      largest sum: red house

    mass on the text before br           0.9    0.9    0.8     0.1
    sum of (mass - HALF) by boundary   0    0.4    0.8    1.1     0.7   largest: after house

Parents are placed before the spans in them, which get words of their parent only. In a parent, the order is:
copied spans, spans over the whole parent, other spans (the largest sum first), points. Spans never overlap,
so every format of the source is in the translation once and properly nested. A span with words gets a
word, and none across a separator such as "|". Links keep their order unless attention is certain of another.

A span takes the time of the words of its sentences, and a copied phrase less. In a text that the model read
only in part, a span in the rest is placed among MAX_WINDOW words at the same relative position.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

import numpy as np

from documents.align import Range, WordAttention, words_of
from documents.answers import TranslatedText
from documents.gains import TargetWords
from documents.placing import Placed, best_range, best_words, cut_word, in_source_order
from documents.restoring import Restorer, Steps
from documents.spans import Segment, Span

MAX_LOST: Final = 500  # kept spans that are searched in the whole translation
HALF: Final = 0.5  # a word with a larger mass before a point belongs before it
FINAL_MARKS: Final = re.compile(r"[.!?…]{1,4}\Z|:\Z")
LETTERS: Final = re.compile(r"\w")
WRITTEN: Final = re.compile(r"\S")


def project(
    segment: Segment,
    result: TranslatedText,
    kept_texts: Mapping[int, str] | None = None,
    small_words: tuple[Set[str], Set[str]] = (frozenset(), frozenset()),
) -> Steps[Segment]:
    """Return the translation of a segment with its spans, in steps.

    segment: text with spans.
    result: translation of the text, with an alignment if the segment has spans.
    kept_texts: text of kept spans in the translation by number; default: their text in the source.
    small_words: articles and the like of both languages; a span without any in the source gets none.
    """
    if result.text == segment.text:
        return segment
    if not segment.spans:
        return Segment(result.text)
    numbers = marks_of(segment)
    ranges = {numbers[k.span]: (k.begin, k.end) for k in result.kept if 0 <= k.span < len(numbers)}
    attention = WordAttention((yield from words_of(result.text)))
    for sentence in result.alignment:
        attention.add(sentence)
        yield
    words = TargetWords(segment, result.text, ranges, attention, small_words[0])
    yield from words.read(result.kept, small_words[1])
    spans = tuple((yield from _Projection(segment, words).spans()))
    return (yield from Restorer(segment, Segment(result.text, spans), kept_texts or {}).restored())


def marks_of(segment: Segment) -> list[int]:
    """Return the numbers of the spans that the model must not change."""
    return [n for n, span in enumerate(segment.spans) if span.kept and span.begin < span.end]


def protected_ranges(segment: Segment) -> tuple[Range, ...]:
    """Return the characters [begin, end) of the spans that the model must not change."""
    return tuple((segment.spans[n].begin, segment.spans[n].end) for n in marks_of(segment))


def format_borders(segment: Segment) -> Iterator[int]:
    """Yield the places where a span of a segment begins or ends."""
    return (place for span in segment.spans for place in (span.begin, span.end))


class _Projection:
    """The state of a projection. A word range has numbers of target words; a boundary is between two words.

    source: text with spans.
    words: words of the translation.
    lost: number of kept spans that were searched in the whole translation.
    text_begin, text_end: source characters without white space at both ends.
    word_ranges: result, range of target words of each span; empty for points.
    exact_ranges: result, target characters of copied spans, by number of the span.
    used_ranges: target characters of copied spans, which no other span may take.
    """

    def __init__(self, source: Segment, words: TargetWords) -> None:
        self.source, self.words, self.lost = source, words, 0
        text = source.text
        self.text_begin, self.text_end = len(text) - len(text.lstrip()), len(text.rstrip())
        self.word_ranges: list[Range] = [(0, 0)] * len(source.spans)
        self.exact_ranges: dict[int, Range] = {}
        self.used_ranges: set[Range] = set()

    def spans(self) -> Steps[list[Span]]:
        """Return the spans of the source at their target characters, in steps."""
        inner: list[list[int]] = [[] for _ in range(len(self.source.spans) + 1)]
        for number, span in enumerate(self.source.spans):
            inner[span.parent].append(number)
        queue = [-1]
        for number in queue:  # grows while it is read: parents come before the spans in them
            if inner[number]:
                yield from self._place(number, inner[number])
            queue += inner[number]
        spans = list[Span]()
        for number in range(len(self.source.spans)):
            spans.append(self._characters(number))
            yield
        begins, marked = {span.begin for span in spans}, list[Span]()
        for pair in zip(self.source.spans, spans, strict=True):
            marked.append(self._with_final_marks(*pair, begins))
            yield
        return marked

    def _place(self, parent: int, numbers: list[int]) -> Steps[None]:
        """Set the word ranges of the spans `numbers`, which are directly in `parent`; -1: the whole text."""
        low, high = self.word_ranges[parent] if parent >= 0 else (0, len(self.words.ranges))
        placed = Placed(low, high)
        by_sum: list[tuple[float, int]] = []
        for number in numbers:
            span = self.source.spans[number]
            if self._copy(number, parent):
                placed.add(self.word_ranges[number])
            elif span.begin < span.end and self._fills(span, parent):
                self.word_ranges[number] = (low, high)
                placed.add(self.word_ranges[number])
            elif span.begin < span.end:
                first, last = self.words.gainful(span, low, high)
                by_sum.append((best_range(self.words.gain(span, first, last))[2], number))
            yield
        # gains are computed again: storing all of them would take too much memory
        for _, number in sorted(by_sum, key=lambda one: -one[0]):
            span = self.source.spans[number]
            first, last = self.words.sentence(span, low, high)
            if placed.has_free(first, last):
                gain = self.words.gain(span, first, last) + placed.penalty[first - low : last - low]
                begin, end = self._best(span, gain, first, last)
                self.word_ranges[number] = (first + begin, first + end)
                placed.add(self.word_ranges[number])
            yield
        yield from self._fill_empty([number for _, number in by_sum], low, high, placed)
        self._order_links(numbers)
        for number in numbers:
            span = self.source.spans[number]
            if span.line:
                self.word_ranges[number] = self._line(span, low, high, placed)
            elif span.begin == span.end and number not in self.exact_ranges:
                first, last = self.words.sentence(span, low, high)
                self.word_ranges[number] = self._boundary(span.begin, first, last, placed)
                yield

    def _best(self, span: Span, gain: Any, first: int, last: int) -> Range:
        """Return the words of [first, last) with the largest sum of gains; a span with words gets a word."""
        if LETTERS.search(self.source.text, span.begin, span.end):
            return best_words(gain, self.words.is_mark[first:last])
        return best_range(gain)[:2]

    def _fill_empty(self, numbers: list[int], low: int, high: int, placed: Placed) -> Steps[None]:
        """Place spans without words: each takes a word of a span next to it, or is at a boundary.

        numbers: placed spans of one parent, in the order of the source.
        low, high: words [low, high) of the parent.
        placed: spans of the parent.
        """
        for place, number in enumerate(numbers):
            begin, end = self.word_ranges[number]
            if begin == end:
                around = [
                    (n, n < number)
                    for n in (*numbers[max(0, place - 1) : place], *numbers[place + 1 : place + 2])
                ]
                first, last = self.words.sentence(self.source.spans[number], low, high)
                if not self._take_word(number, around, (first, last), placed):
                    self.word_ranges[number] = self._boundary(
                        self.source.spans[number].begin, first, last, placed
                    )
            yield

    def _take_word(
        self, number: int, around: list[tuple[int, bool]], sentence: Range, placed: Placed
    ) -> bool:
        """Give a span with words the nearest word of a span next to it that has more; return whether one had.

        number: number of the span.
        around: numbers of the spans next to it, with "is before it".
        sentence: words of the span's sentences.
        placed: spans of the same parent.
        """
        span = self.source.spans[number]
        if not LETTERS.search(self.source.text, span.begin, span.end):
            return False
        for other, is_before in around:
            begin, end = self.word_ranges[other]
            if not sentence[0] <= begin < end <= sentence[1]:
                continue
            at = cut_word((begin, end), self.words.is_mark, last=is_before)
            if at is not None:
                parts = (begin, at), (at, end)
                self.word_ranges[other], self.word_ranges[number] = parts if is_before else parts[::-1]
                placed.part(at)
                return True
        return False

    def _order_links(self, numbers: Sequence[int]) -> None:
        """Put the words of links in the order of the source, unless attention is certain of another order."""
        spans, ranges = self.source.spans, self.word_ranges
        links = [
            n for n in numbers if spans[n].link and n not in self.exact_ranges and ranges[n][0] < ranges[n][1]
        ]
        links.sort(key=lambda number: spans[number].begin)

        def certain(index: int) -> bool:
            return self.words.is_certain(spans[links[index]], ranges[links[index]])

        ordered = in_source_order([ranges[number] for number in links], certain)
        for number, new in zip(links, ordered, strict=True):
            ranges[number] = new

    def _fills(self, span: Span, parent: int) -> bool:
        """Return whether only white space of the parent is outside the span."""
        around = self.source.spans[parent] if parent >= 0 else Span(self.text_begin, self.text_end)
        return self._is_blank(around.begin, span.begin) and self._is_blank(span.end, around.end)

    def _is_blank(self, begin: int, end: int) -> bool:
        return begin >= end or not WRITTEN.search(self.source.text, begin, end)

    def _copy(self, number: int, parent: int) -> bool:
        """Place a span at its own characters in the translation if they were copied there: a kept span, or a
        range of copied tokens. Return whether it was placed."""
        span = self.source.spans[number]
        text = self.source.text[span.begin : span.end]
        begin = self.words.copied.get(span.begin, -1)
        if (
            number not in self.words.kept_ranges
            and text
            and self.words.copied.get(span.end - 1) != begin + len(text) - 1
        ):
            begin = self._only_place(text) if span.kept else -1
            begin = -1 if (begin, begin + len(text)) in self.used_ranges else begin
        begin, end = self.words.kept_ranges.get(number, (begin, begin + len(text)))
        low, high = self._characters_of_parent(parent)
        if not low <= begin <= end <= high:
            return False
        self.exact_ranges[number] = (begin, end)
        self.used_ranges.add((begin, end))
        first = bisect_right(self.words.ends, begin)
        self.word_ranges[number] = (first, max(first, bisect_left(self.words.begins, end)))
        return True

    def _only_place(self, text: str) -> int:
        """Return the position of a text in the translation; -1 if it is not there once."""
        self.lost += 1
        return (
            self.words.target.find(text)
            if self.lost <= MAX_LOST and self.words.target.count(text) == 1
            else -1
        )

    def _characters_of_parent(self, parent: int) -> Range:
        """Return the target characters of a parent; -1: the whole text."""
        if parent < 0:
            return 0, len(self.words.target)
        return self.exact_ranges.get(parent) or self._edges(*self.word_ranges[parent])

    def _boundary(self, at: int, low: int, high: int, placed: Placed) -> Range:
        """Return the boundary that best separates words from before source position `at` from others.

        low, high: range of target words, at whose begins and ends the boundary may be.
        placed: spans whose words a boundary must not separate.
        """
        before = self.words.mass(0, at, low, high) - HALF
        known = self.words.attention.known[low:high]
        # score of each boundary: sum over the words before it; words without attention count 0
        score = np.concatenate([[0.0], np.cumsum(np.where(known, before, 0.0))])
        # a point at the edge of the source stays there: no sum reaches the number of words
        if at <= self.text_begin:
            score[0] += len(score)
        elif at >= self.text_end:
            score[-1] += len(score)
        score = np.where(placed.inside[low - placed.low : high + 1 - placed.low], -np.inf, score)
        boundary = low + int(np.argmax(score))
        return boundary, boundary

    def _line(self, span: Span, low: int, high: int, placed: Placed) -> Range:
        """Return the boundary in words [low, high) of the parent with the share of a line break before it."""
        around = self.source.spans[span.parent] if span.parent >= 0 else Span(self.text_begin, self.text_end)
        share = (span.begin - around.begin) / max(1, around.end - around.begin)
        distance = np.abs(np.arange(high - low + 1) - share * (high - low))
        inside = placed.inside[low - placed.low : high + 1 - placed.low]
        bad = np.append(self.words.is_mark[low:high], span.parent < 0)  # no line begins with "." or is empty
        distance = np.where(inside | bad, np.inf, distance)
        boundary = low + int(np.argmin(distance))
        return boundary, boundary

    def _edges(self, begin: int, end: int) -> Range:
        return (self.words.ranges[begin][0], self.words.ranges[end - 1][1]) if begin < end else (0, 0)

    def _characters(self, number: int) -> Span:
        """Return a span at the target characters of its word range."""
        span, (first, last) = self.source.spans[number], self.word_ranges[number]
        if number in self.exact_ranges:
            begin, end = self.exact_ranges[number]
        elif first < last:
            begin, end = self._edges(first, last)
        else:
            begin = end = self._position(span.begin, first, span.parent)
        return replace(span, begin=begin, end=end)

    def _with_final_marks(self, old: Span, span: Span, begins: Set[int]) -> Span:
        """Return an outermost span with the final marks after it, if the source span ends with such marks
        inside the text and no other span begins there."""
        marks = FINAL_MARKS.search(self.source.text, max(old.begin, old.end - 4), old.end)
        if not marks or old.parent >= 0 or old.end >= self.text_end or span.begin == span.end:
            return span
        end = span.end + len(marks[0])
        free = begins.isdisjoint(range(span.end, end)) and self.words.target.startswith(marks[0], span.end)
        return replace(span, end=end) if free else span

    def _position(self, at: int, boundary: int, parent: int) -> int:
        """Return the target position of a point before word `boundary`: after white space if `at` is."""
        source, words = self.source.text, self.words.ranges
        low, high = self.word_ranges[parent] if parent >= 0 else (0, len(words))
        if parent in self.exact_ranges:
            return self.exact_ranges[parent][0]
        if parent < 0 and boundary == 0 and at < self.text_begin:
            return 0
        spaced = at == 0 or source[at - 1].isspace()
        if boundary >= high or (boundary > low and not spaced):
            at_end = boundary == len(words) and parent < 0 and at >= self.text_end
            return len(self.words.target) if at_end and spaced else words[boundary - 1][1] if boundary else 0
        return words[boundary][0]
