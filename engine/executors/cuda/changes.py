"""What happens to the slots of a lane between two steps: some are told of, some move, some are filled."""

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
from engine.executors.cuda.placing import Starts
from engine.executors.cuda.search_kernels import SearchKernels
from engine.executors.cuda.streams import words_of
from engine.executors.cuda.telling import WORD_BYTES, Told, ToldRows, answer_dtype
from engine.executors.memory import ceil
from engine.kernels.calls import Scatter
from engine.kernels.launches import Address
from engine.search.beam import BeamSearch
from engine.types import Request

BUFFERS_TOLD: Final = 4  # of the host, in turn: what was told is read before three more are
NO_ROW: Final = (None, 0, 0, 0, 0)  # of a request without a source, as an `EncodedRow`
FEWEST_WORDS: Final = 1 << 12  # of a buffer
WORDS_AT_ONCE: Final = 1 << 10  # what comes down is a multiple of this: views of so many are made once
TERMS: Final = (SnapshotTerms, MoveTerms, PlacementTerms)
SNAPSHOT_WORDS, MOVE_WORDS, PLACEMENT_WORDS = (len(terms._fields) for terms in TERMS)


class Way(NamedTuple):
    """The way down of some words: their place on the device, and on the host as a tensor and an array."""

    rows: Tensor
    words: Tensor
    numbers: Records


