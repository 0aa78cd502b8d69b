"""Requests that arrive at random, and how long the slowest of them waited: the same for every comparison."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Yield the moments of a Poisson process of `rate` a second, in seconds from now, without end."""
    chance, at = random.Random(seed), 0.0
    while True:
        at += chance.expovariate(rate)
        yield at


def percentile(values: Sequence[float], p: float) -> float:
    """Return the smallest value that p per cent do not exceed (nearest rank); NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]
