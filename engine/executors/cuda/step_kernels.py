"""The kernels of a lane beside the model: plain steps searched, requests placed, slots moved and snapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

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
from engine.executors.cuda.placing import KnownStart, PlacedRequest, StartRows
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.cuda.streams import Mark
from engine.executors.memory import ceil
from engine.search.beam import BeamSearch
from engine.search.executor import TopK
from engine.search.kind import Kind
from engine.search.state import SNAPSHOT
from engine.types import CANDIDATES


class Bucket(NamedTuple):
    """What one graph is for: so many slots, source positions and target columns, of one kind of search.

    attention: whether its weights are wanted.
    """

    slots: int
    width: int
    columns: int
    kind: Kind
    attention: bool


class PackedRows:
    """What the search knew of some slots, on its way to the host: see `engine.search.executor.Snapshot`."""

    def __init__(self, slots: Sequence[int], columns: int, begin: Callable[[], None]) -> None:
        """Note what is to be told.

        slots: any.
        columns: that somebody has reached.
        begin: sends it on its way, where no step was launched since.
        """
        self.slots, self.columns, self._begin = slots, columns, begin
        self.packed: tuple[Tensor, np.dtype[Any]] | None = None  # int64 words of rows, and the rows' type
        self.mark: Mark | None = None  # once it is reached, rows are right

    def rows(self) -> tuple[Any, Sequence[int]]:
        if self.mark is None:
            self._begin()
        assert self.packed is not None and self.mark is not None
        self.mark.synchronize()
        words, row = self.packed
        rows = words.numpy().view(row)
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
        unforced = torch.full((search.columns,), -1)
        unforced[-1] = search.eos  # of each length the end of it is what a target of that length is forced
        self._unforced = executor.work.up(unforced)
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

    def carry_out(
        self,
        told: PackedRows | None,
        moves: Sequence[tuple[int, int]],
        placed: Mapping[int, PlacedRequest],
    ) -> None:
        """Tell of slots, then copy slots over others, then put requests into slots: one upload, a launch for
        each of the three that there is, and one way back.

        told: gets its rows.
        moves: source and target.
        placed: by slot.
        """
        slots: Sequence[int] = () if told is None else told.slots
        begun = [self._starts.write(at, n.options, n.length) for at, n in enumerate(placed.values())]
        forced = [start.forced for start in begun if start.forced is not None]
        packed = np.concatenate([self._starts.rows[: len(placed)].reshape(-1).view(np.int64), *forced])
        kinds = (SnapshotTerms, slots), (MoveTerms, moves), (PlacementTerms, placed)
        sent = packed.size + sum(len(terms._fields) * len(items) for terms, items in kinds)
        begin = end = ceil(sent, 2)  # rows lie where 16 bytes are copied at once
        scattered: list[tuple[Tensor, list[Any], int]] = []
        if told is not None:
            row, plan = self._snapshot_plan(told.columns)
            end += row.itemsize // 8 * len(slots)
            to = self._room(end).data_ptr() + 8 * begin
            tellings = [SnapshotTerms(1, slot, to + i * row.itemsize) for i, slot in enumerate(slots)]
            scattered.append((plan, tellings, 1))
        if moves:
            scattered.append((self._plan(move_plan), [MoveTerms(1, *pair) for pair in moves], SLOT_CHUNKS))
        buffer = self._room(end)
        if placed:
            placements = self._placements(placed, begun, buffer.data_ptr())
            scattered.append((self._plan(self._placing), placements, SLOT_CHUNKS))
        self._scatter(packed, buffer[:sent], scattered)
        if told is not None:
            told.packed = self.work.down(buffer[begin:end]), row

    def _placements(
        self, placed: Mapping[int, PlacedRequest], begun: Sequence[KnownStart], address: int
    ) -> list[PlacementTerms]:
        """address: of the first one's row of starts. Behind all rows lie the tokens that are forced."""
        unread, listed = self.executor.unread, []
        behind = address + len(placed) * self._starts.bytes
        ends = self._unforced.data_ptr() + 8 * (self.search.columns - 1)
        for (slot, n), start in zip(placed.items(), begun, strict=True):
            length, longest, forced = n.length, start.longest, ends - 8 * start.longest
            if start.forced is not None:
                forced, behind = behind, behind + 8 * start.forced.size
            read = max(length - unread, 1)
            listed.append(PlacementTerms(1, slot, *n.row_extent, length, read, address, longest, forced))
            address += self._starts.bytes
        return listed

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
        self, packed: Records, uploaded: Tensor, scattered: Sequence[tuple[Tensor, list[Any], int]]
    ) -> None:
        """Upload what is packed and all items behind it, and carry them out.

        uploaded: where that goes.
        scattered: plan, items and chunks of each launch.
        """
        assert self.executor.kernels is not None
        records, at = np.empty(uploaded.numel(), np.int64), packed.size
        records[:at] = packed
        parts: list[tuple[int, int, int]] = []
        for _, items, _ in scattered:
            shape = len(items), len(items[0])
            records[at : at + shape[0] * shape[1]].reshape(shape)[...] = items
            parts.append((at, *shape))
            at += shape[0] * shape[1]
        self.work.upload(records, uploaded)
        for (plan, _, chunks), (begin, count, terms) in zip(scattered, parts, strict=True):
            part = uploaded[begin : begin + count * terms].view(count, terms)
            self.executor.kernels.scatter(plan, part, chunks)