class SlotChanges:
    """Of one lane. Numbers that say what is to be done go up together, and what is told comes down at once.

    What goes up: tokens that are forced, slots that are done, and the terms of moves, placements and
    snapshots; before that rows of what searches begin with, where none has begun so yet. What comes down:
    rows of slots that are done, then snapshots.
    """

    def __init__(self, executor: CapturedSlots, search: BeamSearch, kernels: SearchKernels) -> None:
        self.executor, self.search, self.work = executor, search, executor.work
        self.kernels, device = kernels, executor.device
        self._starts = Starts(search, executor.work, executor.slots)
        unforced = torch.full((search.columns,), -1)
        unforced[-1] = search.eos  # of each length the end of it is what a target of that length is forced
        self._unforced = self.work.up(unforced)
        self._unforced_end = self._unforced.data_ptr() + WORD_BYTES * (search.columns - 1)
        self.placed: dict[int, tuple[int, ...]] = {}  # by slot, as `PlacementTerms`; not carried out yet
        self._forced: dict[int, Records] = {}  # of those, tokens where not the end alone is forced
        self._encodings: dict[int, Encoding] = {}  # of those, by their numbers
        self._longest = 0  # source of those
        self._masks = masks_of(ceil(executor.limits.source, SMALLEST_WIDTH), device)
        self._placing = partial(placement_plan, starts=self._starts, masks=self._masks)
        self._generation, self._plans = executor.generation, dict[Any, Scatter]()
        self._snapshot_plans: dict[int, tuple[np.dtype[Any], Scatter]] = {}  # by columns
        self._sent, self._rows = (torch.empty(0, dtype=torch.int64, device=device) for _ in range(2))
        self._buffers = [self.work.pinned((FEWEST_WORDS,), torch.int64) for _ in range(BUFFERS_TOLD)]
        self._turn = 0
        self._ways: dict[tuple[int, int], Way] = {}  # by number of the buffer, and words

    def takes(self, count: int) -> bool:
        """Tell whether so many more can be placed before what is noted is carried out."""
        return self._starts.has_room(count)

    def place(
        self, encoded: Encoding, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        """Note that sources are to be put into slots.

        encoded: a batch that the executor encoded.
        members: places of the sources in the batch.
        slots: of each source, idle ones.
        requests: of each source.
        """
        if not self._starts.has_room(len(requests)):  # see `takes`: nothing is noted
            self._starts.forget()
        rows, lengths, unread, longest = encoded.rows, encoded.lengths, self.executor.unread, self._longest
        placed, of, known, end = self.placed, None, {}, self._unforced_end
        for i, slot, request in zip(members, slots, requests, strict=True):
            if request.options is not of:  # neighbours often have the same
                of, known = request.options, self._starts.known(request.options)
            length = lengths[i]
            start, target, forced = known.get(length) or self._starts.write(of, length)
            _, _, width, address, begin = NO_ROW if rows is None else rows[i]
            read = length - unread if length > unread else 1
            at = end - WORD_BYTES * target
            placed[slot] = 1, slot, address, width, begin, length, read, start, target, at
            if forced is not None:
                self._forced[slot] = forced
            elif self._forced:
                self._forced.pop(slot, None)
            if length > longest:
                longest = length
        self._longest = longest
        self._encodings[id(encoded)] = encoded

    def carry_out(self, told: Told | None, moves: Sequence[tuple[int, int]]) -> None:
        """Tell of slots, then copy slots over others, then put into slots what was noted: one upload, a
        launch for each kind that there is, and one way back.

        told: gets its rows.
        moves: source and target.
        """
        placed, forced = self.placed, self._forced
        if placed:
            self.executor.reserve(self._longest, 0)
            for encoding in self._encodings.values():
                if encoding.rows is not None:
                    self.work.wait(encoding.mark, encoding.blocks)
            self._starts.upload()
        done, going = ((), ()) if told is None else (told.done, told.going)
        begins = [sum(map(len, forced.values())), len(done)]
        begins += MOVE_WORDS * len(moves), PLACEMENT_WORDS * len(placed)
        size = sum(begins) + SNAPSHOT_WORDS * len(going)
        if self._sent.numel() < size:
            self._sent = torch.empty(max(2 * size, FEWEST_WORDS), dtype=torch.int64, device=self._sent.device)
        at = self._sent.data_ptr()
        for slot, tokens in forced.items():
            placed[slot] = *placed[slot][:-1], at
            at += WORD_BYTES * len(tokens)
        items = [*done, *chain.from_iterable([(1, source, target) for source, target in moves])]
        items += chain.from_iterable(placed.values())
        if told is not None:
            way, told.told, snapshots = self._room(told)
            items += snapshots
        self.work.upload([*forced.values(), words_of(items)], self._sent)
        if told is not None:
            self._tell(told, at, at + WORD_BYTES * sum(begins[1:]))
            self.work.fetch(way.rows, way.words)
        at += WORD_BYTES * len(done)
        if moves:
            self._plan(move_plan)(at, len(moves), SLOT_CHUNKS)
        if placed:
            self._plan(self._placing)(at + WORD_BYTES * begins[2], len(placed), SLOT_CHUNKS)
        self.placed, self._forced, self._encodings, self._longest = {}, {}, {}, 0

    def _room(self, told: Told) -> tuple[Way, ToldRows, list[int]]:
        """Where rows of slots come down, and the terms of the snapshots among them."""
        answers = answer_dtype(self.search.beams, ceil(told.columns, SNAPSHOT_COLUMNS))
        begin = end = ceil(len(told.done) * answers.itemsize // WORD_BYTES, 2)  # 16 bytes are copied at once
        state = self._snapshot_plan(told.columns)[0] if told.going else None
        if state is not None:
            end += len(told.going) * state.itemsize // WORD_BYTES
        self._turn = (self._turn + 1) % BUFFERS_TOLD
        key = self._turn, ceil(end, WORDS_AT_ONCE)
        way = self._ways.get(key) or self._make_way(*key)
        terms = list[int]()
        if state is not None:
            to = self._rows.data_ptr() + WORD_BYTES * begin
            for i, slot in enumerate(told.going):
                terms += 1, slot, to + i * state.itemsize
        return way, ToldRows(way.numbers, answers, begin, state), terms

    def _make_way(self, turn: int, size: int) -> Way:
        if self._rows.numel() < size:
            self._rows = torch.empty(max(2 * size, FEWEST_WORDS), dtype=torch.int64, device=self._rows.device)
            self._ways.clear()
        if self._buffers[turn].numel() < size:
            self._buffers[turn] = self.work.pinned((2 * size,), torch.int64)
        words = self._buffers[turn][:size]
        way = self._ways[turn, size] = Way(self._rows[:size], words, words.numpy())
        return way

    def _tell(self, told: Told, done: int, going: int) -> None:
        """done, going: addresses of the slots that are done, and of the terms of snapshots."""
        assert told.told is not None
        if told.done:
            answers = told.told.answers
            columns = answers["places"].shape[1]
            self.kernels.follow_back(Address(done), len(told.done), columns, self._rows)
        if told.going:
            self._snapshot_plan(told.columns)[1](going, len(told.going), 1)

    def _scatter(self, plan: Records) -> Scatter:
        return Scatter(self.kernels.run, self.work.up(torch.from_numpy(plan)))

    def _plan(self, kind: Callable[[LaneArrays], Records]) -> Scatter:
        """Of where the lane's arrays are now."""
        generation = self.executor.generation
        if self._generation != generation:
            self._generation, self._plans = generation, {}
        if kind not in self._plans:
            lane = LaneArrays(self.executor.memory, self.executor.history, self.search.state)
            self._plans[kind] = self._scatter(kind(lane))
        return self._plans[kind]

    def _snapshot_plan(self, columns: int) -> tuple[np.dtype[Any], Scatter]:
        wide = ceil(columns, SNAPSHOT_COLUMNS)
        if wide not in self._snapshot_plans:
            row = snapshot_dtype(self.search.state, wide)
            self._snapshot_plans[wide] = row, self._scatter(snapshot_plan(self.search.state, row))
        return self._snapshot_plans[wide]
