"""The structures of search.cpp, as ctypes has them; a library with others is refused when it is loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from engine.errors import ConfigError

STEP_VERSION: Final = 1  # as in search.cpp: to be raised with any change of a structure's fields
POINTER, WHOLE = ctypes.c_void_p, ctypes.c_int64
# arrays of a search's state, in the order of the structure
STATE_FIELDS: Final = (
    *("tokens", "scores", "trail", "kept_scores", "kept_trail", "kept_steps", "kept_count", "done", "step"),
    *("current", "parents", "total", "plan", "free", "width", "shortest", "longest", "narrowing"),
    *("temperature", "unk_penalty", "word_reward"),
)
# inputs of the graph, likewise
STEP_INPUTS: Final = ("tokens", "positions", "forced", "banned", "temperature", "unk_penalty", "eos_penalty")


class HeldColumn(ctypes.Structure):
    """Mirror `Held`: a ring or cache, and the column that a step adds to it."""

    _fields_ = [
        ("data", POINTER),
        ("column", POINTER),
        ("window", WHOLE),
        ("dim", WHOLE),
        ("heads", WHOLE),
    ]


class RowIndex(ctypes.Structure):
    """Mirror `Index`: the rows of rings that the layers of a window read."""

    _fields_ = [("rows", POINTER), ("window", WHOLE)]


class StepArrays(ctypes.Structure):
    """Mirror `Step`: addresses and sizes of all that a step reads and writes."""

    _fields_ = [
        *((name, WHOLE) for name in ("beams", "state_columns", "candidates", "pad", "eos")),
        *((name, POINTER) for name in STATE_FIELDS),
        ("taken", POINTER),
        *((f"fed_{name}", POINTER) for name in STEP_INPUTS),
        ("best", POINTER),
        ("ids", POINTER),
        ("ancestors", POINTER),
        ("memory_of_ancestors", WHOLE),
        ("indices", POINTER),
        ("index_count", WHOLE),
        ("held", POINTER),
        ("held_count", WHOLE),
        ("writers", POINTER),
        ("cache_columns", WHOLE),
        ("lineage", POINTER),
    ]


def check_layout(path: Path) -> None:
    """Raise ConfigError, with the remedy, where a library was built with other structures than these."""
    expected = [STEP_VERSION, *map(ctypes.sizeof, (StepArrays, HeldColumn, RowIndex))]
    try:
        layout = list((WHOLE * len(expected)).in_dll(ctypes.CDLL(str(path)), "convoy_step_layout"))
    except ValueError:  # there was none before version 1
        layout = []
    if layout != expected:
        raise ConfigError(f"{path} was built from other sources than these: run: make native")
