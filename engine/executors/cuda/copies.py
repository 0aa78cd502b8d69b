"""Plans of the scatter kernel (scatter.cu), which makes many small copies in one launch: encoded sources into
slots, slots over other slots, search state into rows for the host.

A launch takes a plan and some items (requests to place, slots to move, slots to read) and makes every copy of
the plan once for each item. An item is a few numbers, its terms (slot, address, length ...). A copy is seven
numbers (`Copy`), each computed from the terms:

    number = sum over the terms of (the item's term) * plan[term, copy][number]

Example: `move_plan` of a lane with one array, which begins at address 5000 and has 400 bytes for each slot:

    term        target  source  rows  bytes  filled
    constant      5000    5000     1    400     400
    source           0     400     0      0       0
    target         400       0     0      0       0

The item (constant, source, target) = (1, 3, 2) copies one row of 400 bytes from 5000 + 3 * 400 to
5000 + 2 * 400: slot 3 over slot 2. Plans stay on the device, so that a step uploads only its items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.executors.cuda.placing import ALIGNED_BYTES, ROW_FIELDS, ZERO_FIELDS, InitialStates
from engine.executors.history import History
from engine.executors.memory import Memory
from engine.search.state import FIELDS, SNAPSHOT, SearchState

SLOT_CHUNKS: Final = 16  # blocks that share a copy of a slot
COLUMN_FIELDS: Final = ("tokens", "scores", "trail")  # fields with a column for each step
SNAPSHOT_COLUMNS: Final = 32  # a snapshot has a multiple of this many columns
TOKEN_BYTES: Final = 8
Int64Array = NDArray[np.int64]


class Copy(NamedTuple):
    """The numbers of a copy, in the order of scatter.cu; in a plan, what one term adds to each of them.

    target: address of the first row written.
    source: address of the first row read; 0 writes zeros only.
    rows: number of rows; a row is a run of adjacent bytes.
    bytes: bytes copied to each row.
    filled: bytes written to each row; those beyond `bytes` become zero.
    target_pitch: bytes from row to row of the target.
    source_pitch: bytes from row to row of the source.
    """

    target: int = 0
    source: int = 0
    rows: int = 0
    bytes: int = 0
    filled: int = 0
    target_pitch: int = 0
    source_pitch: int = 0


NOTHING: Final = Copy()


class PlacementTerms(NamedTuple):
    """The terms of a request that is placed.

    constant: 1.
    slot: number of its slot.
    address: address of the row with its encoded source (`EncodedRow`).
    width: positions of the encoded row, padding included.
    begin: first position of its source in the encoded row.
    length: positions of its source.
    read: positions that are not masked.
    initial: address of its initial search state (`InitialStates`).
    longest: tokens of its longest target.
    forced: address of the tokens forced at each step.
    """

    constant: Copy = NOTHING
    slot: Copy = NOTHING
    address: Copy = NOTHING
    width: Copy = NOTHING
    begin: Copy = NOTHING
    length: Copy = NOTHING
    read: Copy = NOTHING
    initial: Copy = NOTHING
    longest: Copy = NOTHING
    forced: Copy = NOTHING


class MoveTerms(NamedTuple):
    """The terms of a move.

    constant: 1.
    source: slot that is copied.
    target: slot that is overwritten.
    """

    constant: Copy = NOTHING
    source: Copy = NOTHING
    target: Copy = NOTHING


class SnapshotTerms(NamedTuple):
    """The terms of a snapshot.

    constant: 1.
    slot: slot that is copied.
    row: address of the snapshot's row, to which the slot is copied.
    """

    constant: Copy = NOTHING
    slot: Copy = NOTHING
    row: Copy = NOTHING


@dataclass(frozen=True, slots=True)
class LaneArrays:
    """The arrays [slots, ...] of a lane; their addresses stay until `CapturedSlots.generation` changes."""

    memory: Memory
    history: History
    state: SearchState

    def arrays(self) -> list[Tensor]:
        """Return all arrays: a move copies them."""
        rings, mask = [*self.history.rings.rings.values(), self.history.rings.ancestors], self.memory.mask
        state = [getattr(self.state, name) for name in FIELDS]
        return [*self.memory.blocks.values(), mask, *rings, *state, *self._caches()]

    def arrays_to_clear(self) -> list[Tensor]:
        """Return the arrays in which the slot of a placed request is set to zero."""
        rings = [*self.history.rings.rings.values(), self.history.rings.ancestors]
        return [*rings, *(getattr(self.state, name) for name in ZERO_FIELDS), *self._caches()]

    def _caches(self) -> list[Tensor]:
        caches = self.history.caches
        return [] if caches is None else [caches.writers, *caches.blocks.values()]


def placement_plan(lane: LaneArrays, initial: InitialStates, masks: Tensor) -> Int64Array:
    """Return the plan that places requests.

    lane: arrays of the slots.
    initial: layout of an initial search state.
    masks: the masks of all lengths (`masks_of`).
    """
    memory = lane.memory
    begin, stride = _layout(memory.mask)
    # the mask of n read positions begins n floats (4 bytes each) before the middle of `masks`
    middle = masks.data_ptr() + 4 * (masks.numel() // 2)
    mask = PlacementTerms(
        constant=Copy(begin, middle, 1, stride, stride), slot=Copy(target=stride), read=Copy(source=-4)
    )
    cleared = [
        PlacementTerms(constant=Copy(begin, rows=1, filled=stride), slot=Copy(target=stride))
        for begin, stride in map(_layout, lane.arrays_to_clear())
    ]
    return _plan([*_memory_copies(memory), mask, *cleared, *_state_copies(lane.state, initial)])


def _memory_copies(memory: Memory) -> Iterator[PlacementTerms]:
    """Yield the copy of each memory array (such as a layer's keys) from an encoded row into a slot.

    The encoded row holds the arrays [rows, width, inner] of all specs one after the other; the copy takes the
    source's positions from each of the `rows` of an array. It begins `width * before + begin * size` bytes
    after the address of the encoded row.
    """
    before = 0  # bytes of one position in all earlier arrays
    for spec in memory.specs:
        block, axis = memory.blocks[spec.name], spec.source_axis
        begin, stride = _layout(block)
        rows, inner = (int(np.prod(axes)) for axes in (spec.shape[:axis], spec.shape[axis + 1 :]))
        # bytes of a position in one row, and bytes from row to row in the slot
        size, pitch = inner * block.element_size(), stride // rows
        yield PlacementTerms(
            constant=Copy(begin, rows=rows, filled=pitch, target_pitch=pitch),
            slot=Copy(target=stride),
            address=Copy(source=1),
            width=Copy(source=before, source_pitch=size),
            begin=Copy(source=size),
            length=Copy(bytes=size),
        )
        before += rows * size


def _state_copies(state: SearchState, initial: InitialStates) -> Iterator[PlacementTerms]:
    """Yield the copies of the fields and of the forced tokens of an initial state."""
    for name in ROW_FIELDS:
        array, source, size = getattr(state, name), initial.begins[name], initial.sizes[name]
        begin, stride = _layout(array)
        copy = Copy(begin, source, 1, size, size)
        if name == "history":  # only the first column of each beam
            pitch = TOKEN_BYTES * array.stride(1)
            copy = Copy(begin, source, array.shape[1], TOKEN_BYTES, TOKEN_BYTES, pitch, TOKEN_BYTES)
        yield PlacementTerms(constant=copy, slot=Copy(target=stride), initial=Copy(source=1))
    begin, stride = _layout(state.plan)
    yield PlacementTerms(  # longest + 1 tokens: no step beyond them is reached
        constant=Copy(begin, rows=1, bytes=TOKEN_BYTES, filled=TOKEN_BYTES),
        slot=Copy(target=stride),
        longest=Copy(bytes=TOKEN_BYTES, filled=TOKEN_BYTES),
        forced=Copy(source=1),
    )


def move_plan(lane: LaneArrays) -> Int64Array:
    """Return the plan that copies slots over other slots, in all arrays of `lane`."""
    return _plan(
        [
            MoveTerms(
                constant=Copy(begin, begin, 1, stride, stride),
                source=Copy(source=stride),
                target=Copy(target=stride),
            )
            for begin, stride in map(_layout, lane.arrays())
        ]
    )


def snapshot_dtype(state: SearchState, columns: int) -> np.dtype[Any]:
    """Return the dtype of a snapshot's row, with the fields `SNAPSHOT`.

    state: state of the search.
    columns: number of columns to copy; rounded up to a multiple of `SNAPSHOT_COLUMNS`.
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


def snapshot_plan(state: SearchState, row: np.dtype[Any]) -> Int64Array:
    """Return the plan that copies a slot's search state into a row.

    state: state of the search.
    row: dtype of the row (`snapshot_dtype`).
    """
    assert row.fields is not None
    copies = []
    for name in SNAPSHOT:
        begin, stride = _layout(getattr(state, name))
        field, offset = row.fields[name][:2]
        copies.append(
            SnapshotTerms(
                constant=Copy(offset, begin, 1, field.itemsize, field.itemsize),
                slot=Copy(source=stride),
                row=Copy(target=1),
            )
        )
    return _plan(copies)


def masks_of(positions: int, device: Any) -> Tensor:
    """Return float32 [2 * positions]: zeros, then -inf. The mask of every length is a slice of it."""
    masks = torch.zeros(2 * positions, device=device)
    masks[positions:] = -torch.inf
    return masks


def _plan(copies: Sequence[tuple[Copy, ...]]) -> Int64Array:
    """Return a plan [terms, copies, 7]."""
    return np.ascontiguousarray(np.array(copies, np.int64).swapaxes(0, 1))


def _layout(array: Tensor) -> tuple[int, int]:
    """Return the address of an array [slots, ...], and the bytes of a slot."""
    assert array.is_contiguous()
    return array.data_ptr(), array.stride(0) * array.element_size()
