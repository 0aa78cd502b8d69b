"""Our own operators for ONNX Runtime on the CPU, in C++: optional, built where a compiler is.

Graphs of standard operators only ("pure") give the same answers without them. See kernels.h.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LIBRARY: Final = "libconvoy.so"
BLOCK: Final = 16  # columns that the product of bytes computes together


def library() -> Path | None:
    """The library of operators, if it was built."""
    path = Path(__file__).with_name(LIBRARY)
    return path if path.is_file() else None


def pack(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """Int8 weights [K, N] in the order that the product reads them; same shape, same bytes.

    Blocks of 16 columns (fewer at the end), each K // 4 groups [columns, 4] and then [columns, K % 4].
    """
    rows, columns = weights.shape
    whole = rows // 4 * 4
    parts = []
    for begin in range(0, columns, BLOCK):
        block = weights[:, begin : begin + BLOCK]
        parts.append(block[:whole].reshape(-1, 4, block.shape[1]).transpose(0, 2, 1).ravel())
        parts.append(block[whole:].T.ravel())
    return np.concatenate(parts).reshape(rows, columns)
