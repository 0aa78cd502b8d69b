"""Random arrivals and percentiles, shared by all load tests."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Yield the arrival times of a Poisson process in seconds, without end.

    rate: mean number of arrivals a second.
    seed: start of the random numbers; equal seeds give equal results.
    """
    chance, at = random.Random(seed), 0.0
    while True:
        at += chance.expovariate(rate)
        yield at


def percentile(values: Sequence[float], p: float) -> float:
    """Return the p-th percentile by nearest rank; NaN without values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]
