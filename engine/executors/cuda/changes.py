"""Changes of a lane's slots between two steps: some are read (snapshots), some move, some are filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.executors.cuda.captured_slots import SMALLEST_WIDTH, CapturedSlots, Encoding
from engine.executors.cuda.copies import (
    SLOT_CHUNKS,
    SNAPSHOT_COLUMNS,
    Int64Array,
    LaneArrays,
    MoveTerms,
    PlacementTerms,
    SnapshotTerms,
    masks_of,
    move_plan,
    placement_plan,
    snapshot_dtype,
    snapshot_plan,
)
from engine.executors.cuda.placing import InitialStates
from engine.executors.cuda.search_kernels import SearchKernels
from engine.executors.cuda.snapshots import WORD_BYTES, FetchedRows, KernelSnapshot, finished_dtype
from engine.executors.cuda.streams import words_of
from engine.executors.memory import ceil
from engine.kernels.calls import Scatter
from engine.kernels.launches import Address
from engine.search.beam import BeamSearch
from engine.types import Request

FETCH_BUFFERS: Final = 4  # host buffers used in turn: a snapshot must be read before three more are taken
NO_ROW: Final = (None, 0, 0, 0, 0)  # `EncodedRow` of a request without a source
MIN_BUFFER_WORDS: Final = 1 << 12
FETCH_MULTIPLE_WORDS: Final = 1 << 10  # fetches are rounded up to this, so that few views are made
TERMS: Final = (SnapshotTerms, MoveTerms, PlacementTerms)
SNAPSHOT_WORDS, MOVE_WORDS, PLACEMENT_WORDS = (len(terms._fields) for terms in TERMS)


class FetchBuffer(NamedTuple):
    """Memory through which snapshots of one size come to the host.

    device: int64 [words], where kernels write rows.
    host: pinned copy of them.
    words: numpy view of `host`.
    """

    device: Tensor
    host: Tensor
    words: Int64Array


class SlotChanges:
    """Collects the snapshots, moves and placements of a lane, and launches them together before a step.

    One upload brings the numbers that they need: forced tokens, finished slots, and the items of the scatter
    plans (engine/executors/cuda/copies.py). One copy brings back rows of finished slots, then snapshots.

    placed: items of the collected requests, as `PlacementTerms`, by slot.
    """

    def __init__(self, executor: CapturedSlots, search: BeamSearch, kernels: SearchKernels) -> None:
        self.executor, self.search, self.streams = executor, search, executor.streams
        self.kernels, device = kernels, executor.device
        self._initial = InitialStates(search, executor.streams, executor.slots)
        # the last n + 1 of these tokens are the plan of a target of n tokens without a prefix
        unforced = torch.full((search.columns,), -1)
        unforced[-1] = search.eos
        self._unforced = self.streams.to_device(unforced)
        self._unforced_end = self._unforced.data_ptr() + WORD_BYTES * (search.columns - 1)
        self.placed: dict[int, tuple[int, ...]] = {}
        self._forced: dict[int, Int64Array] = {}  # by slot: forced tokens of requests with a prefix
        self._encodings: dict[int, Encoding] = {}  # batches of the collected requests, by id
        self._longest = 0  # tokens of their longest source
        self._masks = masks_of(ceil(executor.limits.source, SMALLEST_WIDTH), device)
        self._placement = partial(placement_plan, initial=self._initial, masks=self._masks)
        self._generation, self._plans = executor.generation, dict[Any, Scatter]()
        self._snapshot_plans: dict[int, tuple[np.dtype[Any], Scatter]] = {}  # by number of columns
        # device memory of an upload, and of the rows of a snapshot
        self._sent, self._rows = (torch.empty(0, dtype=torch.int64, device=device) for _ in range(2))
        self._pinned = [self.streams.pinned((MIN_BUFFER_WORDS,), torch.int64) for _ in range(FETCH_BUFFERS)]
        self._turn = 0
        self._buffers: dict[tuple[int, int], FetchBuffer] = {}  # by turn and number of words

    def has_room(self, count: int) -> bool:
        """Return whether `count` more requests can be collected before the next launch."""
        return self._initial.has_room(count)

    def place(
        self, encoded: Encoding, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        """Collect requests to place at the next launch.

        encoded: encoded batch of their sources.
        members: index of each source in the batch.
        slots: idle slot of each request.
        requests: requests to place.
        """
        if not self._initial.has_room(len(requests)):  # no collected request uses a state (`has_room`)
            self._initial.clear()
        rows, lengths, unread, longest = encoded.rows, encoded.lengths, self.executor.unread, self._longest
        placed, options, states, end = self.placed, None, {}, self._unforced_end
        for i, slot, request in zip(members, slots, requests, strict=True):
            if request.options is not options:  # adjacent requests often share options: look up once
                options, states = request.options, self._initial.by_length(request.options)
            length = lengths[i]
            initial, target, forced = states.get(length) or self._initial.add(options, length)
            _, _, width, address, begin = NO_ROW if rows is None else rows[i]
            read = length - unread if length > unread else 1
            # address of a plan without a prefix; `launch` replaces it if tokens are forced
            unforced = end - WORD_BYTES * target
            placed[slot] = 1, slot, address, width, begin, length, read, initial, target, unforced
            if forced is not None:
                self._forced[slot] = forced
            elif self._forced:
                self._forced.pop(slot, None)
            if length > longest:
                longest = length
        self._longest = longest
        self._encodings[id(encoded)] = encoded

    def launch(self, snapshot: KernelSnapshot | None, moves: Sequence[tuple[int, int]]) -> None:
        """Take a snapshot, make moves, then place the collected requests. This takes one upload, at most one
        launch for each of the three, and one copy to the host.

        snapshot: snapshot to take, if any; its `fetched` is set.
        moves: source and target slot of each move.
        """
        placed, forced = self.placed, self._forced
        if placed:
            self.executor.reserve(self._longest, 0)
            for encoding in self._encodings.values():
                if encoding.rows is not None:
                    self.streams.wait(encoding.mark, encoding.blocks)
            self._initial.upload()
        done, running = ((), ()) if snapshot is None else (snapshot.done, snapshot.running)
        # words of each part of the upload, in order; the items of running slots come last
        sizes = [sum(map(len, forced.values())), len(done)]
        sizes += MOVE_WORDS * len(moves), PLACEMENT_WORDS * len(placed)
        size = sum(sizes) + SNAPSHOT_WORDS * len(running)
        if self._sent.numel() < size:
            self._sent = self._empty(size)
        at = self._sent.data_ptr()  # address of the next part of the upload
        for slot, tokens in forced.items():
            placed[slot] = *placed[slot][:-1], at
            at += WORD_BYTES * len(tokens)
        items = [*done, *chain.from_iterable([(1, source, target) for source, target in moves])]
        items += chain.from_iterable(placed.values())
        if snapshot is not None:
            buffer, snapshot.fetched, snapshots = self._prepare_fetch(snapshot)
            items += snapshots
        self.streams.upload([*forced.values(), words_of(items)], self._sent)
        if snapshot is not None:
            self._write_rows(snapshot, at, at + WORD_BYTES * sum(sizes[1:]))
            self.streams.fetch(buffer.device, buffer.host)
        at += WORD_BYTES * len(done)
        if moves:
            self._scatter_of(move_plan)(at, len(moves), SLOT_CHUNKS)
        if placed:
            self._scatter_of(self._placement)(at + WORD_BYTES * sizes[2], len(placed), SLOT_CHUNKS)
        self.placed, self._forced, self._encodings, self._longest = {}, {}, {}, 0

    def _prepare_fetch(self, snapshot: KernelSnapshot) -> tuple[FetchBuffer, FetchedRows, list[int]]:
        """Return the buffer of a snapshot, its rows there, and its items (`SnapshotTerms`)."""
        finished = finished_dtype(self.search.beams, ceil(snapshot.columns, SNAPSHOT_COLUMNS))
        # an even word, because 16 bytes are copied at once
        begin = end = ceil(len(snapshot.done) * finished.itemsize // WORD_BYTES, 2)
        running = self._snapshot_plan(snapshot.columns)[0] if snapshot.running else None
        if running is not None:
            end += len(snapshot.running) * running.itemsize // WORD_BYTES
        self._turn = (self._turn + 1) % FETCH_BUFFERS
        key = self._turn, ceil(end, FETCH_MULTIPLE_WORDS)
        buffer = self._buffers.get(key) or self._make_buffer(*key)
        items = list[int]()
        if running is not None:
            address = self._rows.data_ptr() + WORD_BYTES * begin
            for i, slot in enumerate(snapshot.running):
                items += 1, slot, address + i * running.itemsize
        return buffer, FetchedRows(buffer.words, finished, begin, running), items

    def _make_buffer(self, turn: int, size: int) -> FetchBuffer:
        """Make the fetch buffer of a turn; `size` is its number of words."""
        if self._rows.numel() < size:
            self._rows = self._empty(size)
            self._buffers.clear()
        if self._pinned[turn].numel() < size:
            self._pinned[turn] = self.streams.pinned((2 * size,), torch.int64)
        host = self._pinned[turn][:size]
        buffer = self._buffers[turn, size] = FetchBuffer(self._rows[:size], host, host.numpy())
        return buffer

    def _write_rows(self, snapshot: KernelSnapshot, done: int, items: int) -> None:
        """Launch the kernels that write the rows of a snapshot.

        done: address of the finished slots' numbers.
        items: address of the items of running slots.
        """
        assert snapshot.fetched is not None
        if snapshot.done:
            columns = snapshot.fetched.finished["places"].shape[1]
            self.kernels.follow_back(Address(done), len(snapshot.done), columns, self._rows)
        if snapshot.running:
            self._snapshot_plan(snapshot.columns)[1](items, len(snapshot.running), 1)

    def _empty(self, words: int) -> Tensor:
        """Return device memory with room for twice as many words."""
        return torch.empty(max(2 * words, MIN_BUFFER_WORDS), dtype=torch.int64, device=self._rows.device)

    def _scatter(self, plan: Int64Array) -> Scatter:
        return Scatter(self.kernels.run, self.streams.to_device(torch.from_numpy(plan)))

    def _scatter_of(self, make_plan: Callable[[LaneArrays], Int64Array]) -> Scatter:
        """Return the scatter kernel with this plan, made for the current addresses of the lane's arrays."""
        generation = self.executor.generation
        if self._generation != generation:
            self._generation, self._plans = generation, {}
        if make_plan not in self._plans:
            lane = LaneArrays(self.executor.memory, self.executor.history, self.search.state)
            self._plans[make_plan] = self._scatter(make_plan(lane))
        return self._plans[make_plan]

    def _snapshot_plan(self, columns: int) -> tuple[np.dtype[Any], Scatter]:
        """Return the dtype of a running slot's row with this many columns, and the kernel that writes it."""
        columns = ceil(columns, SNAPSHOT_COLUMNS)
        if columns not in self._snapshot_plans:
            row = snapshot_dtype(self.search.state, columns)
            self._snapshot_plans[columns] = row, self._scatter(snapshot_plan(self.search.state, row))
        return self._snapshot_plans[columns]
