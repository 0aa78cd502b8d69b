"""The places of the spans of one parent among target words, which `projection` chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from documents.align import Range

BLOCKED: Final = -1e9  # gain of a word of another span; larger than any sum of masses
OUTSIDE: Final = 1e3  # loss of a word that a span takes only if all others are blocked


class Placed:
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

    def part(self, at: int) -> None:
        """Allow a boundary before word `at`, where a range was cut in two."""
        self.inside[at - self.low] = False

    def has_free(self, begin: int, end: int) -> bool:
        """Return whether a word from `begin` to `end` is in no range."""
        return bool((self.penalty[begin - self.low : end - self.low] == 0).any())


def best_range(gain: Any) -> tuple[int, int, float]:
    """Return begin, end and sum of the words with the largest sum of gains; empty only without words."""
    if not len(gain):
        return 0, 0, BLOCKED
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    lowest = np.minimum.accumulate(sums[:-1])  # smallest prefix sum before each end
    end = int(np.argmax(sums[1:] - lowest)) + 1
    begin = int(np.argmin(sums[:end]))
    return begin, end, float(sums[end] - sums[begin])


def best_words(gain: Any, is_mark: Any) -> Range:
    """Return the range with the largest sum that has a word, [begin, end); empty without a free word.

    gain: float64 [words], gain of each word, with penalties.
    is_mark: bool [words], the word is punctuation.
    """
    begin, end, _ = best_range(gain)
    if is_mark[begin:end].all():
        begin, end, _ = best_range(np.where(is_mark, gain - OUTSIDE, gain))
    if is_mark[begin:end].all() or (gain[begin:end] <= BLOCKED / 2).any():
        return 0, 0
    return begin, end


def in_source_order(ranges: Sequence[Range], certain: Callable[[int], bool]) -> list[Range]:
    """Return the ranges of links in the order of the source, unless attention is certain of another order.

    ranges: target words of each link, in the order of the source.
    certain: returns whether attention is certain of the range of a link, by its index.
    """
    ordered = list(ranges)
    by_place = sorted(range(len(ranges)), key=ranges.__getitem__)
    ranks = {number: rank for rank, number in enumerate(by_place)}
    first, highest = 0, -1
    for number in range(len(ranges)):
        highest = max(highest, ranks[number])
        if highest > number:
            continue  # a later link belongs before this one: the stretch continues
        if number > first and not all(map(certain, range(first, number + 1))):
            ordered[first : number + 1] = sorted(ranges[first : number + 1])
        first = number + 1
    return ordered


def cut_word(words: Range, is_mark: Any, *, last: bool) -> int | None:
    """Return the place that cuts the last or the first word off a range; None: it has only one.

    words: range of words.
    is_mark: bool [words], the word is punctuation.
    last: cut the last word off.
    """
    begin, end = words
    places = range(end - 1, begin - 1, -1) if last else range(begin, end)
    at = next((place for place in places if not is_mark[place]), None)
    if at is None:
        return None
    rest = is_mark[begin:at] if last else is_mark[at + 1 : end]
    if rest.all():
        return None
    return at if last else at + 1
