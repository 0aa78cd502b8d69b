"""The inputs and outputs of a bundle's graphs, by name: one place for who writes graphs and who runs them.

A step reads what the search asks (`step_fields`), `memory.*` with `mask`, `state.*` with `index.*`, `cache.*`
with `lineage`, and with a shortlist `among`; it answers `scores`, `ids`, `attention` and `column.*`.
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
STATEFUL: Final = (MEMORY, STATE, CACHE)  # kinds of inputs that an executor keeps between steps
LM_WEIGHT: Final = "lm_weight"  # and one more where a language model is beside the model


def io_name(kind: str, of: str | int) -> str:
    """Return the name of an input or output of this kind."""
    return f"{kind}.{of}"


def step_fields(config: ModelConfig) -> tuple[str, ...]:
    """List the fields of `StepInput` that the step graph of a model reads, beside `k`."""
    return STEP_INPUTS if config.language_model is None else (*STEP_INPUTS, LM_WEIGHT)


def kind_of(name: str) -> str:
    """Return the kind of an input or output, or its whole name where it is the only one."""
    return name.partition(".")[0]


def specs_of(
    shapes: Iterable[tuple[str, Sequence[Any]]], longest: int
) -> tuple[tuple[MemorySpec, ...], tuple[StateSpec, ...]]:
    """Read from a step's inputs what a lane holds.

    shapes: names and shapes of all inputs; a size known only at run time is no positive integer.
    longest: columns that a cache may need at most.
    """
    memory, states = [], []
    for name, shape in shapes:
        kind, _, of = name.partition(".")
        if kind == MEMORY:
            sizes = (d if isinstance(d, int) and d > 0 else SOURCE for d in shape[1:])
            memory.append(MemorySpec(of, tuple(sizes)))
        elif kind == STATE:
            states.append(StateSpec(of, shape[1], shape[3]))
        elif kind == CACHE:
            heads, width = shape[1], shape[4]
            states.append(StateSpec(of, longest, heads * width, heads))
    return tuple(memory), tuple(states)


def lane_inputs(
    memory: Mapping[str, Any], mask: Any, rings: Mapping[str, Any], caches: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect what a lane keeps between steps as inputs of its step.

    memory: tensors of the source, by the names of the memory spec.
    mask: of the memory, if there is any.
    rings: last inputs of layers, by the names of the state spec.
    caches: keys and values so far, by the names of the state spec.
    """
    inputs = {io_name(MEMORY, name): block for name, block in memory.items()}
    if inputs:
        inputs["mask"] = mask
    inputs |= {io_name(STATE, name): ring for name, ring in rings.items()}
    return inputs | {io_name(CACHE, name): block for name, block in caches.items()}


def history_inputs(rows: Mapping[int, Any], lineage: Any) -> dict[str, Any]:
    """Collect the inputs by which a step finds each hypothesis's own among what is held.

    lineage: None where nothing is cached.
    """
    inputs = {io_name(INDEX, window): index for window, index in rows.items()}
    return inputs if lineage is None else inputs | {"lineage": lineage}


def lane_dtype(types: Mapping[str, Any], wide: Any) -> Any:
    """Choose one type for all that a step of these inputs remembers.

    It is theirs where they agree, else `wide` (running sums stay fp32 in a graph of a narrower type).
    """
    dtypes = {dtype for name, dtype in types.items() if kind_of(name) in STATEFUL}
    return dtypes.pop() if len(dtypes) == 1 else wide
