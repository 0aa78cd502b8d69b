"""The data that a placement copies into a slot: encoded rows, and initial search states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.bundle.specs import SOURCE, MemorySpec
from engine.executors.cuda.streams import LaneStreams
from engine.search.beam import BeamSearch
from engine.search.state import FIELDS
from engine.types import DecodeOptions, Limits

# fields of a SearchState that keep the last request's values: the search reads only what the new one wrote
STALE_FIELDS: Final = (
    *("tokens", "scores", "trail", "kept_scores", "kept_trail", "kept_steps", "kept_coverage"),
)
ZERO_FIELDS: Final = ("attended", "overlap")  # fields that begin as zeros
INITIAL_FIELDS: Final = tuple(name for name in FIELDS if name not in (*STALE_FIELDS, *ZERO_FIELDS))
# fields of a packed row; the plan is separate, because most plans force no token but the last
ROW_FIELDS: Final = tuple(name for name in INITIAL_FIELDS if name != "plan")
ALIGNED_BYTES: Final = 16  # bytes that the scatter kernel copies at once
MAX_INITIAL_STATES: Final = 1024  # initial states that the device keeps


class EncodedRow(NamedTuple):
    """An encoded source: positions of one row of a block [batch, elements]. The row holds the array of each
    memory spec (such as a layer's keys) one after the other, each `width` positions long.

    block: output of one encoder batch.
    at: index of the row in the block.
    width: positions of the row.
    address: address of the row.
    begin: first position of the source in the row.
    """

    block: Tensor
    at: int
    width: int
    address: int
    begin: int = 0

    def parts(self, specs: Sequence[MemorySpec], length: int) -> dict[str, Tensor]:
        """Return views of the source, [*shape] by the name of its spec.

        specs: specs of the memory.
        length: number of positions to view.
        """
        views, begin, flat = {}, 0, self.block[self.at]
        for spec in specs:
            shape = [self.width if d == SOURCE else d for d in spec.shape]
            size = int(np.prod(shape))
            whole = flat[begin : begin + size].view(shape)
            views[spec.name] = whole.narrow(spec.source_axis, self.begin, length)
            begin += size
        return views


class InitialState(NamedTuple):
    """The state with which a search begins.

    address: address of its packed row on the device.
    longest: tokens of the longest target.
    forced: int64 [longest + 1], the token forced at each step or -1; None if only the last one is forced.
    """

    address: int
    longest: int
    forced: NDArray[np.int64] | None


@dataclass(slots=True)
class _OneSlot:
    """A `LaneNumbers` of one slot in numpy, for a search that only writes initial states."""

    beams: int
    limits: Limits
    pad: int
    eos: int
    start: int
    slots: int = 1
    namespace: Any = np
    device: Any = "cpu"


class InitialStates:
    """A cache on the device of initial search states: one packed row for each combination of options and
    source length. `BeamSearch.start` writes them, on the host.

    begins: offset of each field in a row, in bytes.
    sizes: bytes of each field.
    """

    def __init__(self, search: BeamSearch, streams: LaneStreams, slots: int) -> None:
        """Make an empty cache with room for at least one state per slot, on the current stream's device."""
        self._search = BeamSearch(_OneSlot(search.beams, search.limits, search.pad, search.eos, search.first))
        blank, shapes = self._search.state, {}
        for name in ROW_FIELDS:
            shape = getattr(blank, name).shape[1:]
            shapes[name] = (search.beams, 1) if name == "history" else shape  # only its first column
        sizes = {name: int(np.prod(s)) * getattr(blank, name).itemsize for name, s in shapes.items()}
        padded = [-(-size // ALIGNED_BYTES) * ALIGNED_BYTES for size in sizes.values()]
        ends = np.cumsum(padded)
        self.begins = dict(zip(ROW_FIELDS, (ends - padded).tolist(), strict=True))
        self.sizes = sizes
        # the search writes its fields straight into this packed row
        self._row = np.zeros((1, int(ends[-1])), np.uint8)
        for name in ROW_FIELDS:
            part = self._row[:, self.begins[name] : self.begins[name] + sizes[name]]
            setattr(blank, name, part.view(getattr(blank, name).dtype).reshape(1, *shapes[name]))
        for name in ZERO_FIELDS:
            setattr(blank, name, np.zeros((1, 1, 1)))  # not in the row: the scatter kernel clears them
        self._streams, self._states = streams, dict[DecodeOptions, dict[int, InitialState]]()
        self._count = 0
        self._capacity = max(MAX_INITIAL_STATES, slots)
        self._row_bytes = self._row.size
        shape = self._capacity, self._row_bytes // 8
        self._table = torch.empty(shape, dtype=torch.int64, device=streams.device)
        self._address = self._table.data_ptr()
        self._new: list[NDArray[np.int64]] = []  # rows not uploaded yet

    def has_room(self, count: int) -> bool:
        """Return whether `count` more states fit before the cache must be cleared."""
        return self._count + count <= self._capacity

    def clear(self) -> None:
        """Drop all states. Kernels that read them must have been launched."""
        self._states.clear()
        self._count = 0

    def by_length(self, options: DecodeOptions) -> dict[int, InitialState]:
        """Return the cached states of these options, by source length in tokens."""
        return self._states.setdefault(options, {})

    def upload(self) -> None:
        """Copy the new states to the device."""
        if self._new:
            rows = self._table[self._count - len(self._new) : self._count]
            self._streams.upload(self._new, rows.view(-1))
            self._new.clear()

    def add(self, options: DecodeOptions, length: int) -> InitialState:
        """Make the state of these options for a source of `length` tokens, and cache it."""
        self._row[:] = 0  # `start` fills it: the fields of the state are views of this row
        self._search.start(0, options, length)
        longest = int(self._search.state.longest[0])
        forced = self._search.state.plan[0, : longest + 1].copy() if options.prefix else None
        self._new.append(self._row[0].copy().view(np.int64))
        address = self._address + self._count * self._row_bytes
        self._count += 1
        state = self._states[options][length] = InitialState(address, longest, forced)
        return state
