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
so every format of the source is in the translation once and properly nested.

A span takes the time of the words of its sentences, and a copied phrase less. In a text that the model read
only in part, a span in the rest is placed among MAX_WINDOW words at the same relative position.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

import numpy as np

from documents.align import WORD_OR_MARK, Range, WordAttention, copied_positions, words_of
from documents.answers import KeptPhrase, TranslatedText
from documents.restoring import Restorer, Steps
from documents.spans import Segment, Span

MAX_WINDOW: Final = 2_000  # words among which a span is placed that is in no sentence of the model
LONG_SPAN: Final = 1_000  # characters of a span that surely has punctuation and small words
MAX_LOST: Final = 500  # kept spans that are searched in the whole translation
MIN_MASS: Final = 0.4  # a word with a smaller mass on a span lowers the sum
HALF: Final = 0.5  # a word with a larger mass before a point belongs before it
BLOCKED: Final = -1e9  # gain of a word of another span; larger than any sum of masses
PUNCTUATION: Final = re.compile(r"[^\w\s]")
FINAL_MARKS: Final = re.compile(r"[.!?…]{1,4}\Z|:\Z")
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
    if not segment.spans:
        return Segment(result.text)
    if result.text == segment.text:
        return segment
    numbers = marks_of(segment)
    ranges = {numbers[k.span]: (k.begin, k.end) for k in result.kept if 0 <= k.span < len(numbers)}
    attention = WordAttention((yield from words_of(result.text)))
    for sentence in result.alignment:
        attention.add(sentence)
        yield
    projection = _Projection(segment, result.text, ranges, attention, small_words[0])
    yield from projection.read(result.kept, small_words[1])
    spans = tuple((yield from projection.spans()))
    return (yield from Restorer(segment, Segment(result.text, spans), kept_texts or {}).restored())


def marks_of(segment: Segment) -> list[int]:
    """Return the numbers of the spans that the model must not change."""
    return [n for n, span in enumerate(segment.spans) if span.kept and span.begin < span.end]


def protected_ranges(segment: Segment) -> tuple[Range, ...]:
    """Return the characters [begin, end) of the spans that the model must not change."""
    return tuple((segment.spans[n].begin, segment.spans[n].end) for n in marks_of(segment))


