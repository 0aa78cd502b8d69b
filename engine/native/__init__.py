"""Our own operators for ONNX Runtime on the CPU, in C++. They are optional, and built if there is a compiler.

Graphs of standard operators only ("pure") give the same answers without them. kernels.h describes the
operators.

build          compiles the library
step_arrays    structures of a step's host work
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.native.step_arrays import check_layout

LIBRARIES: Final = ("libconvoy.so", "libconvoy.dylib")
# environment variable that names an instruction set; the default is the best one of this machine
ISA_VARIABLE: Final = "CONVOY_KERNELS_ISA"
PANEL: Final = 32  # columns that a product computes together


class InstructionSet(NamedTuple):
    """The instruction set that a library uses on this machine.

    name: key in `engine.native.build.SETS`.
    fast: whether its operators are faster than the standard ones.
    """

    name: str
    fast: bool


def library() -> Path | None:
    """Return the library of operators, or None if it was not built or is not faster than standard operators
    on this machine.

    An instruction set that is forced by `ISA_VARIABLE` counts as fast. Raises ConfigError if the library was
    built from other sources.
    """
    path = next((p for name in LIBRARIES if (p := Path(__file__).with_name(name)).is_file()), None)
    if path is None:
        return None
    level = instruction_set(path)
    if level is None or not (level.fast or os.environ.get(ISA_VARIABLE) == level.name):
        return None
    check_layout(path)
    return path


def kernels_name() -> str:
    """Return the instruction set of the operators that run here ("avx2", ...), "pure" for standard operators.

    Raises ConfigError for a library that was built from other sources.
    """
    path = library()
    level = None if path is None else instruction_set(path)
    return "pure" if level is None else level.name


@cache
def instruction_set(path: Path) -> InstructionSet | None:
    """Return the instruction set that a library uses on this machine; None if it is for another machine."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:
        return None
    loaded.convoy_kernels.restype = ctypes.c_char_p
    return InstructionSet(loaded.convoy_kernels().decode(), bool(loaded.convoy_fast()))


def pack(weights: NDArray[np.int8], *, gated: bool = False) -> NDArray[np.int8]:
    """Return int8 weights [K, N] in the order in which the product reads them, with the same shape.

    The order is panels of 32 columns (the last may have fewer); a panel is K // 4 groups [columns, 4] and
    then [columns, K % 4].

    weights: weights to pack.
    gated: the second half of the columns are the gates of the first; each panel is half values, half gates.
    """
    rows, columns = weights.shape
    whole, half = rows // 4 * 4, columns // 2
    step = PANEL // 2 if gated else PANEL
    parts = []
    for begin in range(0, half if gated else columns, step):
        panel = weights[:, begin : min(begin + step, half) if gated else begin + step]
        if gated:
            panel = np.concatenate([panel, weights[:, half + begin :][:, : panel.shape[1]]], 1)
        parts.append(panel[:whole].reshape(-1, 4, panel.shape[1]).transpose(0, 2, 1).ravel())
        parts.append(panel[whole:].T.ravel())
    return np.concatenate(parts).reshape(rows, columns)


def pack32(weights: NDArray[np.float32], *, gated: bool = False) -> NDArray[np.float32]:
    """Return float weights [K, N] in the order in which the product reads them: panels [K, 32], the last one
    padded with zeros, as an array [K, N rounded up].

    weights: weights to pack.
    gated: the second half of the columns are the gates of the first; a panel is 16 values and their gates.
    """
    rows, columns = weights.shape
    parts = (weights[:, : columns // 2], weights[:, columns // 2 :]) if gated else (weights,)
    step = PANEL // len(parts)
    count = -(-parts[0].shape[1] // step)
    panels = np.zeros((count, rows, len(parts), step), np.float32)
    for i, part in enumerate(parts):
        full = np.zeros((rows, count * step), np.float32)
        full[:, : part.shape[1]] = part
        panels[:, :, i] = full.reshape(rows, count, step).transpose(1, 0, 2)
    return panels.reshape(rows, count * PANEL)
