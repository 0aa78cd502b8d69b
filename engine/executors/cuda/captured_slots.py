"""Slots whose arrays stay where they are, so that CUDA graphs may hold steps of them.

Memory, state and search lie in blocks of all slots, and a graph reads a prefix of them (docs/gpu.md).
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
from engine.executors.cuda.streams import LaneStreams, Mark
from engine.executors.memory import Ends, StagedBatch, ceil
from engine.kernels.calls import Kernels
from engine.search.executor import StepInput, Stepper, TopK

SMALLEST_WIDTH: Final = 32  # bucket of source positions; others double
SMALLEST_COLUMNS: Final = 64  # likewise of target columns
COMMON_POSITIONS: Final = 128  # graphs up to so many positions and columns are captured at the start


class Encoding(StagedBatch):
    """Sources under way on the encoders' stream, up to a mark; a language model's have no rows of memory.

    blocks: that the rows lie in, each once.
    """

    def __init__(self, lengths: list[int], rows: Sequence[EncodedRow] | None, mark: Mark) -> None:
        super().__init__(lengths, [])
        self.rows, self.mark = rows, mark
        self.blocks = [*{id(row.block): row.block for row in rows or ()}.values()]

    def ready(self) -> bool:
        return self.mark.query()


class CapturedSlots(SlotExecutor):
    """One lane whose blocks only grow, so that graphs of its steps may be captured. A backend adds `run`, and
    calls `_begin` when it is made.

    generation: how often the blocks have moved.
    packs: whether sources are encoded packed one behind the other.
    kernels: that search, place and move; None: the array code does.
    """

    kernels: Kernels | None
    packs = False

    def _begin(self, work: LaneStreams, encode: Encode, dtype: torch.dtype, room: int, *, warm: bool) -> None:
        """On the stream of steps.

        encode, dtype: see `Encoders`; with `packs`, see `PackedEncoders`.
        room: positions and columns that blocks begin with.
        warm: capture common steps before the first request.
        """
        self.work, self.generation, self.warm = work, 0, warm
        self.history.rings.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        ends = Ends(self.pad, self.limits.source, self.unread)
        encoders = PackedEncoders if self.packs else Encoders
        self.encoders: SourceEncoders = encoders(encode, self.memory.specs, work, ends, dtype)
        self._lengths = np.frombuffer(self.memory.lengths, np.int64)  # there are many slots
        self.reserve(min(room, self.limits.source), min(room, self.limits.target))
        work.mark().synchronize()  # whatever stream the first caller is on

    def longest(self, n: int) -> int:
        """Count the tokens of the longest source of slots 0..n-1."""
        return int(np.maximum.reduce(self._lengths[:n]))

    def width(self, source: int) -> int:
        """Return the bucket of source positions that this many need."""
        return bucket_of(source, SMALLEST_WIDTH, ceil(self.limits.source, SMALLEST_WIDTH))

    def columns(self, steps: int) -> int:
        """Return the bucket of the caches' columns after so many steps; 0 where nothing is cached."""
        cached = self.history.caches is not None
        return bucket_of(steps, SMALLEST_COLUMNS, ceil(self.limits.target + 1, 32)) if cached else 0

    def common(self) -> Iterable[tuple[int, int]]:
        """List the positions and columns of almost all steps."""
        widths = ladder(SMALLEST_WIDTH, self.width(min(COMMON_POSITIONS, self.limits.source)))
        columns = ladder(self.columns(0), self.columns(min(COMMON_POSITIONS, self.limits.target)))
        return product(widths, columns)

    def reserve(self, source: int, steps: int) -> None:
        """Make room in the blocks. Views of them are stale when `generation` has changed.

        source: tokens of the longest source.
        steps: of the longest target.
        """
        moved = self.memory.reserve(self.width(source))
        if self.history.caches is not None:
            moved |= self.history.caches.reserve(self.columns(steps))
        self.generation += moved

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoding:
        with self.work.encoding():
            rows = self.encoders(sources) if self.memory.specs else None
            return Encoding([len(s) for s in sources], rows, self.work.mark())

    @torch.no_grad()
    def place(self, encoded: StagedBatch, i: int, slot: int, prefix: Sequence[int] = ()) -> None:
        """Put a source into a slot by operators of torch: for executors without kernels.

        encoded: a batch of `encode`.
        i: the source's place in the batch.
        slot: any.
        prefix: not looked at: there are no shortlists here.
        """
        assert isinstance(encoded, Encoding)
        self.reserve(encoded.lengths[i], 0)
        parts: dict[str, Tensor] = {}
        if encoded.rows is not None:
            self.work.wait(encoded.mark, [encoded.rows[i].block])
            parts = encoded.rows[i].parts(self.memory.specs, encoded.lengths[i])
        self.memory.place(slot, encoded.lengths[i], parts)
        self.history.clear(slot)

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Run one step uncaptured, for callers with inputs of their own.

        n: active slots, 0..n-1.
        inputs: of the search.
        attention: whether its weights are wanted.
        """
        steps = 0
        if self.history.caches is not None:
            self.history.caches.grow(n)
            steps = max(self.history.caches.steps[:n])
            self.reserve(0, steps)
        return self.run(inputs, self.width(self.longest(n)), self.columns(steps), attention)

    def place_on_host(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Do the host's part of `place`; one kernel places several sources, and does the rest.

        slots: that are filled.
        lengths: tokens of each one's source.
        """
        for slot, length in zip(slots, lengths, strict=True):
            self.memory.lengths[slot] = length
        if self.history.caches is not None:
            for slot in slots:
                self.history.caches.steps[slot] = 0

    @abstractmethod
    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, followed: bool = False
    ) -> TopK:
        """Run one step in a part of the blocks: nothing but work of the device.

        inputs: of the search; their first axis is the number of slots.
        width: source positions.
        columns: target columns of the caches.
        attention: whether its weights are wanted.
        followed: whether the rings have followed the parents already, and `end_step` takes what comes out.
        """

    @abstractmethod
    def stepper(self) -> Stepper:
        """Make the stepper that captures its steps (`engine.executors.cuda.stepper`)."""


@lru_cache(1 << 16)
def bucket_of(value: int, smallest: int, largest: int) -> int:
    """Return the smallest bucket that holds a value: `smallest`, one of its doubles, or `largest`.

    value: at most `largest`.
    smallest: the first bucket.
    largest: the last bucket.
    """
    return next(size for size in ladder(smallest, largest) if size >= value or size == largest)


def ladder(smallest: int, largest: int) -> list[int]:
    """List `smallest`, its doubles below `largest`, and `largest`."""
    rungs = [smallest]
    while rungs[-1] < largest:
        rungs.append(rungs[-1] * 2)
    return [*rungs[:-1], min(rungs[-1], largest)]
