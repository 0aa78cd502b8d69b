"""The kernels of a lane beside the model: plain steps searched, requests placed, slots moved and snapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.executors.cuda.captured_slots import SMALLEST_WIDTH, CapturedSlots
from engine.executors.cuda.copies import (
    SLOT_CHUNKS,
    SNAPSHOT_COLUMNS,
    LaneArrays,
    MoveTerms,
    PlacementTerms,
    Records,
    SnapshotTerms,
    masks_of,
    move_plan,
    placement_plan,
    snapshot_dtype,
    snapshot_plan,
)
from engine.executors.cuda.placing import PlacedRequest, StartRows
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.cuda.streams import Mark
from engine.executors.memory import ceil
from engine.search.beam import BeamSearch
from engine.search.executor import TopK
from engine.search.kind import Kind
from engine.search.state import SNAPSHOT
from engine.types import CANDIDATES

NO_RECORDS: Final = np.zeros(0, np.int64)


class Bucket(NamedTuple):
    """What one graph is for: so many slots, source positions and target columns, of one kind of search.

    attention: whether its weights are wanted.
    """

    slots: int
    width: int
    columns: int
    kind: Kind
    attention: bool


class PackedRows(NamedTuple):
    """What the search knew of some slots, on its way to the host: see `engine.search.executor.Snapshot`.

    packed: int64 words of rows of the type `row`, right once the mark is reached.
    """

    packed: Tensor
    row: np.dtype[Any]
    mark: Mark

    def rows(self) -> tuple[Any, Sequence[int]]:
        self.mark.synchronize()
        rows = self.packed.numpy().view(self.row)
        return SimpleNamespace(**{name: rows[name] for name in SNAPSHOT}), range(len(rows))


class StepKernels:
    """The kernels of a lane beside the model."""

    def __init__(self, executor: CapturedSlots, search: BeamSearch) -> None:
        assert executor.kernels is not None
        self.executor, self.search, self.work = executor, search, executor.work
        device, rings = executor.device, executor.history.rings
        tokens = Tokens(search.pad, search.eos)
        self.kernels = SearchKernels(executor.kernels.run, search.state, tokens)
        windows = [[w, rings.rows[w].data_ptr()] for w in rings.windows]
        uploaded = executor.work.up(torch.tensor(windows, dtype=torch.int64).view(-1, 2))
        self._followed = RingArrays(rings.ancestors, rings.clock, uploaded)
        self._starts = StartRows(search, executor.slots)
        self._masks = masks_of(ceil(executor.limits.source, SMALLEST_WIDTH), device)
        self._placing = partial(placement_plan, starts=self._starts, masks=self._masks)
        self._generation, self._plans = executor.generation, dict[Any, Tensor]()
        self._snapshot_plans: dict[int, tuple[np.dtype[Any], Tensor]] = {}  # by columns
        self._buffer = torch.empty(0, dtype=torch.int64, device=device)

    def takes(self, kind: Kind) -> bool:
        """Tell whether this kind of step is a plain one, of no more candidates than the kernels take."""
        k = min(max(2 * self.search.beams, CANDIDATES if kind.sampled else 0), self.executor.limits.vocab)
        return kind.plain and self.kernels.takes(k)

    def step(self, count: Tensor, bucket: Bucket) -> TopK:
        """Run one step of model and search."""
        forced, banned = self.kernels.begin_step(count, self._followed, bucket.slots)
        inputs = self.search.step_input(bucket.slots, forced, banned, bucket.kind)
        top = self.executor.run(inputs, bucket.width, bucket.columns, bucket.attention, followed=True)
        self.kernels.end_step(top.scores, top.ids)
        return top

    def place(self, requests: Mapping[int, PlacedRequest]) -> None:
        """Put requests, by slot, into their slots: one upload and one launch."""
        starts, count, unread = self._starts, len(requests), self.executor.unread
        for row, request in enumerate(requests.values()):
            starts.write(row, request.options, request.length)
        packed, plan = starts.rows[:count].reshape(-1).view(np.int64), self._plan(self._placing)
        begin = self._room(packed.size + len(PlacementTerms._fields) * count).data_ptr()
        items = [
            PlacementTerms(
                1,
                slot,
                *n.row_extent,
                n.length,
                max(n.length - unread, 1),
                begin + row * starts.bytes,
                longest,
            )
            for row, ((slot, n), longest) in enumerate(
                zip(requests.items(), starts.longest(count), strict=True)
            )
        ]
        self._scatter(plan, items, SLOT_CHUNKS, packed)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots over others: likewise."""
        self._scatter(self._plan(move_plan), [MoveTerms(1, *pair) for pair in moves], SLOT_CHUNKS)

    def snapshot(self, slots: Sequence[int], columns: int) -> PackedRows:
        """Fetch the search's state of slots: one upload, one launch, one way back.

        slots: any.
        columns: that somebody has reached.
        """
        row, plan = self._snapshot_plan(columns)
        sent, size = len(SnapshotTerms._fields) * len(slots), row.itemsize // 8
        begin = -(-sent // 2) * 2  # rows lie where 16 bytes are copied at once
        end = begin + size * len(slots)
        buffer = self._room(end)
        first = buffer.data_ptr() + 8 * begin
        items = [SnapshotTerms(1, slot, first + i * row.itemsize) for i, slot in enumerate(slots)]
        self._scatter(plan, items, 1)
        return PackedRows(self.work.down(buffer[begin:end]), row, self.work.mark())

    def _plan(self, kind: Callable[[LaneArrays], Records]) -> Tensor:
        """Of where the lane's arrays are now."""
        generation = self.executor.generation
        if self._generation != generation:
            self._generation, self._plans = generation, {}
        if kind not in self._plans:
            lane = LaneArrays(self.executor.memory, self.executor.history, self.search.state)
            self._plans[kind] = self.work.up(torch.from_numpy(kind(lane)))
        return self._plans[kind]

    def _snapshot_plan(self, columns: int) -> tuple[np.dtype[Any], Tensor]:
        wide = ceil(columns, SNAPSHOT_COLUMNS)
        if wide not in self._snapshot_plans:
            row = snapshot_dtype(self.search.state, wide)
            plan = torch.from_numpy(snapshot_plan(self.search.state, row))
            self._snapshot_plans[wide] = row, self.work.up(plan)
        return self._snapshot_plans[wide]

    def _room(self, size: int) -> Tensor:
        if self._buffer.numel() < size:
            self._buffer = torch.empty(2 * size, dtype=torch.int64, device=self.executor.device)
        return self._buffer

    def _scatter(
        self, plan: Tensor, items: Sequence[tuple[int, ...]], chunks: int, packed: Records = NO_RECORDS
    ) -> None:
        """Upload what is packed and items behind it, and carry them out."""
        assert self.executor.kernels is not None
        count, terms = len(items), len(items[0])
        records = np.empty(packed.size + count * terms, np.int64)
        records[: packed.size] = packed
        records[packed.size :].reshape(count, terms)[...] = items
        uploaded = self._room(records.size)[: records.size]
        self.work.upload(torch.from_numpy(records), uploaded)
        self.executor.kernels.scatter(plan, uploaded[packed.size :].view(count, terms), chunks)
