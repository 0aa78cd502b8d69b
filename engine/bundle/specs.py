"""Shapes of the tensors that a model keeps for a source and for each hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SOURCE: Final = -1  # in MemorySpec.shape: marks the axis of the source length


@dataclass(frozen=True, slots=True)
class StateSpec:
    """Decoder state of one layer for each hypothesis: its last `window` inputs of `dim` values.

    heads 0: a ring buffer [slots, window, beams, dim], read by row numbers (`Past.rows`); zero before the
    first token. heads > 0: a cache of all positions since the first, [slots, heads, columns, beams, dim /
    heads], with at least one column for each token of the longest active hypothesis; `Past.lineage` masks the
    entries of other hypotheses (`engine.executors.history`). Neither is permuted when beams are reordered. A
    model's step returns the new column [slots, beams, dim] of each state.

    exact: the state is a sum that stays float32 in every precision.
    """

    name: str
    window: int
    dim: int
    heads: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """A tensor that the encoder computes for the decoder, once per slot, shared by its beams.

    `shape` excludes the slot axis; exactly one entry is SOURCE, the padded source length.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def source_axis(self) -> int:
        """Axis of the source length, counted without the slot axis."""
        return self.shape.index(SOURCE)


class Specs(NamedTuple):
    """Everything that a model keeps for one slot."""

    memory: Sequence[MemorySpec]
    states: Sequence[StateSpec]
