"""Our own operators for ONNX Runtime on the CPU, in C++: optional, built where a compiler is.

Graphs of standard operators only ("pure") give the same answers without them. See kernels.h.

build          compiles them
step_arrays    the structures of a step's host work
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
# the environment variable that names an instruction set; by default the best of this machine is taken
ISA_VARIABLE: Final = "CONVOY_KERNELS_ISA"
PANEL: Final = 32  # columns that the products compute together


class InstructionSet(NamedTuple):
    """The instruction set with which a library runs here.

    fast: whether its operators are faster than the standard ones.
    """

    name: str
    fast: bool


def library() -> Path | None:
    """Find the library of operators, if it was built and runs faster here than standard operators do.

    An instruction set that is forced by `ISA_VARIABLE` counts as fast. Raises ConfigError for a library that
    was built from other sources.
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
    """Tell which instruction set a library runs with here; None where it is not for this machine."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:
        return None
    loaded.convoy_kernels.restype = ctypes.c_char_p
    return InstructionSet(loaded.convoy_kernels().decode(), bool(loaded.convoy_fast()))


def pack(weights: NDArray[np.int8], *, gated: bool = False) -> NDArray[np.int8]:
    """Pack int8 weights [K, N] in the order in which the product reads them; same shape, same bytes.

    Panels of 32 columns (fewer at the end), each K // 4 groups [columns, 4] and then [columns, K % 4].

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
    """Pack weights [K, N] in the order in which the product of floats reads them.

    Returns [K, N filled up to panels]: panels [K, 32], filled up with zeros.

    gated: as in `pack`, 16 values and their gates.
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
