"""Steps of model and search as CUDA graphs, one graph a step, without work of the host: for models in torch
with our kernels, and for TensorRT (engine/executors/tensorrt/executor.py).

Done flags are read one step later, so that the device never waits.
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
from engine.executors.cuda.snapshots import KernelSnapshot
from engine.executors.cuda.step_kernels import Bucket, StepKernels
from engine.executors.cuda.streams import Mark
from engine.executors.memory import ceil
from engine.search.beam import BeamSearch
from engine.search.executor import SlotRequest, Snapshot
from engine.search.finished import finished_hypotheses
from engine.search.kind import Kind, usual
from engine.search.state import SNAPSHOT
from engine.types import QUOTAS, Hypothesis, Request

FLAG_BUFFERS: Final = 3  # host buffers of done flags: one for the running launch, two that are being read
# most plain steps of one launch: as many as the device runs in a turn of the host
MAX_STEPS: Final = 2
# the same for a lane with several slots, all in use: waiting requests wait for the host's turns too
MAX_STEPS_WHEN_FULL: Final = 4
UNCAPTURED_STEPS: Final = 3  # runs of an unusual kind of step before its graph is captured
MAX_GRAPHS: Final = 256  # graphs of a lane; the least used one is dropped
# a lane with many slots encodes sources before slots are free for them, so that batches are not tiny
MIN_SLOTS_TO_ENCODE_AHEAD: Final = 32
SLOTS_PER_SOURCE_AHEAD: Final = 4
NGRAM_BUCKETS: Final = (4, 32)  # buckets of `Kind.ngram`
QUOTA_BUCKETS: Final = (8, 16, QUOTAS)  # buckets of `Kind.quotas`


# done flags of the first n slots on the device, and for each host buffer its tensor and numpy view
FlagViews = tuple[Tensor, list[tuple[Tensor, NDArray[np.bool_]]]]


class PendingCopies(NamedTuple):
    """Implements `engine.search.executor.PendingStep`.

    weights: attention of the last step.
    mark: point of the stream after which flags and weights are complete.
    """

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
    """Implements `engine.search.executor.Snapshot`.

    mark: point of the stream after which the copies are complete.
    finished: number of finished slots, which come first.
    """

    copies: Mapping[str, Tensor]
    mark: Mark
    finished: int

    def hypotheses(self, finished: Sequence[SlotRequest]) -> list[list[Hypothesis]]:
        return finished_hypotheses(self._state(), range(self.finished), finished)

    def rows(self) -> tuple[Any, Sequence[int]]:
        state = self._state()
        return state, range(self.finished, len(state.step))

    def _state(self) -> Any:
        self.mark.synchronize()
        return SimpleNamespace(**{name: copy.numpy() for name, copy in self.copies.items()})


class CapturedStepper:
    """Implements `engine.search.executor.Stepper`.

    With kernels, two of them run the search of a plain step. Snapshots, moves and placements are collected,
    and the next launch does them all, in this order. A launch that finds the device idle runs one plain step
    more than the launch before, so that more steps share the host's work of a turn; a launch that finds the
    device busy runs one step fewer.
    """

    flag_delay = 1
    launch_seconds = 0.0

    def __init__(self, executor: CapturedSlots) -> None:
        self.executor, self.streams = executor, executor.streams
        self.encode_ahead = (
            executor.slots // SLOTS_PER_SOURCE_AHEAD if executor.slots >= MIN_SLOTS_TO_ENCODE_AHEAD else 0
        )
        with self.streams.decoding():
            self.search = BeamSearch(executor, readable=False, upload=self._upload)
            whole = {"dtype": torch.int64, "device": executor.device}
            self._count = torch.zeros(1, **whole)  # number of active slots, read by graphs
            # slots to move, read by the graph of moves
            self._sources, self._targets = torch.zeros(2, executor.slots, **whole).unbind()
            self._kernels = None if executor.kernels is None else StepKernels(executor, self.search)
            self._done = self.streams.pinned((FLAG_BUFFERS, executor.slots), torch.bool)
        self._flags: dict[int, FlagViews] = {}  # by number of slots
        self._device_count, self._launches = 0, 0  # `_device_count`: value of `_count` on the device
        self._next_steps = 1  # plain steps of the next launch
        self._last_launch: Mark | None = None  # end of the last launch
        self._snapshot: KernelSnapshot | None = None
        self._moves: Sequence[tuple[int, int]] = ()
        self._weights: Tensor | None = None  # attention of the last step
        self._graphs = Graphs(self.streams, MAX_GRAPHS)
        self._generation = executor.generation

    def warm(self) -> None:
        """Capture the graphs of common steps, the largest first, so that the others fit into its memory."""
        executor, search = self.executor, self.search
        sizes = product(ladder(1, executor.slots), executor.common())
        with self.streams.decoding():
            self._count.zero_()  # so that the captured steps change no slot
            for n, (width, column) in reversed([*sizes]):
                bucket = Bucket(n, width, column, usual(search.columns), attention=False)
                self._run_graph(bucket, partial(self._step, bucket))

    def place(
        self, encoded: Any, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        # start requests in idle slots: with kernels at the next launch, otherwise now
        if self._kernels is None:
            with self.streams.decoding():
                for i, slot, request in zip(members, slots, requests, strict=True):
                    self.executor.place(encoded, i, slot, request.options.prefix)
                    self.search.start(slot, request.options, len(request.source))
            return
        changes = self._kernels.changes
        if not changes.has_room(len(requests)):
            self._launch_changes_now()
        changes.place(encoded, members, slots, requests)
        self.executor.place_on_host(slots, [encoded.lengths[i] for i in members])
        self.executor.list_tokens(encoded, members, slots, [r.options.prefix for r in requests])
        self.search.start_on_host(slots, [r.options for r in requests])

    def _launch_changes(self) -> None:
        """Launch the collected snapshot, moves and placements. The snapshot has its own mark, so that its
        reader does not wait for the step that is launched next."""
        snapshot, moves, kernels = self._snapshot, self._moves, self._kernels
        if kernels is not None and (snapshot or moves or kernels.changes.placed):
            kernels.changes.launch(snapshot, moves)
            if snapshot is not None:
                snapshot.mark = self.streams.mark()
            self._snapshot, self._moves = None, ()

    def _launch_changes_now(self) -> None:
        """Launch the collected changes without waiting for the next step, because a snapshot is read or a
        later change depends on them."""
        with self.streams.decoding():
            self._launch_changes()

    def launch(self, n: int, *, attention: bool) -> PendingCopies:
        """Launch the collected changes, steps of slots 0..n-1, and the copy of their done flags."""
        with self.streams.decoding():
            idle = self._last_launch is not None and self._last_launch.query()
            self._launch_changes()
            self.executor.upload_lists()
            kind = self.search.kind(n)
            plain = kind == usual(kind.columns)
            max_steps = MAX_STEPS_WHEN_FULL if n == self.executor.slots > 1 else MAX_STEPS
            steps = self._next_steps + 1 if idle else self._next_steps - 1
            self._next_steps = max(1, min(steps, max_steps))
            steps = self._next_steps if plain and not attention else 1
            bucket = self._bucket(n, kind, steps, attention)
            self.executor.reserve(bucket.width, bucket.columns)
            if n != self._device_count:
                self._count.fill_(n)
                self._device_count = n
            if attention and self._weights is None:
                width = ceil(self.executor.limits.source, SMALLEST_WIDTH)
                size = self.executor.slots * self.executor.beams * width
                self._weights = torch.empty(size, device=self.executor.device)
            after = 1 if plain else UNCAPTURED_STEPS
            self._run_graph(bucket, partial(self._step, bucket), after, steps)
            self.search.advance_on_host(n, steps)
            flags, buffers = self._flags.get(n) or self._view_flags(n)
            copy, done = buffers[self._launches % FLAG_BUFFERS]
            self._launches += 1
            self.streams.fetch(flags, copy)
            weights = self.streams.to_host(self._attention(bucket)[:n]) if attention else None
            self._last_launch = self.streams.mark()
            return PendingCopies(done, weights, self._last_launch, steps)

    def _view_flags(self, n: int) -> FlagViews:
        """Make and keep the views of the done flags of the first n slots."""
        buffers = [(flags[:n], flags[:n].numpy()) for flags in self._done]
        views = self._flags[n] = self.search.state.done[:n], buffers
        return views

    def snapshot(self, done: Sequence[int], running: Sequence[int]) -> Snapshot:
        """Return a snapshot of slots: with kernels the next launch copies it, otherwise it is copied now."""
        slots = [*done, *running]
        reached = self.search.most_steps(max(slots) + 1) + 2
        if self._kernels is not None:
            # a launch takes its snapshot before its moves and placements
            if self._snapshot or self._moves or self._kernels.changes.placed:
                self._launch_changes_now()
            self._snapshot = KernelSnapshot(done, running, reached, self._launch_changes_now)
            return self._snapshot
        with self.streams.decoding():
            index, rows = self._upload(slots), {}
            for name in SNAPSHOT:
                array = getattr(self.search.state, name)
                array = array[:, :reached] if name in COLUMN_FIELDS else array
                rows[name] = self.streams.to_host(array[index])
            return CopiedState(rows, self.streams.mark(), len(done))

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy source slots over target slots: with kernels at the next launch, otherwise now."""
        if not moves:
            return
        if self._kernels is not None:
            placed = self._kernels.changes.placed
            # a launch makes its moves at once, and before its placements
            if self._moves or not placed.keys().isdisjoint(chain.from_iterable(moves)):
                self._launch_changes_now()
            self._moves = moves
        else:
            with self.streams.decoding():
                self._move_by_torch(moves)
        for source, target in moves:
            self.search.move_on_host(source, target)
            self.executor.memory.move_on_host(source, target)
            if self.executor.shortlists is not None:
                self.executor.shortlists.move(source, target)

    def _upload(self, values: Sequence[int]) -> Tensor:
        return self.streams.to_device(torch.tensor(values, dtype=torch.int64))

    def _bucket(self, n: int, kind: Kind, steps: int, attention: bool) -> Bucket:
        """Return the bucket of the next `steps` steps of slots 0..n-1."""
        executor, reached = self.executor, 0
        if kind.histories or executor.history.caches is not None:
            reached = self.search.most_steps(n) + 1 + steps
        if kind.histories:
            kind = kind._replace(columns=bucket_of(reached, SMALLEST_COLUMNS, self.search.columns))
        if kind.ngram:
            kind = kind._replace(ngram=next(size for size in NGRAM_BUCKETS if kind.ngram <= size))
        if kind.quotas:
            kind = kind._replace(quotas=next(size for size in QUOTA_BUCKETS if kind.quotas <= size))
        width = executor.width(executor.longest_source(n))
        return Bucket(bucket_of(n, 1, executor.slots), width, executor.columns(reached), kind, attention)

    def _run_graph(self, key: Any, streams: Callable[[], None], after: int = 1, times: int = 1) -> None:
        if self._generation != self.executor.generation:  # the arrays in the graphs have moved
            self._graphs.clear()
            self._generation = self.executor.generation
        self._graphs.run(key, streams, after, times)

    @torch.no_grad()
    def _step(self, bucket: Bucket) -> None:
        """Run one step of model and search; a graph captures this."""
        n, search = bucket.slots, self.search
        if self._kernels is not None and self._kernels.supports(bucket.kind):
            top = self._kernels.step(self._count, bucket)
            if bucket.attention:
                self._attention(bucket).copy_(top.attention)
            return
        # a graph may hold more slots than are active
        search.idle(self._count, n)
        inputs = search.inputs(n, bucket.kind)
        top = self.executor.run(inputs, bucket.width, bucket.columns, bucket.attention)
        search.absorb(top, n, bucket.kind)
        if bucket.attention:
            self._attention(bucket).copy_(top.attention)

    def _move_by_torch(self, moves: Sequence[tuple[int, int]]) -> None:
        """Make moves (source and target slot) by torch operators in a graph for a bucket of moves."""
        size = bucket_of(len(moves), 1, self.executor.slots)
        # repeating a move changes nothing
        padded = [*moves, *[moves[0]] * (size - len(moves))]
        for buffer, slots in zip((self._sources, self._targets), zip(*padded, strict=True), strict=True):
            buffer[:size].copy_(self._upload(slots))
        self._run_graph(size, partial(self._move, size), UNCAPTURED_STEPS)

    def _move(self, size: int) -> None:
        """Copy the first `size` slots of `_sources` over those in `_targets`; a graph captures this."""
        pair = self._sources[:size], self._targets[:size]
        self.executor.memory.move(*pair)
        self.executor.history.move(*pair)
        self.search.state.move(*pair)

    def _attention(self, bucket: Bucket) -> Tensor:
        """Return the part of `_weights` for a bucket, [slots, beams, width]."""
        assert self._weights is not None
        shape = bucket.slots, self.executor.beams, bucket.width
        return self._weights[: math.prod(shape)].view(shape)


def open_stepper(executor: CapturedSlots) -> CapturedStepper:
    """Make the stepper of an executor; capture common steps and batches first if `executor.warm`."""
    stepper = CapturedStepper(executor)
    if executor.warm:
        stepper.warm()
        if executor.memory.specs:
            with executor.streams.encoding():
                executor.encoders.warm(executor.slots)
    return stepper
