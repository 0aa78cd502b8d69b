"""What happens to the slots of a lane between two steps: some are told of, some move, some are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

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
from engine.executors.cuda.placing import KnownStart, PlacedRequest, Starts
from engine.executors.cuda.search_kernels import SearchKernels
from engine.executors.cuda.streams import words_of
from engine.executors.cuda.telling import WORD_BYTES, Told, ToldRows, answer_dtype
from engine.executors.memory import ceil
from engine.kernels.launches import Address
from engine.search.beam import BeamSearch

BUFFERS_TOLD: Final = 4  # of the host, in turn: what was told is read before three more are
NO_ROW: Final = (None, 0, 0, 0, 0)  # of a request without a source, as an `EncodedRow`
FEWEST_WORDS: Final = 1 << 12  # of a buffer
TERMS: Final = (SnapshotTerms, MoveTerms, PlacementTerms)
SNAPSHOT_WORDS, MOVE_WORDS, PLACEMENT_WORDS = (len(terms._fields) for terms in TERMS)


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
        self._masks = masks_of(ceil(executor.limits.source, SMALLEST_WIDTH), device)
        self._placing = partial(placement_plan, starts=self._starts, masks=self._masks)
        self._generation, self._plans = executor.generation, dict[Any, Tensor]()
        self._snapshot_plans: dict[int, tuple[np.dtype[Any], Tensor]] = {}  # by columns
        self._sent, self._rows = (torch.empty(0, dtype=torch.int64, device=device) for _ in range(2))
        self._buffers = [self.work.pinned((FEWEST_WORDS,), torch.int64) for _ in range(BUFFERS_TOLD)]
        self._turn = 0

    def carry_out(
        self,
        told: Told | None,
        moves: Sequence[tuple[int, int]],
        placed: Mapping[int, PlacedRequest],
    ) -> None:
        """Tell of slots, then copy slots over others, then put requests into slots: one upload, a launch for
        each kind that there is, and one way back.

        told: gets its rows.
        moves: source and target.
        placed: by slot.
        """
        done, going = ((), ()) if told is None else (told.done, told.going)
        begun = self._starts.begin(placed.values())
        forced = [start.forced for start in begun if start.forced is not None]
        begins = [sum(map(len, forced)), len(done), MOVE_WORDS * len(moves), PLACEMENT_WORDS * len(placed)]
        size = sum(begins) + SNAPSHOT_WORDS * len(going)
        if self._sent.numel() < size:
            self._sent = torch.empty(max(2 * size, FEWEST_WORDS), dtype=torch.int64, device=self._sent.device)
        address = self._sent.data_ptr()
        items = [*done, *chain.from_iterable([(1, source, target) for source, target in moves])]
        items += self._placements(placed, begun, address)
        if told is not None:
            told.told, snapshots = self._room(told)
            items += snapshots
        self.work.upload([*forced, words_of(items)], self._sent)
        at = address + WORD_BYTES * begins[0]
        if told is not None:
            self._tell(told, at, at + WORD_BYTES * sum(begins[1:]))
        at += WORD_BYTES * len(done)
        if moves:
            self._scatter(self._plan(move_plan), at, len(moves), SLOT_CHUNKS)
        if placed:
            self._scatter(self._plan(self._placing), at + WORD_BYTES * begins[2], len(placed), SLOT_CHUNKS)

    def _placements(
        self, placed: Mapping[int, PlacedRequest], begun: Sequence[KnownStart], address: int
    ) -> list[int]:
        """The terms of placed requests.

        address: of the tokens that are forced.
        """
        unread, listed = self.executor.unread, list[int]()
        ends = self._unforced.data_ptr() + WORD_BYTES * (self.search.columns - 1)
        for (slot, (row, length, _)), (start, longest, tokens) in zip(placed.items(), begun, strict=True):
            _, _, width, at, begin = NO_ROW if row is None else row
            forced = ends - WORD_BYTES * longest
            if tokens is not None:
                forced, address = address, address + WORD_BYTES * tokens.size
            # the terms of `PlacementTerms`, in their order
            read = length - unread if length > unread else 1
            listed += 1, slot, at, width, begin, length, read, start, longest, forced
        return listed

    def _room(self, told: Told) -> tuple[ToldRows, list[int]]:
        """Where rows of slots come down, and the terms of the snapshots among them."""
        answers = answer_dtype(self.search.beams, ceil(told.columns, SNAPSHOT_COLUMNS))
        begin = end = ceil(len(told.done) * answers.itemsize // WORD_BYTES, 2)  # 16 bytes are copied at once
        state = self._snapshot_plan(told.columns)[0] if told.going else None
        if state is not None:
            end += len(told.going) * state.itemsize // WORD_BYTES
        if self._rows.numel() < end:
            self._rows = torch.empty(max(2 * end, FEWEST_WORDS), dtype=torch.int64, device=self._rows.device)
        self._turn = (self._turn + 1) % BUFFERS_TOLD
        if self._buffers[self._turn].numel() < end:
            self._buffers[self._turn] = self.work.pinned((2 * end,), torch.int64)
        terms = list[int]()
        if state is not None:
            to = self._rows.data_ptr() + WORD_BYTES * begin
            for i, slot in enumerate(told.going):
                terms += 1, slot, to + i * state.itemsize
        words = self._buffers[self._turn].narrow(0, 0, end)
        return ToldRows(words, answers, begin, state), terms

    def _tell(self, told: Told, done: int, going: int) -> None:
        """done, going: addresses of the slots that are done, and of the terms of snapshots."""
        assert told.told is not None
        words, answers, *_ = told.told
        if told.done:
            columns = answers["places"].shape[1]
            self.kernels.follow_back(Address(done), len(told.done), columns, self._rows)
        if told.going:
            self._scatter(self._snapshot_plan(told.columns)[1], going, len(told.going), 1)
        self.work.fetch(self._rows.narrow(0, 0, words.numel()), words)

    def _scatter(self, plan: Tensor, items: int, count: int, chunks: int) -> None:
        assert self.executor.kernels is not None
        self.executor.kernels.scatter(plan, Address(items), count, chunks)

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
