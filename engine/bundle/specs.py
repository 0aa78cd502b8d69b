"""The specs by which executors know a model: what it keeps of a source and of each hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SOURCE: Final = -1  # in MemorySpec.shape: the axis that grows with the source


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Decoder state that one layer keeps of each hypothesis: its last `window` inputs of `dim` values.

    heads 0: a ring [slots, window, beams, dim], read through an index of ancestors; zero before the first
    token. heads > 0: a cache of everything since the first token, [slots, heads, columns, beams, dim /
    heads], with a column at least for each token of the longest hypothesis in flight; the lineage says which
    entries are a hypothesis's own (`engine.executors.history`). Neither is ever permuted with the beams. A
    model's step returns the new column [slots, beams, dim] of each.

    exact: a sum, which stays float32 whatever the model computes in.
    """

    name: str
    window: int
    dim: int
    heads: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """What the encoder leaves for the decoder, once per slot, shared by its beams.

    `shape` excludes the slot axis; exactly one entry is SOURCE, the padded source length.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def source_axis(self) -> int:
        """Axis of the source length, counted without the slot axis."""
        return self.shape.index(SOURCE)


class Specs(NamedTuple):
    """All that a model keeps of one slot."""

    memory: Sequence[MemorySpec]
    states: Sequence[StateSpec]
