"""Constant tables that both numpy and torch executors need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sinusoids(rows: int, dim: int, zero_row: int | None) -> NDArray[np.float32]:
    """Sinusoidal positions [rows, dim]: sines in the first half, cosines in the second; `zero_row` is zero.

    Row number is the position index (REFERENCE.md 1). Computed in fp32 like the reference, whose rounding
    of large angles is part of the result.
    """
    half = dim // 2
    step = np.log(10000.0) / max(half - 1, 1)
    frequencies = np.exp(np.arange(half, dtype=np.float32) * np.float32(-step))
    angles = np.arange(rows, dtype=np.float32)[:, None] * frequencies[None]
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if dim % 2:
        table = np.concatenate([table, np.zeros((rows, 1), np.float32)], axis=1)
    if zero_row is not None:
        table[zero_row] = 0.0
    return table.astype(np.float32)
