"""How the formats of a text go over to its translation.

The way is the cross-attention: each word of the translation has a mass on each stretch of the source. A
stretch goes, as a whole and once, to where the sum of (mass - MIN_MASS) is largest; a point goes to where
what is before it and what is after it are told apart best. So every format of the source is in the answer
once and properly nested, whatever the attention says.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

import numpy as np

from documents.align import WORD_OR_MARK, Range, WordAttention
from documents.answers import TranslatedText
from documents.spans import Segment, Span, weave

MIN_MASS: Final = 0.4  # mass that makes a word belong to a stretch
# such a token means the same where it is copied
COPIED_TOKEN: Final = re.compile(r"\S*[^\w\s]\S*|\S*\d\S*|\w{5,}")
PUNCTUATION: Final = re.compile(r"[^\w\s]")
FINAL_MARKS: Final = re.compile(r"[.!?…]{1,4}\Z|:\Z")
CLINGING: Final = " ,.;:!?)]"  # what needs no white space before it
WRITTEN: Final = re.compile(r"\S")
TAKEN_SCORE: Final = -1e9


def project(
    segment: Segment,
    result: TranslatedText,
    kept_texts: Mapping[int, str] | None = None,
    small_words: tuple[Set[str], Set[str]] = (frozenset(), frozenset()),
) -> Segment:
    """Return the translation of a segment with its spans, in their order.

    segment: text with spans.
    result: the translation of the text, with its alignment where the segment has spans.
    kept_texts: text of each kept span in the translation, by its number; by default as it was.
    small_words: articles and the like of both languages; a stretch without any gets none.
    """
    if not segment.spans:
        return Segment(result.text)
    if result.text == segment.text:
        return segment
    numbers = marks_of(segment)
    ranges = {numbers[k.span]: (k.begin, k.end) for k in result.kept if 0 <= k.span < len(numbers)}
    spans = tuple(_Projection(segment, result, ranges, small_words).spans())
    return _Restorer(segment, Segment(result.text, spans), kept_texts or {}).restored()


def marks_of(segment: Segment) -> list[int]:
    """List the numbers of the spans that the model is asked to leave as they are."""
    return [n for n, span in enumerate(segment.spans) if span.kept and span.begin < span.end]


def protected_ranges(segment: Segment) -> tuple[Range, ...]:
    """List the characters (begin, end) of the spans that the model is asked to leave as they are."""
    return tuple((segment.spans[n].begin, segment.spans[n].end) for n in marks_of(segment))


class _Projection:
    """Positions are words of the translation: a range of them for each span."""

    def __init__(
        self,
        segment: Segment,
        result: TranslatedText,
        known: Mapping[int, Range],
        small_words: tuple[Set[str], Set[str]],
    ) -> None:
        self.segment, self.target, self.known = segment, result.text, known
        self.attention = WordAttention(segment.text, result)
        self.words = self.attention.words
        kept = {at for phrase in result.kept for at in range(phrase.begin, phrase.end)}  # marks and all
        marks = [bool(PUNCTUATION.match(self.target, at)) and at not in kept for at, _ in self.words]
        self.marks = np.array(marks, bool)
        self.small_words = small_words[0]
        small = [self.target[begin:end].lower() in small_words[1] for begin, end in self.words]
        self.small = np.array(small, bool)
        self.begins, self.ends = [begin for begin, _ in self.words], [end for _, end in self.words]
        self.ranges: list[tuple[int, int]] = [(0, 0)] * len(segment.spans)
        self.exact: dict[int, Range] = {}  # characters of spans that were copied
        self.taken: set[Range] = set()  # those of all spans
        text = segment.text
        self.first, self.last = len(text) - len(text.lstrip()), len(text.rstrip())  # where its words are
        self.copied = dict(_copied_positions(segment.text, self.target))
        pins = self._pin_words()
        self.pinned, self.stems = np.array(list(pins), np.int64), np.array(list(pins.values()), np.int64)

    def spans(self) -> list[Span]:
        inner: list[list[int]] = [[] for _ in range(len(self.segment.spans) + 1)]
        for number, span in enumerate(self.segment.spans):
            inner[span.parent].append(number)
        queue = [-1]
        for number in queue:  # parents before what is in them
            self._place(number, inner[number])
            queue += inner[number]
        spans = [self._characters(number) for number in range(len(self.segment.spans))]
        begins = {span.begin for span in spans}
        return [self._with_final_marks(*pair, begins) for pair in zip(self.segment.spans, spans, strict=True)]

    def _place(self, parent: int, numbers: list[int]) -> None:
        """Find ranges for the spans in one span: ranges don't overlap; the surest span is placed first."""
        low, high = self.ranges[parent] if parent >= 0 else (0, len(self.words))
        free = np.zeros(len(self.words), np.float64)
        cuts = np.ones(len(self.words) + 1, bool)
        sure: list[tuple[float, int]] = []
        for number in numbers:
            span = self.segment.spans[number]
            if self._copy(number, parent):
                self._take(number, free, cuts)
            elif span.begin < span.end and self._same(span, parent):
                self.ranges[number] = (low, high)
                self._take(number, free, cuts)
            elif span.begin < span.end:
                sure.append((_best(self._gain(span)[low:high])[2], number))
        for _, number in sorted(sure, key=lambda one: -one[0]):  # gains again: all at once would be too much
            span = self.segment.spans[number]
            first, last = self._sentence(span, low, high)
            begin, end, score = _best((self._gain(span) + free)[first:last])
            if score > TAKEN_SCORE / 2:
                self.ranges[number] = (first + begin, first + end)
                self._take(number, free, cuts)
            else:
                self.ranges[number] = self._point(span.begin, first, last, cuts)
        for number in numbers:
            span = self.segment.spans[number]
            if span.begin == span.end and number not in self.exact:
                self.ranges[number] = self._point(span.begin, *self._sentence(span, low, high), cuts)

    def _sentence(self, span: Span, low: int, high: int) -> tuple[int, int]:
        """The words from `low` to `high` that belong to the sentences of a span."""
        extent = self.attention.extent(span.begin, span.end)
        first, last = (max(low, extent[0]), min(high, extent[1])) if extent else (low, high)
        return (first, last) if first < last else (low, high)

    def _pin_words(self) -> dict[int, int]:
        """Words that stem from a known place of the source, with a character of it."""
        there = {target: source for source, target in self.copied.items()}
        pins = {n: there[begin] for n, begin in enumerate(self.begins) if begin in there}
        for number, (first, end) in self.known.items():
            source = self.segment.spans[number].begin if number >= 0 else -1
            inside = range(bisect_right(self.ends, first), bisect_left(self.begins, end))
            pins |= dict.fromkeys(inside, source)
        return pins

    def _mass(self, begin: int, end: int) -> Any:
        mass = self.attention.mass(begin, end)
        mass[self.pinned] = (begin <= self.stems) & (self.stems < end)
        return mass

    def _gain(self, span: Span) -> Any:
        gain = self._mass(span.begin, span.end) - MIN_MASS
        if not PUNCTUATION.search(self.segment.text, span.begin, span.end):  # then it has none there either
            gain = np.where(self.marks, -MIN_MASS, gain)
        words = WORD_OR_MARK.findall(self.segment.text[span.begin : span.end].lower())
        return gain if not self.small_words.isdisjoint(words) else np.where(self.small, -MIN_MASS, gain)

    def _take(self, number: int, free: Any, cuts: Any) -> None:
        begin, end = self.ranges[number]
        free[begin:end] = TAKEN_SCORE
        cuts[begin + 1 : end] = False

    def _same(self, span: Span, parent: int) -> bool:
        """Whether nothing but white space of the parent lies outside the span."""
        around = self.segment.spans[parent] if parent >= 0 else Span(self.first, self.last)
        return self._blank(around.begin, span.begin) and self._blank(span.end, around.end)

    def _blank(self, begin: int, end: int) -> bool:
        return begin >= end or not WRITTEN.search(self.segment.text, begin, end)

    def _copy(self, number: int, parent: int) -> bool:
        """Place a span inside of a token that was copied, to the character."""
        span = self.segment.spans[number]
        text = self.segment.text[span.begin : span.end]
        begin = self.copied.get(span.begin, -1)
        if number not in self.known and text and self.copied.get(span.end - 1) != begin + len(text) - 1:
            begin = self.target.find(text) if span.kept and self.target.count(text) == 1 else -1
            begin = -1 if (begin, begin + len(text)) in self.taken else begin
        begin, end = self.known.get(number, (begin, begin + len(text)))
        low, high = self._around(parent)
        if not low <= begin <= end <= high:
            return False
        self.exact[number] = (begin, end)
        self.taken.add((begin, end))
        first = bisect_right(self.ends, begin)
        self.ranges[number] = (first, max(first, bisect_left(self.begins, end)))
        return True

    def _around(self, parent: int) -> tuple[int, int]:
        if parent < 0:
            return 0, len(self.target)
        return self.exact.get(parent) or self._edges(*self.ranges[parent])

    def _point(self, at: int, low: int, high: int, cuts: Any) -> tuple[int, int]:
        """The boundary of words that best divides what stems from before `at` from the rest."""
        left = self._mass(0, at)[low:high] - 0.5
        mask = self.attention.known[low:high]
        score = np.concatenate([[0.0], np.cumsum(np.where(mask, left, 0.0))])
        if at <= self.first:
            score[0] += len(score)
        elif at >= self.last:
            score[-1] += len(score)
        score = np.where(cuts[low : high + 1], score, TAKEN_SCORE)
        boundary = low + int(np.argmax(score))
        return boundary, boundary

    def _edges(self, begin: int, end: int) -> tuple[int, int]:
        return (self.words[begin][0], self.words[end - 1][1]) if begin < end else (0, 0)

    def _characters(self, number: int) -> Span:
        span, (first, last) = self.segment.spans[number], self.ranges[number]
        if number in self.exact:
            begin, end = self.exact[number]
        elif first < last:
            begin, end = self._edges(first, last)
        else:
            begin = end = self._between(span.begin, first, span.parent)
        return replace(span, begin=begin, end=end)

    def _with_final_marks(self, old: Span, span: Span, begins: Set[int]) -> Span:
        """An outermost span with the final marks behind it, where it ends with such marks in a source that
        goes on, and no other begins there."""
        marks = FINAL_MARKS.search(self.segment.text, max(old.begin, old.end - 4), old.end)
        if not marks or old.parent >= 0 or old.end >= self.last or span.begin == span.end:
            return span
        end = span.end + len(marks[0])
        free = begins.isdisjoint(range(span.end, end)) and self.target.startswith(marks[0], span.end)
        return replace(span, end=end) if free else span

    def _between(self, at: int, boundary: int, parent: int) -> int:
        """The character for a boundary of words: after the white space where the source has it so."""
        source, words = self.segment.text, self.words
        low, high = self.ranges[parent] if parent >= 0 else (0, len(words))
        if parent in self.exact:
            return self.exact[parent][0]
        if parent < 0 and boundary == 0 and at < self.first:
            return 0
        spaced = at == 0 or source[at - 1].isspace()
        if boundary >= high or (boundary > low and not spaced):
            outer = boundary == len(words) and parent < 0 and at >= self.last
            return len(self.target) if outer and spaced else words[boundary - 1][1] if boundary else 0
        return words[boundary][0]


