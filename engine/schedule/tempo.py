"""Estimates how long a turn takes: a line fit of durations, the recent slowdown, and a margin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

HALF_LIFE_SECONDS: Final = 30.0  # half-life of a margin and of the weight of a duration
SPEED_HALF_LIFE_SECONDS: Final = 1.0  # half-life of the weight of a turn in the recent slowdown
MIN_RESERVE: Final = 1.3  # a waiting request must be in time even if turns become this many times slower
FIRST_SLOWDOWN: Final = 2.0  # assumed worst slowdown before one was measured
MAX_FACTOR: Final = 4.0  # largest margin and largest slowdown
MARGIN_GROWTH: Final = 1.5  # factor on the margin at a late answer
PULL_TO_ORIGIN: Final = 0.01  # weight of the line through the origin, relative to the squared mean of x


class LineFit:
    """A straight line y(x) fitted to positive samples; old samples lose weight.

    The slope is between 0 and the slope of a line through the origin. If all samples have nearly the same x,
    the line tends to the line through the origin.
    """

    def __init__(self, samples: Iterable[tuple[float, float]] = ()) -> None:
        """Fit a line to samples (x, y) of equal weight."""
        self._weight = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self.extend(samples, 1.0)

    def add(self, x: float, y: float, keep: float) -> None:
        """Add a sample.

        x, y: coordinates of the sample.
        keep: factor on the weight of all older samples, 0 to 1.
        """
        self.extend(((x, y),), keep)

    def extend(self, samples: Iterable[tuple[float, float]], keep: float) -> None:
        """Add samples, one after the other.

        samples: x and y of each sample.
        keep: factor on the weight of all older samples at each sample, 0 to 1.
        """
        # running weighted means, variances and covariance (Welford)
        weight, mean_x, mean_y = self._weight, self._x, self._y
        xx, xy, yy = self._xx, self._xy, self._yy
        for x, y in samples:
            weight = keep * weight + 1
            share = 1 / weight
            rest, dx, dy = 1 - share, x - mean_x, y - mean_y
            shift_x, shift_y = share * dx, share * dy
            mean_x += shift_x
            mean_y += shift_y
            xx = rest * (xx + shift_x * dx)
            xy = rest * (xy + shift_x * dy)
            yy = rest * (yy + shift_y * dy)
        self._weight, self._x, self._y = weight, mean_x, mean_y
        self._xx, self._xy, self._yy = xx, xy, yy

    @property
    def slope(self) -> float:
        """Slope of the line; 0 without samples."""
        pull = PULL_TO_ORIGIN * self._x * self._x
        if not pull:
            return 0.0
        proportional = self._y / self._x
        return min(max(0.0, (self._xy + pull * proportional) / (self._xx + pull)), proportional)

    def at(self, x: float) -> float:
        """Return y of the line at an x; 0 without samples."""
        return self._y + self.slope * (x - self._x)

    @property
    def deviation(self) -> float:
        """Standard deviation of the samples from the line."""
        slope = self.slope
        return math.sqrt(max(0.0, self._yy - 2 * slope * self._xy + slope * slope * self._xx))

    @property
    def high(self) -> float:
        """Mean of y plus one standard deviation, for any x; about a sixth of the samples are higher."""
        return self._y + math.sqrt(self._yy)


class Tempo:
    """Duration of turns: a line fit over rows (slots in use times beams), times the recent slowdown."""

    def __init__(self) -> None:
        self._line = LineFit()  # seconds of a turn over its rows
        self._rows = 0.0  # largest number of rows of recent turns
        self._taken = self._usual = 0.0  # seconds of recent turns: measured, and by the line
        self._worst, self._since = FIRST_SLOWDOWN, 0.0  # worst slowdown, and when it was computed

    @property
    def _slowdown(self) -> float:
        return self._taken / self._usual if self._usual else 1.0

    def add(self, rows: int, seconds: float, now: float) -> None:
        """Add a turn.

        rows: number of rows that the turn stepped.
        seconds: duration of the turn.
        now: time at its end in seconds.
        """
        keep_recent = math.exp2(-seconds / SPEED_HALF_LIFE_SECONDS)
        keep = math.exp2(-seconds / HALF_LIFE_SECONDS)
        self._line.add(rows, seconds, keep)
        self._rows = max(rows, keep * self._rows)
        self._taken = keep_recent * self._taken + seconds
        self._usual = keep_recent * self._usual + self._line.at(rows)
        worst = max(self._slowdown, faded(self._worst, now - self._since))
        self._worst, self._since = min(worst, MAX_FACTOR), now  # a single long halt must not count fully

    def least_seconds(self, rows: int) -> float:
        """Return the seconds of a turn at the usual speed, or at the recent speed if that is faster.

        rows: number of rows in use; rows above the largest number of recent turns add no time.
        """
        return self._line.at(min(rows, self._rows)) * min(1.0, self._slowdown)

    def seconds(self, rows: int, *, extrapolate: bool = True) -> float:
        """Return the seconds of a turn at the recent speed; 0 before the first turn.

        rows: number of rows in use.
        extrapolate: rows above the largest number of recent turns cost as much as others; otherwise nothing.
        """
        return self._line.at(rows if extrapolate else min(rows, self._rows)) * self._slowdown

    def reserve(self, now: float) -> float:
        """Return how many times slower turns become if they get as slow as the worst recent slowdown."""
        return max(MIN_RESERVE, faded(self._worst, now - self._since) / self._slowdown)


class Margin:
    """A factor of 1 or more that late answers widen and time reduces."""

    def __init__(self) -> None:
        self._value, self._since = 1.0, -math.inf

    def at(self, now: float) -> float:
        """Return the margin at a time in seconds."""
        return faded(self._value, now - self._since)

    def widen(self, now: float, arrived: float) -> None:
        """Widen the margin for a late request, unless the request arrived before the last widening.

        now: current time in seconds.
        arrived: time at which the request arrived, in seconds.
        """
        if arrived >= self._since:
            self._value, self._since = min(self.at(now) * MARGIN_GROWTH, MAX_FACTOR), now


def faded(factor: float, seconds: float) -> float:
    """Return what is left of a factor after `seconds`: the part above 1 halves in HALF_LIFE_SECONDS."""
    return 1 + (factor - 1) * math.exp2(-seconds / HALF_LIFE_SECONDS)
