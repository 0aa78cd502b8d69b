"""ctypes mirrors of the structures of search.cpp; a library with another layout is refused when it is
loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from engine.errors import ConfigError

STEP_VERSION: Final = 1  # the same as in search.cpp; increment it with any change of a field
POINTER, WHOLE = ctypes.c_void_p, ctypes.c_int64
# arrays of `engine.search.state.SearchState`, in the order of the structure
STATE_FIELDS: Final = (
    *("tokens", "scores", "trail", "kept_scores", "kept_trail", "kept_steps", "kept_count", "done", "step"),
    *("current", "parents", "total", "plan", "free", "width", "shortest", "longest", "narrowing"),
    *("temperature", "unk_penalty", "word_reward"),
)
# fields of `engine.search.executor.StepInput` that every step graph reads, in the order of the structure
STEP_INPUTS: Final = ("tokens", "positions", "forced", "banned", "temperature", "unk_penalty", "eos_penalty")


class HeldColumn(ctypes.Structure):
    """Mirror of `Held`: a ring or cache, and the column that a step adds to it."""

    _fields_ = [
        ("data", POINTER),
        ("column", POINTER),
        ("window", WHOLE),
        ("dim", WHOLE),
        ("heads", WHOLE),
    ]


class RowIndex(ctypes.Structure):
    """Mirror of `Index`: rows of the rings that the layers of a window read."""

    _fields_ = [("rows", POINTER), ("window", WHOLE)]


class StepArrays(ctypes.Structure):
    """Mirror of `Step`: addresses and sizes of all arrays that a step reads and writes."""

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
    """Raise ConfigError, with the remedy, if a library was built with other structures."""
    expected = [STEP_VERSION, *map(ctypes.sizeof, (StepArrays, HeldColumn, RowIndex))]
    try:
        layout = list((WHOLE * len(expected)).in_dll(ctypes.CDLL(str(path)), "convoy_step_layout"))
    except ValueError:  # a library older than version 1
        layout = []
    if layout != expected:
        raise ConfigError(f"{path} was built from other sources; run: make native")
