"""Buckets of distances: T5's attention bias has a row for each bucket, ours a row for each distance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def buckets(count: int, span: int, *, causal: bool) -> NDArray[np.int64]:
    """Return the bucket of each distance (query position minus key position), in ascending order.

    count: number of buckets.
    span: largest distance; greater ones share its bucket.
    causal: whether the query attends to no later keys, so that distances begin at 0 instead of -span.
    """
    distances = np.arange(0 if causal else -span, span + 1)
    half = count if causal else count // 2
    # keys after the query have the upper half of an encoder's buckets
    base = 0 if causal else (distances < 0) * half
    # T5's formula: half of the buckets hold one distance each, the others grow by the logarithm
    far = np.abs(distances)
    exact = half // 2
    log = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(span / exact)
    )
    large = np.minimum(exact + (log * np.float32(half - exact)).astype(np.int64), half - 1)
    return np.asarray(base + np.where(far < exact, far, large), np.int64)