def _best(gain: Any) -> tuple[int, int, float]:
    """Begin, end and sum of the range with the largest sum, of one word at least."""
    if not len(gain):
        return 0, 0, TAKEN_SCORE
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    lowest = np.minimum.accumulate(sums[:-1])
    end = int(np.argmax(sums[1:] - lowest)) + 1
    begin = int(np.argmin(sums[:end]))
    return begin, end, float(sums[end] - sums[begin])


def _copied_positions(source: str, target: str) -> Iterator[tuple[int, int]]:
    """For each character of the tokens that are once in both texts: its place there and here."""
    places: dict[str, int] = {}
    for match in COPIED_TOKEN.finditer(target):
        places[match[0]] = -1 if match[0] in places else match.start()
    own: dict[str, int] = {}
    for match in COPIED_TOKEN.finditer(source):
        own[match[0]] = -1 if match[0] in own else match.start()
    for token, begin in own.items():
        there = places.get(token, -1)
        if begin >= 0 and there >= 0:
            yield from ((begin + i, there + i) for i in range(len(token)))


class _Restorer:
    """Writes a translation anew from left to right, with the own text of kept spans again; white space sets
    it off as in the source.

    parts, length, last: the text so far, its length and its last character.
    inside: whether a kept span is open.
    glue: whether white space is due before the next text.
    """

    def __init__(self, source: Segment, target: Segment, kept_texts: Mapping[int, str]) -> None:
        self.source, self.target, self.spans = source, target, list(target.spans)
        self.kept_texts = kept_texts
        self.parts, self.length, self.last = list[str](), 0, " "
        self.inside, self.glue = False, False

    def restored(self) -> Segment:
        for kind, value in weave(self.target):
            if isinstance(value, str):
                self._append("" if self.inside else value)
            elif kind == "begin":
                self._begin(value)
            else:
                self.inside = False
                self.spans[value] = replace(self.spans[value], end=self.length)
        return Segment("".join(self.parts), tuple(self.spans))

    def _append(self, text: str) -> None:
        if text and self.glue and text[0] not in CLINGING:
            text = " " + text
        self.glue = self.glue and not text
        self.parts.append(text)
        self.length, self.last = self.length + len(text), text[-1:] or self.last

    def _begin(self, number: int) -> None:
        old, span = self.source.spans[number], self.spans[number]
        if old.spaced and old.begin == old.end and span.begin == span.end:
            self._append(" " if self.glue or not self.last.isspace() else "")
            self.glue = True
            self.spans[number] = replace(span, begin=self.length)
        elif old.kept:
            self._keep(number)
        else:
            if self.glue and span.begin < span.end and self.target.text[span.begin] not in CLINGING:
                self._append(" ")
            self.spans[number] = replace(span, begin=self.length)

    def _keep(self, number: int) -> None:
        """Write the own text of a kept span."""
        text, old, span = self.source.text, self.source.spans[number], self.spans[number]
        lost = span.begin == span.end  # it comes between words that stand as if it were not there
        if self.glue or (lost and text[: old.begin][-1:].isspace() and not self.last.isspace()):
            self._append(" ")
        self.glue = False
        self.spans[number] = replace(span, begin=self.length)
        self._append(self.kept_texts.get(number, text[old.begin : old.end]))
        self.inside, self.glue = True, lost and text[old.end :][:1].isspace()
