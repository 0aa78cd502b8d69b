"""Copies within a lane, as plans of the kernel that makes them (scatter.cu): requests into slots, slots over
others, and slots' state into rows for the host.

A plan [terms, copies, 7] says how much each term of an item adds to each number of each of its copies. Plans
lie on the device, so that a step uploads only items: some numbers for each placed request, move or slot. All
requests that a step places are one upload and one launch; so are all moves, and all snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.executors.cuda.placing import ALIGNED_BYTES, ROW_FIELDS, ZERO_FIELDS, Starts
from engine.executors.history import History
from engine.executors.memory import Memory
from engine.search.state import FIELDS, SNAPSHOT, SearchState

SLOT_CHUNKS: Final = 16  # blocks that share a copy of a slot
COPY_NUMBERS: Final = 7  # of a copy, 8 bytes each, as in scatter.cu
TARGET, SOURCE, ROWS, BYTES, FILLED, TARGET_PITCH, SOURCE_PITCH = range(COPY_NUMBERS)
COLUMN_FIELDS: Final = ("tokens", "scores", "trail")  # a column for each step
SNAPSHOT_COLUMNS: Final = 32  # columns that are told are a multiple of this
Records = NDArray[np.int64]


class PlacementTerms(NamedTuple):
    """The terms of a placed request.

    one: 1.
    slot: where it goes.
    address: of its encoded row.
    width: positions of that row.
    begin: the first one of the source.
    length: positions of its source.
    read: positions that are not masked.
    starts: the address of its row of starts.
    longest: of its target.
    forced: the address of the tokens forced at each step.
    """

    one: Any
    slot: Any
    address: Any
    width: Any
    begin: Any
    length: Any
    read: Any
    starts: Any
    longest: Any
    forced: Any


class MoveTerms(NamedTuple):
    """The terms of a move.

    one: 1.
    source: the slot that is copied.
    target: the slot that is overwritten.
    """

    one: Any
    source: Any
    target: Any


class SnapshotTerms(NamedTuple):
    """The terms of a snapshot of a slot.

    one: 1.
    slot: that is copied.
    row: the address where its row goes.
    """

    one: Any
    slot: Any
    row: Any


@dataclass(frozen=True, slots=True)
class LaneArrays:
    """The arrays of a lane: [slots, ...] each, at the same places until `generation` changes."""

    memory: Memory
    history: History
    state: SearchState

    def arrays(self) -> list[Tensor]:
        rings, mask = [*self.history.rings.rings.values(), self.history.rings.ancestors], self.memory.mask
        state = [getattr(self.state, name) for name in FIELDS]
        return [*self.memory.blocks.values(), mask, *rings, *state, *self._caches()]

    def arrays_to_clear(self) -> list[Tensor]:
        """List the arrays that a placed request finds zero."""
        rings = [*self.history.rings.rings.values(), self.history.rings.ancestors]
        return [*rings, *(getattr(self.state, name) for name in ZERO_FIELDS), *self._caches()]

    def _caches(self) -> list[Tensor]:
        caches = self.history.caches
        return [] if caches is None else [caches.writers, *caches.blocks.values()]


def placement_plan(lane: LaneArrays, starts: Starts, masks: Tensor) -> Records:
    """Make the plan that places requests (`PlacementTerms`).

    lane: the arrays of slots.
    starts: packed rows of what searches begin with.
    masks: of every length, see `masks_of`.
    """
    memory, state = lane.memory, lane.state
    blocks = [memory.blocks[spec.name] for spec in memory.specs]
    begun = [*(getattr(state, name) for name in ROW_FIELDS), state.plan]
    arrays = [*blocks, memory.mask, *lane.arrays_to_clear(), *begun]
    plan = _plan(PlacementTerms, len(arrays))
    of = PlacementTerms(*plan)
    of.one[:, TARGET], strides = _layout(arrays)
    of.slot[:, TARGET] = of.one[:, FILLED] = strides
    of.one[:, ROWS] = 1
    before = 0  # bytes of a position in the parts of memory before, which lie one after the other in a row
    for i, spec in enumerate(memory.specs):
        rows, inner = (
            int(np.prod(axes))
            for axes in (spec.shape[: spec.source_axis], spec.shape[spec.source_axis + 1 :])
        )
        size, pitch = inner * blocks[i].element_size(), strides[i] // rows
        of.one[i, ROWS], of.one[i, FILLED], of.one[i, TARGET_PITCH] = rows, pitch, pitch
        of.address[i, SOURCE], of.width[i, SOURCE] = 1, before
        of.length[i, BYTES] = of.width[i, SOURCE_PITCH] = of.begin[i, SOURCE] = size
        before += rows * size
    mask, first, last = len(blocks), len(arrays) - len(begun), len(arrays) - 1
    of.one[mask, SOURCE], of.read[mask, SOURCE] = masks.data_ptr() + 4 * (masks.numel() // 2), -4
    of.one[mask, BYTES] = strides[mask]
    of.starts[first:last, SOURCE], of.one[first:last, SOURCE] = 1, [starts.begins[n] for n in ROW_FIELDS]
    of.one[first:last, BYTES] = of.one[first:last, FILLED] = [starts.used[name] for name in ROW_FIELDS]
    history = first + ROW_FIELDS.index("history")
    of.one[history, ROWS:] = state.history.shape[1], 8, 8, 8 * state.history.stride(1), 8  # its first column
    of.forced[last, SOURCE] = 1
    of.one[last, BYTES : FILLED + 1], of.longest[last, BYTES : FILLED + 1] = 8, 8  # what it can reach
    return plan


def move_plan(lane: LaneArrays) -> Records:
    """Make the plan of moves (`MoveTerms`)."""
    begins, strides = _layout(lane.arrays())
    plan = _plan(MoveTerms, len(begins))
    of = MoveTerms(*plan)
    of.one[:, TARGET] = of.one[:, SOURCE] = begins
    of.target[:, TARGET] = of.source[:, SOURCE] = strides
    of.one[:, ROWS], of.one[:, BYTES], of.one[:, FILLED] = 1, strides, strides
    return plan


def snapshot_dtype(state: SearchState, columns: int) -> np.dtype[Any]:
    """Make the type of a row of a snapshot. It has the fields `SNAPSHOT`.

    state: of the search.
    columns: that somebody has reached; tables have so many columns in it, or some more.
    """
    columns = -(-columns // SNAPSHOT_COLUMNS) * SNAPSHOT_COLUMNS
    formats = []
    for name in SNAPSHOT:
        array = getattr(state, name)
        shape = (min(columns, array.shape[1]), *array.shape[2:]) if name in COLUMN_FIELDS else array.shape[1:]
        formats.append((torch.empty(0, dtype=array.dtype).numpy().dtype, tuple(shape)))
    sizes = [-(-np.dtype(form).itemsize // ALIGNED_BYTES) * ALIGNED_BYTES for form in formats]
    ends = np.cumsum(sizes)
    offsets = (ends - sizes).tolist()
    described = {"names": SNAPSHOT, "formats": formats, "offsets": offsets, "itemsize": int(ends[-1])}
    return np.dtype(described)  # type: ignore[call-overload, no-any-return]


def snapshot_plan(state: SearchState, row: np.dtype[Any]) -> Records:
    """Make the plan of snapshots (`SnapshotTerms`).

    state: of the search.
    row: the type of their rows.
    """
    assert row.fields is not None
    plan = _plan(SnapshotTerms, len(SNAPSHOT))
    of = SnapshotTerms(*plan)
    of.one[:, SOURCE], of.slot[:, SOURCE] = _layout([getattr(state, name) for name in SNAPSHOT])
    of.row[:, TARGET], of.one[:, TARGET] = 1, [row.fields[name][1] for name in SNAPSHOT]
    of.one[:, ROWS] = 1
    of.one[:, BYTES] = of.one[:, FILLED] = [row.fields[name][0].itemsize for name in SNAPSHOT]
    return plan


def masks_of(positions: int, device: Any) -> Tensor:
    """Make float32 [2 * positions], zeros and then -inf: the mask of every length is a part of it."""
    masks = torch.zeros(2 * positions, device=device)
    masks[positions:] = -torch.inf
    return masks


def _plan(terms: Any, copies: int) -> Records:
    return np.zeros((len(terms._fields), copies, COPY_NUMBERS), np.int64)


def _layout(arrays: Sequence[Tensor]) -> tuple[Records, Records]:
    """Where arrays [slots, ...] lie, and bytes from slot to slot."""
    assert all(a.is_contiguous() for a in arrays)
    begins = np.array([a.data_ptr() for a in arrays], np.int64)
    return begins, np.array([a.stride(0) * a.element_size() for a in arrays], np.int64)
