"""How long a turn of the engine takes: a line through what turns took, their speed of late, and a margin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

HALF_LIFE_SECONDS: Final = 30.0  # in which half of a margin is taken back, or a sample counts half
SPEED_HALF_LIFE_SECONDS: Final = 1.0  # in which a turn counts half for the speed of turns of late
MIN_RESERVE: Final = 1.3  # a waiting request must be in time even if turns become so many times slower
FIRST_SLOWDOWN: Final = 2.0  # how many times slower turns may become, before that has been seen
MAX_FACTOR: Final = 4.0  # of a margin, and of a slowdown
MARGIN_GROWTH: Final = 1.5  # of the margin at each late answer
PULL_TO_ORIGIN: Final = 0.01  # how much a line is drawn towards the origin: a share of the mean x, squared


class LineFit:
    """A straight line y(x) through samples of positive numbers, whose old ones fade. Its slope lies between 0
    and that of a line through the origin, to which it tends while samples have much the same x."""

    def __init__(self, samples: Iterable[tuple[float, float]] = ()) -> None:
        """Fit a line to samples (x, y); all count alike."""
        self._weight = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self.extend(samples, 1.0)

    def add(self, x: float, y: float, keep: float) -> None:
        """Take a sample in.

        x, y: of the sample.
        keep: the weight of older samples from now on, as a share of theirs before: 0 to 1.
        """
        self.extend(((x, y),), keep)

    def extend(self, samples: Iterable[tuple[float, float]], keep: float) -> None:
        """Take samples in, one after the other.

        samples: x and y of each.
        keep: as of `add`.
        """
        weight, mean_x, mean_y = self._weight, self._x, self._y
        xx, xy, yy = self._xx, self._xy, self._yy
        for x, y in samples:
            weight = keep * weight + 1
            share = 1 / weight
            rest, dx, dy = 1 - share, x - mean_x, y - mean_y
            ahead_x, ahead_y = share * dx, share * dy
            mean_x += ahead_x
            mean_y += ahead_y
            xx = rest * (xx + ahead_x * dx)
            xy = rest * (xy + ahead_x * dy)
            yy = rest * (yy + ahead_y * dy)
        self._weight, self._x, self._y = weight, mean_x, mean_y
        self._xx, self._xy, self._yy = xx, xy, yy

    @property
    def slope(self) -> float:
        """The line's slope; 0 while there is no sample."""
        pull = PULL_TO_ORIGIN * self._x * self._x
        if not pull:
            return 0.0
        proportional = self._y / self._x
        return min(max(0.0, (self._xy + pull * proportional) / (self._xx + pull)), proportional)

    def at(self, x: float) -> float:
        """Return the line's y at an x; 0 while there is no sample."""
        return self._y + self.slope * (x - self._x)

    @property
    def deviation(self) -> float:
        """Standard deviation of the samples from the line."""
        slope = self.slope
        return math.sqrt(max(0.0, self._yy - 2 * slope * self._xy + slope * slope * self._xx))

    @property
    def high(self) -> float:
        """A high y, whatever the x: the mean and a standard deviation; a sixth of samples are above."""
        return self._y + math.sqrt(self._yy)


class Tempo:
    """How long turns take: by the rows in use, how many times slower of late than on the whole, and how slow
    at worst."""

    def __init__(self) -> None:
        self._line = LineFit()  # seconds of a turn, by rows
        self._rows = 0.0  # the most rows of late
        self._taken = self._usual = 0.0  # seconds of turns of late, and by the line
        self._worst, self._since = FIRST_SLOWDOWN, 0.0

    @property
    def _slowdown(self) -> float:
        return self._taken / self._usual if self._usual else 1.0

    def add(self, rows: int, seconds: float, now: float) -> None:
        """Take in a turn.

        rows: that it stepped.
        seconds: that it took.
        now: the time at its end, in seconds.
        """
        of_late = math.exp2(-seconds / SPEED_HALF_LIFE_SECONDS)
        keep = math.exp2(-seconds / HALF_LIFE_SECONDS)
        self._line.add(rows, seconds, keep)
        self._rows = max(rows, keep * self._rows)
        self._taken = of_late * self._taken + seconds
        self._usual = of_late * self._usual + self._line.at(rows)
        worst = max(self._slowdown, faded(self._worst, now - self._since))
        self._worst, self._since = min(worst, MAX_FACTOR), now  # one long halt is no speed

    def least_seconds(self, rows: int) -> float:
        """Return the seconds of a turn on the whole, or of late where these are fewer.

        Rows beyond the most of late cost nothing.
        """
        return self._line.at(min(rows, self._rows)) * min(1.0, self._slowdown)

    def seconds(self, rows: int, *, extrapolate: bool = True) -> float:
        """Return the seconds of a turn at the speed of late; 0 while there was none.

        rows: in use.
        extrapolate: let rows beyond the most of late cost as much each as those before; else they cost
            nothing.
        """
        return self._line.at(rows if extrapolate else min(rows, self._rows)) * self._slowdown

    def reserve(self, now: float) -> float:
        """Estimate how many times slower turns may become, if they become as slow as they have been."""
        return max(MIN_RESERVE, faded(self._worst, now - self._since) / self._slowdown)


class Margin:
    """The factor by which late answers have widened the reserve: 1 is none."""

    def __init__(self) -> None:
        self._value, self._since = 1.0, -math.inf

    def at(self, now: float) -> float:
        """Return the margin at a time in seconds."""
        return faded(self._value, now - self._since)

    def widen(self, now: float, arrived: float) -> None:
        """Grow for a request that was late, if it was accepted after the last growth: others say nothing new.

        now: the time in seconds.
        arrived: the time at which the request did.
        """
        if arrived >= self._since:
            self._value, self._since = min(self.at(now) * MARGIN_GROWTH, MAX_FACTOR), now


def faded(factor: float, seconds: float) -> float:
    """Return a factor after so many seconds: time takes it back to 1."""
    return 1 + (factor - 1) * math.exp2(-seconds / HALF_LIFE_SECONDS)
