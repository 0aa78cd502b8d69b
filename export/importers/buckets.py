"""Buckets of distances: T5's bias of attention has a row for each, ours one for each distance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def buckets(count: int, span: int, *, causal: bool) -> NDArray[np.int64]:
    """Return the bucket of each distance, of the query after the key, from the least to the most that counts.

    count: of buckets.
    span: the distance from which on all are one.
    causal: keys after the query don't count.
    """
    distances = np.arange(0 if causal else -span, span + 1)
    half = count if causal else count // 2
    # keys after the query have the upper half of an encoder's buckets
    base = 0 if causal else (distances < 0) * half
    far = np.abs(distances)
    exact = half // 2
    log = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(span / exact)
    )
    large = np.minimum(exact + (log * np.float32(half - exact)).astype(np.int64), half - 1)
    return np.asarray(base + np.where(far < exact, far, large), np.int64)
