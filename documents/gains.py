"""The words of a translation, and the share of their attention on ranges of the source."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import numpy as np

from documents.align import WORD_OR_MARK, Range, WordAttention, copied_positions
from documents.answers import KeptPhrase
from documents.placing import OUTSIDE
from documents.restoring import Steps
from documents.spans import Segment, Span

MAX_WINDOW: Final = 2_000  # words among which a span is placed that is in no sentence of the model
LONG_SPAN: Final = 1_000  # characters of a span that surely has punctuation and small words
MIN_MASS: Final = 0.4  # a word with a smaller mass on a span lowers the sum
CERTAIN: Final = 0.6  # mean mass of the words of a link that may change its order
PUNCTUATION: Final = re.compile(r"[^\w\s]")
SEPARATOR: Final = re.compile(r"[|·•›→]")  # marks between texts without a common sentence


class TargetWords:
    """The words of a translation, with the mass and gain of each on ranges of the source.

    source: text with spans.
    target: translated text.
    kept_ranges: target characters of kept spans, by number of the span.
    attention: attention of each target word on source characters.
    ranges, begins, ends: target characters of each word.
    is_mark: bool [words], the word is punctuation and not part of a kept phrase.
    is_small: bool [words], the word is an article or the like.
    is_separator: bool [words], the word is a mark such as "|".
    small_words: articles and the like of the source language.
    copied: target position by source position, for tokens that occur once in both texts.
    pinned: int64 [pinned], numbers of copied words, whose origin needs no attention.
    origins: int64 [pinned], source position of each pinned word; -1: from a glossary.
    by_origin, sorted_origins: order of the pinned words by origin, and their sorted origins.
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
        self.attention, self.small_words, self.ranges = attention, small_words, attention.words
        self.begins, self.ends = [begin for begin, _ in self.ranges], [end for _, end in self.ranges]
        self.is_mark, self.is_small, self.is_separator = np.zeros((3, len(self.ranges)), bool)
        self.copied: dict[int, int] = {}

    def read(self, kept: Sequence[KeptPhrase], small_words: Set[str]) -> Steps[None]:
        """Set the fields that follow from the words of the translation, in steps.

        kept: kept phrases of the translation.
        small_words: articles and the like of the language of the translation.
        """
        in_phrases = {at for phrase in kept for at in range(phrase.begin, phrase.end)}
        for number, (begin, end) in enumerate(self.ranges):
            is_mark = PUNCTUATION.match(self.target, begin) is not None
            self.is_mark[number] = is_mark and begin not in in_phrases
            self.is_separator[number] = SEPARATOR.match(self.target, begin) is not None
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

    def sentence(self, span: Span, low: int, high: int) -> Range:
        """Return the words of a span's sentences; without any, `low` and `high`, or if these are too many,
        words at the same share of the text.

        span: span of the source.
        low, high: words [low, high) of the translation.
        """
        extent = self.attention.extent(span.begin, span.end)
        first, last = (max(low, extent[0]), min(high, extent[1])) if extent else (low, high)
        if first >= last:
            first, last = low, high
        if extent or last - first <= MAX_WINDOW:
            return first, last
        middle = len(self.ranges) * span.begin // max(1, len(self.source.text))
        first = max(low, min(middle - MAX_WINDOW // 2, high - MAX_WINDOW))
        return first, first + MAX_WINDOW

    def gainful(self, span: Span, low: int, high: int) -> Range:
        """Return the words that may have a gain for a span: its sentences, and its copied words elsewhere.

        span: span of the source.
        low, high: words [low, high) of the translation.
        """
        first, last = self.sentence(span, low, high)
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

    def mass(self, begin: int, end: int, low: int, high: int) -> Any:
        """Return the mass of each word on a range of the source: float64 [words]; 0 or 1 if pinned.

        begin, end: source characters [begin, end).
        low, high: words [low, high) of the translation.
        """
        mass = self.attention.mass(begin, end, low, high)
        first, last = np.searchsorted(self.pinned, (low, high))
        origins = self.origins[first:last]
        mass[self.pinned[first:last] - low] = (begin <= origins) & (origins < end)
        return mass

    def gain(self, span: Span, low: int, high: int) -> Any:
        """Return the gain of each word for a span, mass - MIN_MASS: float64 [words].

        span: span of the source.
        low, high: words [low, high) of the translation.

        Punctuation and small words have mass 0 if the span has none in the source; no gain is larger than the
        loss by a separator that the span lacks.
        """
        gain = self.mass(span.begin, span.end, low, high) - MIN_MASS
        if span.end - span.begin > LONG_SPAN:
            return gain  # it has both, and the search would take long
        if not PUNCTUATION.search(self.source.text, span.begin, span.end):
            gain = np.where(self.is_mark[low:high], -MIN_MASS, gain)
        if not SEPARATOR.search(self.source.text, span.begin, span.end):
            gain = np.where(self.is_separator[low:high], -OUTSIDE, gain)
        words = WORD_OR_MARK.findall(self.source.text[span.begin : span.end].lower())
        small = not self.small_words.isdisjoint(words)
        return gain if small else np.where(self.is_small[low:high], -MIN_MASS, gain)

    def is_certain(self, span: Span, words: Range) -> bool:
        """Return whether a range of words attends to a span with a mean mass of CERTAIN or more."""
        mass = self.mass(span.begin, span.end, *words)
        counted = ~self.is_mark[slice(*words)]
        return bool(counted.any() and mass[counted].mean() >= CERTAIN)
