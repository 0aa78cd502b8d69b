"""Steps of model and search as CUDA graphs, one each, with nothing of the host in it: of models in torch with
our kernels, and of whatever else has a `run` (engine/executors/tensorrt/executor.py).

Finished flags are read one step late, so that the device never waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, product
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.executors.cuda.captured_slots import (
    SMALLEST_COLUMNS,
    SMALLEST_WIDTH,
    CapturedSlots,
    bucket_of,
    ladder,
)
from engine.executors.cuda.copies import COLUMN_FIELDS
from engine.executors.cuda.graphs import Graphs
from engine.executors.cuda.step_kernels import Bucket, StepKernels
from engine.executors.cuda.streams import Mark
from engine.executors.cuda.telling import Told
from engine.executors.memory import ceil
from engine.search.beam import BeamSearch
from engine.search.executor import Ended, Snapshot
from engine.search.finished import finished_hypotheses
from engine.search.kind import Kind, usual
from engine.search.state import SNAPSHOT
from engine.types import QUOTAS, Hypothesis, Request

FLAGS_KEPT: Final = 3  # launches whose flags have places of their own: one under way, and two that are read
# plain steps that are launched at once, at most: as many as the device does in a turn of the host
MOST_STEPS: Final = 2
# while all of several slots are in use, so that others wait for the host's turns too
MOST_STEPS_OF_ALL: Final = 4
UNCAPTURED_STEPS: Final = 3  # of an unusual kind, before a graph of it is captured
MAX_GRAPHS: Final = 256  # of a lane; the least used are forgotten
# a lane of many slots encodes some sources before slots are free for them, lest batches be of a few
LEAST_SLOTS_AHEAD: Final = 32
SLOTS_PER_SOURCE_AHEAD: Final = 4
NGRAM_BUCKETS: Final = (4, 32)  # of the largest n-gram that may not repeat
QUOTA_BUCKETS: Final = (8, 16, QUOTAS)  # of the number of tokens that one slot limits


# flags of some slots where the search has them, and the places where they come down, as tensors and arrays
FlagViews = tuple[Tensor, list[tuple[Tensor, NDArray[np.bool_]]]]


class PendingCopies(NamedTuple):
    """See `engine.search.executor.PendingStep`: flags and weights of its last step, right once the mark is
    reached."""

    flags: NDArray[np.bool_]
    weights: Tensor | None
    mark: Mark
    steps: int

    def done(self) -> NDArray[np.bool_]:
        self.mark.synchronize()
        return self.flags

    def attention(self) -> list[Any]:
        self.mark.synchronize()
        return [] if self.weights is None else [self.weights.numpy()]


class CopiedState(NamedTuple):
    """See `engine.search.executor.Snapshot`: fields of slots by name, right once the mark is reached.

    ended: number of slots that are done; the others lie behind them.
    """

    copies: Mapping[str, Tensor]
    mark: Mark
    ended: int

    def hypotheses(self, ended: Sequence[Ended]) -> list[list[Hypothesis]]:
        return finished_hypotheses(self._state(), range(self.ended), ended)

    def rows(self) -> tuple[Any, Sequence[int]]:
        state = self._state()
        return state, range(self.ended, len(state.step))

    def _state(self) -> Any:
        self.mark.synchronize()
        return SimpleNamespace(**{name: copy.numpy() for name, copy in self.copies.items()})


class CapturedStepper:
    """See `engine.search.executor.Stepper`.

    With kernels a plain step's search is two of them, and what is told, moved and placed is only noted: the
    next launch does all at once, in this order. A launch that finds that the device has done all before it is
    of one plain step more than the last, so that more of them share the host's work of a turn; one that finds
    the device at work is of one fewer.
    """

    late = 1
    patience = 0.0

    def __init__(self, executor: CapturedSlots) -> None:
        self.executor, self.work = executor, executor.work
        self.ahead = executor.slots // SLOTS_PER_SOURCE_AHEAD if executor.slots >= LEAST_SLOTS_AHEAD else 0
        with self.work.decoding():
            self.search = BeamSearch(executor, tight=False, upload=self._up)
            whole = {"dtype": torch.int64, "device": executor.device}
            self._count = torch.zeros(1, **whole)  # active slots of the step
            self._sources, self._targets = torch.zeros(2, executor.slots, **whole).unbind()  # of moves
            self._kernels = None if executor.kernels is None else StepKernels(executor, self.search)
            self._done = self.work.pinned((FLAGS_KEPT, executor.slots), torch.bool)
        self._flags: dict[int, FlagViews] = {}  # by slots
        self._counted, self._launched = 0, 0  # what `_count` holds, and launches
        self._together = 1  # plain steps of the next launch
        self._newest: Mark | None = None  # the end of the last launch
        self._told: Told | None = None
        self._moves: Sequence[tuple[int, int]] = ()
        self._weights: Tensor | None = None  # attention that the newest step leaves
        self._graphs = Graphs(self.work, MAX_GRAPHS)
        self._generation = executor.generation

    def warm(self) -> None:
        """Capture what almost every step is, the largest first, so that all others fit into its memory."""
        executor, search = self.executor, self.search
        sizes = product(ladder(1, executor.slots), executor.common())
        with self.work.decoding():
            self._count.zero_()  # all slots are idle, and stay so
            for n, (width, column) in reversed([*sizes]):
                bucket = Bucket(n, width, column, usual(search.columns), attention=False)
                self._run_graph(bucket, partial(self._step, bucket))

    def place(
        self, encoded: Any, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        if self._kernels is None:
            with self.work.decoding():
                for i, slot, request in zip(members, slots, requests, strict=True):
                    self.executor.place(encoded, i, slot)
                    self.search.start(slot, request.options, len(request.source))
            return
        changes = self._kernels.changes
        if not changes.takes(len(requests)):
            self._settle_early()
        changes.place(encoded, members, slots, requests)
        self.executor.place_on_host(slots, [encoded.lengths[i] for i in members])
        self.search.start_on_host(slots, [r.options for r in requests])

    def _settle(self) -> None:
        """Do what was noted. What is told has a mark of its own: nobody who reads it waits for a step that
        was launched behind it."""
        told, moves, kernels = self._told, self._moves, self._kernels
        if kernels is not None and (told or moves or kernels.changes.placed):
            kernels.changes.carry_out(told, moves)
            if told is not None:
                told.mark = self.work.mark()
            self._told, self._moves = None, ()

    def _settle_early(self) -> None:
        """Do what was noted before the next launch does: something asks for it, or must not come before."""
        with self.work.decoding():
            self._settle()

    def launch(self, n: int, *, attention: bool) -> PendingCopies:
        with self.work.decoding():
            idle = self._newest is not None and self._newest.query()
            self._settle()
            kind = self.search.kind(n)
            plain = kind == usual(kind.columns)
            most = MOST_STEPS_OF_ALL if n == self.executor.slots > 1 else MOST_STEPS
            wanted = self._together + 1 if idle else self._together - 1
            self._together = max(1, min(wanted, most))
            steps = self._together if plain and not attention else 1
            bucket = self._bucket(n, kind, steps, attention)
            self.executor.reserve(bucket.width, bucket.columns)
            if n != self._counted:
                self._count.fill_(n)
                self._counted = n
            if attention and self._weights is None:
                width = ceil(self.executor.limits.source, SMALLEST_WIDTH)
                size = self.executor.slots * self.executor.beams * width
                self._weights = torch.empty(size, device=self.executor.device)
            after = 1 if plain else UNCAPTURED_STEPS
            self._run_graph(bucket, partial(self._step, bucket), after, steps)
            self.search.advance_on_host(n, steps)
            flags, kept = self._flags.get(n) or self._view_flags(n)
            copy, done = kept[self._launched % FLAGS_KEPT]
            self._launched += 1
            self.work.fetch(flags, copy)
            weights = self.work.down(self._attention(bucket)[:n]) if attention else None
            self._newest = self.work.mark()
            return PendingCopies(done, weights, self._newest, steps)

    def _view_flags(self, n: int) -> FlagViews:
        kept = [(flags[:n], flags[:n].numpy()) for flags in self._done]
        views = self._flags[n] = self.search.state.done[:n], kept
        return views

    def snapshot(self, done: Sequence[int], going: Sequence[int]) -> Snapshot:
        # of the columns, those that somebody has reached
        slots = [*done, *going]
        reached = self.search.longest(max(slots) + 1) + 2
        if self._kernels is not None:
            if self._told or self._moves or self._kernels.changes.placed:
                self._settle_early()
            self._told = Told(done, going, reached, self._settle_early)
            return self._told
        with self.work.decoding():
            index, rows = self._up(slots), {}
            for name in SNAPSHOT:
                array = getattr(self.search.state, name)
                array = array[:, :reached] if name in COLUMN_FIELDS else array
                rows[name] = self.work.down(array[index])
            return CopiedState(rows, self.work.mark(), len(done))

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        if not moves:
            return
        if self._kernels is not None:
            placed = self._kernels.changes.placed
            if self._moves or not placed.keys().isdisjoint(chain.from_iterable(moves)):
                self._settle_early()
            self._moves = moves
        else:
            with self.work.decoding():
                self._move_plainly(moves)
        for source, target in moves:
            self.search.move_on_host(source, target)
            self.executor.memory.move_on_host(source, target)

    def _up(self, values: Sequence[int]) -> Tensor:
        return self.work.up(torch.tensor(values, dtype=torch.int64))

    def _bucket(self, n: int, kind: Kind, steps: int, attention: bool) -> Bucket:
        """The bucket of the next steps of slots 0..n-1, so many."""
        executor, reached = self.executor, 0
        if kind.histories or executor.history.caches is not None:
            reached = self.search.longest(n) + 1 + steps
        if kind.histories:
            kind = kind._replace(columns=bucket_of(reached, SMALLEST_COLUMNS, self.search.columns))
        if kind.ngram:
            kind = kind._replace(ngram=next(size for size in NGRAM_BUCKETS if kind.ngram <= size))
        if kind.quotas:
            kind = kind._replace(quotas=next(size for size in QUOTA_BUCKETS if kind.quotas <= size))
        width = executor.width(executor.longest(n))
        return Bucket(bucket_of(n, 1, executor.slots), width, executor.columns(reached), kind, attention)

    def _run_graph(self, key: Any, work: Callable[[], None], after: int = 1, times: int = 1) -> None:
        if self._generation != self.executor.generation:
            self._graphs.clear()
            self._generation = self.executor.generation
        self._graphs.run(key, work, after, times)

    @torch.no_grad()
    def _step(self, bucket: Bucket) -> None:
        """What a graph holds: one step of model and search."""
        n, search = bucket.slots, self.search
        if self._kernels is not None and self._kernels.takes(bucket.kind):
            top = self._kernels.step(self._count, bucket)
            if bucket.attention:
                self._attention(bucket).copy_(top.attention)
            return
        search.rest(self._count, n)
        inputs = search.inputs(n, bucket.kind)
        top = self.executor.run(inputs, bucket.width, bucket.columns, bucket.attention)
        search.absorb(top, n, bucket.kind)
        if bucket.attention:
            self._attention(bucket).copy_(top.attention)

    def _move_plainly(self, moves: Sequence[tuple[int, int]]) -> None:
        size = bucket_of(len(moves), 1, self.executor.slots)
        padded = [*moves, *[moves[0]] * (size - len(moves))]
        for buffer, slots in zip((self._sources, self._targets), zip(*padded, strict=True), strict=True):
            buffer[:size].copy_(self._up(slots))
        self._run_graph(size, partial(self._move, size), UNCAPTURED_STEPS)

    def _move(self, size: int) -> None:
        """Likewise: the slots that `_sources` names over those of `_targets`, the first `size` of each."""
        pair = self._sources[:size], self._targets[:size]
        self.executor.memory.move(*pair)
        self.executor.history.move(*pair)
        self.search.state.move(*pair)

    def _attention(self, bucket: Bucket) -> Tensor:
        assert self._weights is not None
        shape = bucket.slots, self.executor.beams, bucket.width
        return self._weights[: math.prod(shape)].view(shape)


def open_stepper(executor: CapturedSlots) -> CapturedStepper:
    """Make an executor's stepper, and capture what is common where the executor asks for that."""
    stepper = CapturedStepper(executor)
    if executor.warm:
        stepper.warm()
        if executor.memory.specs:
            with executor.work.encoding():
                executor.encoders.warm(executor.slots)
    return stepper