class _Projection:
    """The state of a projection. A word range has numbers of target words; a boundary is between two words.

    source: text with spans.
    target: translated text.
    kept_ranges: target characters of kept spans, by number of the span.
    attention: attention of each target word on source characters.
    words, begins, ends: target characters of each word.
    is_mark: bool [words], the word is punctuation and not part of a kept phrase.
    is_small: bool [words], the word is an article or the like.
    lost: number of kept spans that were searched in the whole translation.
    small_words: articles and the like of the source language.
    text_begin, text_end: source characters without white space at both ends.
    copied: target position by source position, for tokens that occur once in both texts.
    pinned: int64 [pinned], numbers of copied words, whose origin needs no attention.
    origins: int64 [pinned], source position of each pinned word; -1: from a glossary.
    by_origin, sorted_origins: order of the pinned words by origin, and their sorted origins.
    word_ranges: result, range of target words of each span; empty for points.
    exact_ranges: result, target characters of copied spans, by number of the span.
    used_ranges: target characters of copied spans, which no other span may take.
    """

    def __init__(
        self,
        source: Segment,
        target: str,
        kept_ranges: Mapping[int, Range],
        attention: WordAttention,
        small_words: Set[str],
    ) -> None:
        self.source, self.target, self.kept_ranges = source, target, kept_ranges
        self.attention, self.small_words, self.lost = attention, small_words, 0
        self.words = attention.words
        self.begins, self.ends = [begin for begin, _ in self.words], [end for _, end in self.words]
        self.is_mark, self.is_small = np.zeros((2, len(self.words)), bool)
        text = source.text
        self.text_begin, self.text_end = len(text) - len(text.lstrip()), len(text.rstrip())
        self.copied: dict[int, int] = {}
        self.word_ranges: list[Range] = [(0, 0)] * len(source.spans)
        self.exact_ranges: dict[int, Range] = {}
        self.used_ranges: set[Range] = set()

    def read(self, kept: Sequence[KeptPhrase], small_words: Set[str]) -> Steps[None]:
        """Set the fields that follow from the words of the translation, in steps.

        kept: kept phrases of the translation.
        small_words: articles and the like of the language of the translation.
        """
        in_phrases = {at for phrase in kept for at in range(phrase.begin, phrase.end)}
        for number, (begin, end) in enumerate(self.words):
            is_mark = PUNCTUATION.match(self.target, begin) is not None
            self.is_mark[number] = is_mark and begin not in in_phrases
            self.is_small[number] = self.target[begin:end].lower() in small_words
            yield
        for source, target in copied_positions(self.source.text, self.target):
            self.copied[source] = target
            yield
        origins = self._origins()
        self.pinned = np.array(sorted(origins), np.int64)
        self.origins = np.array([origins[word] for word in sorted(origins)], np.int64)
        self.by_origin = np.argsort(self.origins, kind="stable")
        self.sorted_origins = self.origins[self.by_origin]

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
        low, high = self.word_ranges[parent] if parent >= 0 else (0, len(self.words))
        placed = _Placed(low, high)
        by_sum: list[tuple[float, int]] = []
        for number in numbers:
            span = self.source.spans[number]
            if self._copy(number, parent):
                placed.add(self.word_ranges[number])
            elif span.begin < span.end and self._fills(span, parent):
                self.word_ranges[number] = (low, high)
                placed.add(self.word_ranges[number])
            elif span.begin < span.end:
                first, last = self._gainful(span, low, high)
                by_sum.append((_best_range(self._gain(span, first, last))[2], number))
            yield
        # gains are computed again: storing all of them would take too much memory
        for _, number in sorted(by_sum, key=lambda one: -one[0]):
            span = self.source.spans[number]
            first, last = self._sentence(span, low, high)
            if placed.has_free(first, last):
                gain = self._gain(span, first, last)
                begin, end, _ = _best_range(gain + placed.penalty[first - low : last - low])
                self.word_ranges[number] = (first + begin, first + end)
                placed.add(self.word_ranges[number])
            else:
                self.word_ranges[number] = self._boundary(span.begin, first, last, placed)
            yield
        for number in numbers:
            span = self.source.spans[number]
            if span.line:
                self.word_ranges[number] = self._line(span, low, high, placed)
            elif span.begin == span.end and number not in self.exact_ranges:
                first, last = self._sentence(span, low, high)
                self.word_ranges[number] = self._boundary(span.begin, first, last, placed)
                yield

    def _sentence(self, span: Span, low: int, high: int) -> Range:
        """Return the words of [low, high) in the sentences of a span; without any, `low` and `high`, or words
        at the same relative position if these are too many."""
        extent = self.attention.extent(span.begin, span.end)
        first, last = (max(low, extent[0]), min(high, extent[1])) if extent else (low, high)
        if first >= last:
            first, last = low, high
        if extent or last - first <= MAX_WINDOW:
            return first, last
        middle = len(self.words) * span.begin // max(1, len(self.source.text))
        first = max(low, min(middle - MAX_WINDOW // 2, high - MAX_WINDOW))
        return first, first + MAX_WINDOW

    def _gainful(self, span: Span, low: int, high: int) -> Range:
        """Return the words of [low, high) that may have a gain for a span: its sentences, and its copied
        words elsewhere."""
        first, last = self._sentence(span, low, high)
        begin, end = np.searchsorted(self.sorted_origins, (span.begin, span.end))
        copied = self.pinned[self.by_origin[begin:end]]
        copied = copied[(low <= copied) & (copied < high)]
        return (min(first, copied.min()), max(last, copied.max() + 1)) if len(copied) else (first, last)

    def _origins(self) -> dict[int, int]:
        """Return the source position by number of each copied word; -1: the word is from a glossary."""
        positions = {target: source for source, target in self.copied.items()}
        origins = {n: positions[begin] for n, begin in enumerate(self.begins) if begin in positions}
        for number, (begin, end) in self.kept_ranges.items():
            position = self.source.spans[number].begin if number >= 0 else -1
            inside = range(bisect_right(self.ends, begin), bisect_left(self.begins, end))
            origins |= dict.fromkeys(inside, position)
        return origins

    def _mass(self, begin: int, end: int, low: int, high: int) -> Any:
        """Return the mass of the words [low, high) on source characters [begin, end); 0 or 1 if pinned."""
        mass = self.attention.mass(begin, end, low, high)
        first, last = np.searchsorted(self.pinned, (low, high))
        origins = self.origins[first:last]
        mass[self.pinned[first:last] - low] = (begin <= origins) & (origins < end)
        return mass

    def _gain(self, span: Span, low: int, high: int) -> Any:
        """Return the gain of each word of [low, high) for a span: mass - MIN_MASS.

        Punctuation and small words have mass 0 if the span has none in the source.
        """
        gain = self._mass(span.begin, span.end, low, high) - MIN_MASS
        if span.end - span.begin > LONG_SPAN:
            return gain  # it has both, and the search would take long
        if not PUNCTUATION.search(self.source.text, span.begin, span.end):
            gain = np.where(self.is_mark[low:high], -MIN_MASS, gain)
        words = WORD_OR_MARK.findall(self.source.text[span.begin : span.end].lower())
        small = not self.small_words.isdisjoint(words)
        return gain if small else np.where(self.is_small[low:high], -MIN_MASS, gain)

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
        begin = self.copied.get(span.begin, -1)
        if number not in self.kept_ranges and text and self.copied.get(span.end - 1) != begin + len(text) - 1:
            begin = self._only_place(text) if span.kept else -1
            begin = -1 if (begin, begin + len(text)) in self.used_ranges else begin
        begin, end = self.kept_ranges.get(number, (begin, begin + len(text)))
        low, high = self._characters_of_parent(parent)
        if not low <= begin <= end <= high:
            return False
        self.exact_ranges[number] = (begin, end)
        self.used_ranges.add((begin, end))
        first = bisect_right(self.ends, begin)
        self.word_ranges[number] = (first, max(first, bisect_left(self.begins, end)))
        return True

    def _only_place(self, text: str) -> int:
        """Return the position of a text in the translation; -1 if it is not there once."""
        self.lost += 1
        return self.target.find(text) if self.lost <= MAX_LOST and self.target.count(text) == 1 else -1

    def _characters_of_parent(self, parent: int) -> Range:
        """Return the target characters of a parent; -1: the whole text."""
        if parent < 0:
            return 0, len(self.target)
        return self.exact_ranges.get(parent) or self._edges(*self.word_ranges[parent])

    def _boundary(self, at: int, low: int, high: int, placed: _Placed) -> Range:
        """Return the boundary that best separates words from before source position `at` from others.

        low, high: range of target words, at whose begins and ends the boundary may be.
        placed: spans whose words a boundary must not separate.
        """
        before = self._mass(0, at, low, high) - HALF
        known = self.attention.known[low:high]
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

    def _line(self, span: Span, low: int, high: int, placed: _Placed) -> Range:
        """Return the boundary in words [low, high) of the parent with the share of a line break before it."""
        around = self.source.spans[span.parent] if span.parent >= 0 else Span(self.text_begin, self.text_end)
        share = (span.begin - around.begin) / max(1, around.end - around.begin)
        distance = np.abs(np.arange(high - low + 1) - share * (high - low))
        distance = np.where(placed.inside[low - placed.low : high + 1 - placed.low], np.inf, distance)
        boundary = low + int(np.argmin(distance))
        return boundary, boundary

    def _edges(self, begin: int, end: int) -> Range:
        return (self.words[begin][0], self.words[end - 1][1]) if begin < end else (0, 0)

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
        free = begins.isdisjoint(range(span.end, end)) and self.target.startswith(marks[0], span.end)
        return replace(span, end=end) if free else span

    def _position(self, at: int, boundary: int, parent: int) -> int:
        """Return the target position of a point before word `boundary`: after white space if `at` is."""
        source, words = self.source.text, self.words
        low, high = self.word_ranges[parent] if parent >= 0 else (0, len(words))
        if parent in self.exact_ranges:
            return self.exact_ranges[parent][0]
        if parent < 0 and boundary == 0 and at < self.text_begin:
            return 0
        spaced = at == 0 or source[at - 1].isspace()
        if boundary >= high or (boundary > low and not spaced):
            at_end = boundary == len(words) and parent < 0 and at >= self.text_end
            return len(self.target) if at_end and spaced else words[boundary - 1][1] if boundary else 0
        return words[boundary][0]


class _Placed:
    """The word ranges of the placed spans of one parent.

    low: number of the parent's first word.
    penalty: float64 [words], BLOCKED for words of the parent in a range, otherwise 0.
    inside: bool [words + 1], the boundary is inside a range.
    """

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.penalty: Any = np.zeros(high - low, np.float64)
        self.inside: Any = np.zeros(high - low + 1, bool)

    def add(self, words: Range) -> None:
        begin, end = (number - self.low for number in words)
        self.penalty[max(0, begin) : max(0, end)] = BLOCKED
        self.inside[max(0, begin + 1) : max(0, end)] = True

    def has_free(self, begin: int, end: int) -> bool:
        """Return whether a word from `begin` to `end` is in no range."""
        return bool((self.penalty[begin - self.low : end - self.low] == 0).any())


def _best_range(gain: Any) -> tuple[int, int, float]:
    """Return begin, end and sum of the words with the largest sum of gains; empty only without words."""
    if not len(gain):
        return 0, 0, BLOCKED
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    lowest = np.minimum.accumulate(sums[:-1])  # smallest prefix sum before each end
    end = int(np.argmax(sums[1:] - lowest)) + 1
    begin = int(np.argmin(sums[:end]))
    return begin, end, float(sums[end] - sums[begin])
