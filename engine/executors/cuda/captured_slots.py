"""Slots with arrays at fixed addresses, so that CUDA graphs can capture their steps.

Memory, state and search are blocks of all slots, and a graph reads a prefix of them (docs/gpu.md).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np
import torch
from torch import Tensor

from engine.executors.base import SlotExecutor
from engine.executors.cuda.encoders import Encode, Encoders, SourceEncoders
from engine.executors.cuda.packed import PackedEncoders
from engine.executors.cuda.placing import EncodedRow
from engine.executors.cuda.shortlists import DeviceShortlists
from engine.executors.cuda.streams import LaneStreams, Mark
from engine.executors.memory import SourceLimits, StagedBatch, ceil
from engine.kernels.calls import Kernels
from engine.search.executor import StepInput, Stepper, TopK

SMALLEST_WIDTH: Final = 32  # smallest bucket of source positions; each further one is twice as large
SMALLEST_COLUMNS: Final = 64  # smallest bucket of target columns; each further one is twice as large
COMMON_POSITIONS: Final = 128  # graphs up to this many positions and columns are captured at the start


class Encoding(StagedBatch):
    """Sources that are being encoded on the encoders' stream.

    rows: row of each source in an encoder's output; None for a language model.
    mark: point of the stream after which the rows are complete.
    blocks: distinct blocks of the rows.
    """

    def __init__(
        self,
        lengths: list[int],
        rows: Sequence[EncodedRow] | None,
        mark: Mark,
        sources: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__(lengths, [], sources)
        self.rows, self.mark = rows, mark
        self.blocks = [*{id(row.block): row.block for row in rows or ()}.values()]

    def ready(self) -> bool:
        return self.mark.query()


class CapturedSlots(SlotExecutor):
    """One lane with blocks that only grow, so that graphs of its steps can be captured. A backend adds `run`,
    and calls `_begin` in its constructor.

    generation: number of times that the blocks have moved.
    packs: whether sources are encoded packed one behind the other.
    kernels: kernels that search, place and move; None runs the array code instead.
    """

    kernels: Kernels | None
    packs = False

    def _begin(
        self, streams: LaneStreams, encode: Encode, dtype: torch.dtype, room: int, *, warm: bool
    ) -> None:
        """Set up encoders and blocks, on the stream of steps.

        encode, dtype: arguments of `Encoders`, or of `PackedEncoders` if `packs`.
        room: initial number of positions and columns of the blocks.
        warm: capture common steps before the first request.
        """
        self.streams, self.generation, self.warm = streams, 0, warm
        self.history.rings.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        limits = SourceLimits(self.pad, self.limits.source, self.unread)
        encoders = PackedEncoders if self.packs else Encoders
        self.encoders: SourceEncoders = encoders(encode, self.memory.specs, streams, limits, dtype)
        if self.shortlists is not None:
            listed = self.shortlists.shortlist, self.slots, self.limits.vocab
            self.shortlists = DeviceShortlists(*listed, streams)
        self._lengths = np.frombuffer(self.memory.lengths, np.int64)  # numpy is faster for many slots
        self.reserve(min(room, self.limits.source), min(room, self.limits.target))
        streams.mark().synchronize()  # the first caller may use another stream

    def longest_source(self, n: int) -> int:
        """Return the number of tokens of the longest source of slots 0..n-1."""
        return int(np.maximum.reduce(self._lengths[:n]))

    def width(self, source: int) -> int:
        """Return the bucket that holds this many source positions."""
        return bucket_of(source, SMALLEST_WIDTH, ceil(self.limits.source, SMALLEST_WIDTH))

    def columns(self, steps: int) -> int:
        """Return the bucket of the caches' columns after `steps` steps; 0 without caches."""
        cached = self.history.caches is not None
        return bucket_of(steps, SMALLEST_COLUMNS, ceil(self.limits.target + 1, 32)) if cached else 0

    def common(self) -> Iterable[tuple[int, int]]:
        """Return the source positions and target columns that almost all steps have."""
        widths = ladder(SMALLEST_WIDTH, self.width(min(COMMON_POSITIONS, self.limits.source)))
        columns = ladder(self.columns(0), self.columns(min(COMMON_POSITIONS, self.limits.target)))
        return product(widths, columns)

    def reserve(self, source: int, steps: int) -> None:
        """Enlarge the blocks if necessary; `generation` changes if they have moved.

        source: tokens of the longest source.
        steps: steps of the longest target.
        """
        moved = self.memory.reserve(self.width(source))
        if self.history.caches is not None:
            moved |= self.history.caches.reserve(self.columns(steps))
        self.generation += moved

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoding:
        with self.streams.encoding():
            rows = self.encoders(sources) if self.memory.specs else None
            mark = self.streams.mark()
            return Encoding([len(s) for s in sources], rows, mark, sources if self.shortlists else ())

    @torch.no_grad()
    def place(self, encoded: StagedBatch, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        """Put a source into a slot by torch operators, for executors without kernels.

        encoded: batch of `encode`.
        i: index of the source in the batch.
        slot: number of the slot.
        prefix: tokens with which the target begins, for a shortlist.
        """
        assert isinstance(encoded, Encoding)
        self.reserve(encoded.lengths[i], 0)
        parts: dict[str, Tensor] = {}
        if encoded.rows is not None:
            self.streams.wait(encoded.mark, [encoded.rows[i].block])
            parts = encoded.rows[i].parts(self.memory.specs, encoded.lengths[i])
        self.memory.place(slot, encoded.lengths[i], parts)
        self.history.clear(slot)
        self.list_tokens(encoded, [i], [slot], [prefix])

    def list_tokens(
        self,
        encoded: Encoding,
        members: Sequence[int],
        slots: Sequence[int],
        prefixes: Iterable[Sequence[int]],
    ) -> None:
        """Give slots the lists of tokens that they may produce, if there is a shortlist.

        encoded: batch of `encode`.
        members: index of each source in the batch.
        slots: slots that are filled.
        prefixes: tokens with which each target begins.
        """
        if self.shortlists is not None:
            for i, slot, prefix in zip(members, slots, prefixes, strict=True):
                self.shortlists.place(slot, self.shortlists.shortlist.of(encoded.sources[i], prefix))

    def upload_lists(self) -> None:
        """Copy new lists to the device; `generation` changes if their block has moved."""
        if isinstance(self.shortlists, DeviceShortlists):
            self.generation += self.shortlists.upload()

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Run one step without a graph, on the caller's inputs.

        n: number of active slots, 0..n-1.
        inputs: inputs from the search.
        attention: return attention weights too.
        """
        steps = 0
        self.upload_lists()
        if self.history.caches is not None:
            self.history.caches.grow(n)
            steps = max(self.history.caches.steps[:n])
            self.reserve(0, steps)
        return self.run(inputs, self.width(self.longest_source(n)), self.columns(steps), attention)

    def place_on_host(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Do the host's part of `place` for several slots; a kernel does the device's part.

        slots: slots that are filled.
        lengths: tokens of each slot's source.
        """
        for slot, length in zip(slots, lengths, strict=True):
            self.memory.lengths[slot] = length
        if self.history.caches is not None:
            for slot in slots:
                self.history.caches.steps[slot] = 0

    @abstractmethod
    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, rings_advanced: bool = False
    ) -> TopK:
        """Run one step on a prefix of the blocks, without any work of the host.

        inputs: inputs from the search; their first axis is the number of slots.
        width: number of source positions.
        columns: number of target columns of the caches.
        attention: return attention weights too.
        rings_advanced: kernels search: `begin_step` has advanced the rings, and `end_step` takes the result.
        """

    @abstractmethod
    def stepper(self) -> Stepper:
        """Make the stepper that captures the steps (`engine.executors.cuda.stepper`)."""


@lru_cache(1 << 16)
def bucket_of(value: int, smallest: int, largest: int) -> int:
    """Return the smallest bucket that holds a value: `smallest`, one of its doubles, or `largest`.

    value: size to hold, at most `largest`.
    smallest: first bucket.
    largest: last bucket.
    """
    return next(size for size in ladder(smallest, largest) if size >= value or size == largest)


def ladder(smallest: int, largest: int) -> list[int]:
    """Return `smallest`, its doubles below `largest`, and `largest`."""
    rungs = [smallest]
    while rungs[-1] < largest:
        rungs.append(rungs[-1] * 2)
    return [*rungs[:-1], min(rungs[-1], largest)]
