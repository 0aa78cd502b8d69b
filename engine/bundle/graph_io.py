"""Names of the inputs and outputs of a bundle's graphs, for the export and for the executors.

Inputs of a step are the fields of the search (`step_fields`), `memory.*` with `mask`, `state.*` with
`index.*`, `cache.*` with `lineage`, and `among` for a shortlist. Outputs are `scores`, `ids`, `attention` and
`column.*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.bundle.config import ModelConfig
from engine.bundle.specs import SOURCE, MemorySpec, StateSpec
from engine.native.step_arrays import STEP_INPUTS

MEMORY: Final = "memory"
STATE: Final = "state"
CACHE: Final = "cache"
INDEX: Final = "index"
COLUMN: Final = "column"
STATEFUL: Final = (MEMORY, STATE, CACHE)  # kinds of inputs that an executor keeps from step to step
LM_WEIGHT: Final = "lm_weight"  # a further input of a model with a language model


def io_name(kind: str, of: str | int) -> str:
    """Return the name of an input or output, such as "state.3"."""
    return f"{kind}.{of}"


def step_fields(config: ModelConfig) -> tuple[str, ...]:
    """Return the fields of `StepInput` that the step graph of a model reads in addition to `k`."""
    return STEP_INPUTS if config.language_model is None else (*STEP_INPUTS, LM_WEIGHT)


def kind_of(name: str) -> str:
    """Return the kind of an input or output: the part of its name before the first dot."""
    return name.partition(".")[0]


def specs_of(
    shapes: Iterable[tuple[str, Sequence[Any]]], longest: int
) -> tuple[tuple[MemorySpec, ...], tuple[StateSpec, ...]]:
    """Derive from the inputs of a step what a lane keeps: its memory and its states.

    shapes: names and shapes of all inputs; a size that is known only at run time is no positive integer.
    longest: maximum number of columns of a cache.
    """
    memory, states = [], []
    for name, shape in shapes:
        kind, _, of = name.partition(".")
        if kind == MEMORY:
            sizes = (d if isinstance(d, int) and d > 0 else SOURCE for d in shape[1:])
            memory.append(MemorySpec(of, tuple(sizes)))
        elif kind == STATE:
            states.append(StateSpec(of, shape[1], shape[3]))  # [slots, window, beams, dim]
        elif kind == CACHE:
            heads, width = shape[1], shape[4]  # [slots, heads, columns, beams, width]
            states.append(StateSpec(of, longest, heads * width, heads))
    return tuple(memory), tuple(states)


def lane_inputs(
    memory: Mapping[str, Any], mask: Any, rings: Mapping[str, Any], caches: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the tensors that a lane keeps from step to step, by the names of the step's inputs.

    memory: tensors of the source, by the names of the memory spec.
    mask: mask of the memory, unused without memory.
    rings: ring buffers of the layers' last inputs, by the names of the state spec.
    caches: keys and values of all steps so far, by the names of the state spec.
    """
    inputs = {io_name(MEMORY, name): block for name, block in memory.items()}
    if inputs:
        inputs["mask"] = mask
    inputs |= {io_name(STATE, name): ring for name, ring in rings.items()}
    return inputs | {io_name(CACHE, name): block for name, block in caches.items()}


def history_inputs(rows: Mapping[int, Any], lineage: Any) -> dict[str, Any]:
    """Return the inputs with which a step selects the state of each hypothesis.

    rows: rows of the rings that hold each hypothesis (`Past.rows`), by window.
    lineage: attention mask of the caches (`Past.lineage`); None without caches.
    """
    inputs = {io_name(INDEX, window): index for window, index in rows.items()}
    return inputs if lineage is None else inputs | {"lineage": lineage}


def lane_dtype(types: Mapping[str, Any], wide: Any) -> Any:
    """Return one type for all tensors that a lane keeps: their common type, or `wide` if they differ.

    They differ in a graph of 16-bit floats with running sums, which stay fp32.

    types: type of each input, by name.
    wide: type that holds the values of all inputs.
    """
    dtypes = {dtype for name, dtype in types.items() if kind_of(name) in STATEFUL}
    return dtypes.pop() if len(dtypes) == 1 else wide
