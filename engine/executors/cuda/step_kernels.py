"""Plain steps of model and search by kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.executors.cuda.captured_slots import CapturedSlots
from engine.executors.cuda.changes import SlotChanges
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.search.beam import BeamSearch
from engine.search.executor import TopK
from engine.search.kind import Kind
from engine.types import CANDIDATES


class Bucket(NamedTuple):
    """The shape and kind of step that one graph holds.

    width: number of source positions.
    columns: number of target columns of the caches.
    attention: return attention weights too.
    """

    slots: int
    width: int
    columns: int
    kind: Kind
    attention: bool


class StepKernels:
    """Runs plain steps by kernels, and holds the collected changes of slots."""

    def __init__(self, executor: CapturedSlots, search: BeamSearch) -> None:
        assert executor.kernels is not None
        self.executor, self.search, self.streams = executor, search, executor.streams
        rings = executor.history.rings
        tokens = Tokens(search.pad, search.eos)
        self.kernels = SearchKernels(executor.kernels.run, search.state, tokens)
        windows = [[w, rings.rows[w].data_ptr()] for w in rings.windows]
        uploaded = executor.streams.to_device(torch.tensor(windows, dtype=torch.int64).view(-1, 2))
        self._rings = RingArrays(rings.ancestors, rings.clock, uploaded)
        self.changes = SlotChanges(executor, search, self.kernels)

    def supports(self, kind: Kind) -> bool:
        """Return whether kernels can run this kind of step: it is plain, and has few enough candidates."""
        k = min(max(2 * self.search.beams, CANDIDATES if kind.sampled else 0), self.executor.limits.vocab)
        return kind.plain and self.kernels.supports(k)

    def step(self, count: Tensor, bucket: Bucket) -> TopK:
        """Run one step of model and search."""
        forced, banned = self.kernels.begin_step(count, self._rings, bucket.slots)
        inputs = self.search.step_input(bucket.slots, forced, banned, bucket.kind)
        top = self.executor.run(inputs, bucket.width, bucket.columns, bucket.attention, rings_advanced=True)
        self.kernels.end_step(top, self._rings.clock)
        return top
