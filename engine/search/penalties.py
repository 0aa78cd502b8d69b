"""Scores of hypotheses from their log-probabilities: length, reward per word, coverage.

s = (sum of log P + word_reward * words) / normaliser(length) + coverage_penalty * sum over source words of
log(min(attention received, 1)): Wu et al. 2016, equation 14, or with fairseq's power of the length.
Plain arrays of any namespace `xp`, one row per slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import truediv
from typing import Any, Final

import numpy as np

from engine.types import DecodeOptions

WU: Final = "wu"
MARIAN: Final = "marian"
KNOWN_LENGTHS: Final = 256  # divisors are computed for this many lengths at once
LEAST_DIVISOR: Final = 1e-200  # a sum of log-probabilities divided by this stays finite
UNSEEN: Final = 1e-10  # least attention that a coverage penalty counts, so that its logarithm is finite


def normaliser(xp: Any, length: Any, exponent: Any, wu: Any) -> Any:
    """Return the divisors of sums of log-probabilities. The arguments are broadcast together.

    xp: array namespace.
    length: tokens of hypotheses, end-of-sentence included.
    exponent: power of the length; 0 divides by 1.
    wu: whether the divisor is ((5 + length) / 6) ** exponent; otherwise it is length ** exponent.
    """
    base = xp.where(wu, (5 + length) / 6, 1.0 * length)
    return base**exponent


def log_coverage(xp: Any, attended: Any, words: Any) -> Any:
    """Return the sum of log(min(attention, 1)) over each source's words, float [n, B]; never above 0.

    xp: array namespace.
    attended: [n, B, S], attention that each source position has received so far.
    words: [n], number of words, which are the first positions (end-of-sentence is none).
    """
    column = xp.arange(attended.shape[2], dtype=xp.int64, device=attended.device)
    # not clip, which makes arrays of its bounds: a captured graph must not copy from the host
    received = xp.where(attended > UNSEEN, attended, UNSEEN)
    missing = xp.log(xp.where(received < 1.0, received, 1.0))
    return xp.sum(xp.where(column < words[:, None, None], missing, 0.0), axis=2)


def exponent(options: DecodeOptions) -> float:
    """Return the power of the normaliser; 0 if scores are plain sums."""
    return options.length_penalty if options.normalize_scores else 0.0


class Scorer:
    """Scores hypotheses by the options of a request (docs/reference.md 6, item 6, and the formula above)."""

    __slots__ = ("_coverage", "_divides", "_divisor_at", "_divisors", "_nonwords", "_power", "_reward", "_wu")

    def __init__(self, options: DecodeOptions) -> None:
        self._power, self._wu = exponent(options), options.length_normalization == WU
        self._reward, self._coverage = options.word_reward, options.coverage_penalty
        # tokens that earn no reward as a word: the end, except in Marian's word penalty
        self._nonwords = 0 if options.beam_rule == MARIAN else 1
        self._divisors: list[float] = []  # by length
        self._divisor_at = self._divisors.__getitem__  # by step
        self._divides = False  # whether a score is only the sum over its divisor

    def __call__(self, cumulative: float, length: int, uncovered: float = 0.0) -> float:
        """Return the score of one hypothesis.

        cumulative: sum of its log-probabilities.
        length: number of its tokens, end-of-sentence included.
        uncovered: `log_coverage` of the hypothesis.
        """
        return self.scores((cumulative,), (length - 1,), (uncovered,))[0]

    def scores(
        self, totals: Sequence[float], steps: Sequence[int], uncovered: Sequence[float], cut: int = -1
    ) -> list[float]:
        """Return the scores of hypotheses.

        totals: sum of the log-probabilities of each hypothesis.
        steps: step of each hypothesis's last token.
        uncovered: `log_coverage` of each hypothesis.
        cut: step at which hypotheses are cut without end-of-sentence, -1 for none.
        """
        try:
            if self._divides:
                return [*map(truediv, totals, map(self._divisor_at, steps))]
            return self._general_scores(totals, steps, uncovered, cut)
        except IndexError:  # the longest hypothesis so far
            self._extend(max(steps) + 1)
            return self.scores(totals, steps, uncovered, cut)

    def _general_scores(
        self, totals: Sequence[float], steps: Sequence[int], uncovered: Sequence[float], cut: int
    ) -> list[float]:
        """Return the scores for any options."""
        divisors, reward, nonwords = self._divisors, self._reward, self._nonwords
        coverage, scores = self._coverage, list[float]()
        for total, step, missing in zip(totals, steps, uncovered, strict=True):
            length = step + (step != cut)  # end-of-sentence included, unless the limit cut it
            divisor = divisors[length]
            total += reward * (length - nonwords)
            # a divisor of 0 gives an infinite score, which is then replaced by a finite one
            value = (total / divisor if divisor else total * math.inf) + coverage * missing
            scores.append(value if math.isfinite(value) else float(np.nan_to_num(value)))
        return scores

    def _extend(self, length: int) -> None:
        """Compute the divisors of lengths up to this one."""
        # rounded up to a multiple of KNOWN_LENGTHS
        self._divisors = _divisors(-(-(length + 1) // KNOWN_LENGTHS), self._power, self._wu)
        # a hypothesis whose last token is of step s has the length s + 1
        self._divisor_at = self._divisors[1:].__getitem__
        ordinary = min(self._divisors[1:]) >= LEAST_DIVISOR
        self._divides = ordinary and self._nonwords == 1 and not (self._reward or self._coverage)


@lru_cache(1 << 10)
def scorer(options: DecodeOptions) -> Scorer:
    """Return the scorer of a request's options."""
    return Scorer(options)


@lru_cache(1 << 8)
def _divisors(rounds: int, power: float, wu: bool) -> list[float]:
    """Return the normaliser of each length below rounds * `KNOWN_LENGTHS`."""
    with np.errstate(all="ignore"):  # an extreme penalty gives an extreme, finite score
        lengths = np.arange(rounds * KNOWN_LENGTHS, dtype=np.float64)
        divisors: list[float] = normaliser(np, lengths, np.float64(power), np.asarray(wu)).tolist()
        return divisors
