"""Constant tables for numpy and torch executors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sinusoids(rows: int, dim: int, zero_row: int | None, paper: bool = False) -> NDArray[np.float32]:
    """Return sinusoidal positions [rows, dim]: sines in the first half, cosines in the second.

    The row number is the position index (docs/reference.md 1). Computed in fp32 like the reference, because
    its rounding of large angles is part of the result.

    rows: number of positions.
    dim: width of a row.
    zero_row: number of a row that is set to zeros, or None.
    paper: frequencies 10000 ** (-2i / dim) (Vaswani et al. 2017, 3.5) in double precision, as `transformers`
        computes them for Marian's models; otherwise the frequencies of fairseq and Marian.
    """
    half = dim // 2
    if paper:
        angles = np.arange(rows)[:, None] * np.power(10000.0, -2 * np.arange(half) / dim)
    else:
        step = np.log(10000.0) / max(half - 1, 1)
        frequencies = np.exp(np.arange(half, dtype=np.float32) * np.float32(-step))
        angles = np.arange(rows, dtype=np.float32)[:, None] * frequencies[None]
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if dim % 2:
        table = np.concatenate([table, np.zeros((rows, 1), np.float32)], axis=1)
    if zero_row is not None:
        table[zero_row] = 0.0
    return table.astype(np.float32)


def timing(rows: int, dim: int) -> NDArray[np.float32]:
    """Return SliceNet's timing signal [rows, dim] (docs/models-slicenet.md), in fp32 like the reference.

    Channels 0 to 15 hold sines of 16 timescales from 1 to 10000, channels 16 to 31 cosines, others zeros.
    """
    step = np.float32(np.log(10000.0) / 15)
    angles = np.arange(rows, dtype=np.float32)[:, None] * np.exp(np.arange(16, dtype=np.float32) * -step)
    table = np.zeros((rows, dim), np.float32)
    table[:, :16], table[:, 16:32] = np.sin(angles), np.cos(angles)
    return table
