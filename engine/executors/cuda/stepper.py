"""Steps of model and search as CUDA graphs, one each, with nothing of the host in it: of models in torch with
our kernels, and of whatever else has a `run` (engine/executors/tensorrt.py).

Graphs need arrays that stay where they are: memory, state and search lie in blocks of all slots, and a graph
reads a prefix of them (docs/gpu.md). Finished flags are read one step late, so that the device never waits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import product
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from engine.backends import LaneSize
from engine.executors.base import SlotExecutor
from engine.executors.copies import COLUMNED
from engine.executors.cuda_work import LaneStreams, Mark
from engine.executors.encoders import Encode, Encoders
from engine.executors.graphs import Graphs
from engine.executors.memory import Ends, StagedBatch, ceil
from engine.executors.newcomers import EncodedRow, Newcomer
from engine.executors.step_kernels import WIDTH, Bucket, StepKernels
from engine.executors.torch import TorchExecutor
from engine.kernels.calls import Kernels
from engine.models.model import Model
from engine.search.beam import BeamSearch
from engine.search.executor import Snapshot, StepInput, TopK
from engine.search.kind import Kind
from engine.search.state import SNAPSHOT
from engine.types import QUOTAS, Request

COLUMNS: Final = 64  # likewise of target columns
ROOM: Final = 256  # positions and columns that blocks begin with; they grow when somebody needs more
COMMON: Final = 128  # graphs up to so many positions and columns are captured at the start
RARE: Final = 3  # steps of an uncommon kind that run uncaptured before a graph is made for it
MOST: Final = 256  # graphs that a lane holds; the least used are forgotten
AHEAD: Final = 4  # a lane of so many slots encodes a source ahead of need, so that batches are not of a few
LARGE: Final = 32  # slots of a lane that does so
NGRAMS: Final = (4, 32)  # buckets of the largest size that may not repeat
LIMITED: Final = (8, 16, QUOTAS)  # likewise of tokens that may come so often only


class Encoding(StagedBatch):
    """Sources under way on the encoders' stream, up to a mark; a language model's have no rows of memory."""

    def __init__(self, lengths: list[int], rows: Sequence[EncodedRow] | None, mark: Mark) -> None:
        super().__init__(lengths, [])
        self.rows, self.mark = rows, mark

    def ready(self) -> bool:
        return self.mark.query()


class CapturedSlots(SlotExecutor):
    """One lane whose blocks only grow, so that graphs of its steps may be captured. A backend adds `run`, and
    calls `_begin` when it is made.

    generation: how often the blocks have moved.
    kernels: that search, place and move; None: the array code does.
    """

    kernels: Kernels | None

    def _begin(self, work: LaneStreams, encode: Encode, dtype: torch.dtype, room: int, *, warm: bool) -> None:
        """On the stream of steps.

        encode, dtype: see `Encoders`.
        room: positions and columns that blocks begin with.
        warm: capture common steps before the first request.
        """
        self.work, self.generation, self.warm = work, 0, warm
        self.history.rings.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        ends = Ends(self.pad, self.limits.source, self.unread)
        self.encoders = Encoders(encode, self.memory.specs, work, ends, dtype)
        self.reserve(min(room, self.limits.source), min(room, self.limits.target))
        work.mark().synchronize()  # whatever stream the first caller is on

    def width(self, source: int) -> int:
        """Return the bucket of source positions that this many need."""
        return _bucket(source, WIDTH, ceil(self.limits.source, WIDTH))

    def columns(self, steps: int) -> int:
        """Return the bucket of the caches' columns after so many steps; 0 where nothing is cached."""
        cached = self.history.caches is not None
        return _bucket(steps, COLUMNS, ceil(self.limits.target + 1, 32)) if cached else 0

    def common(self) -> Iterable[tuple[int, int]]:
        """List the positions and columns of almost all steps."""
        widths = _ladder(WIDTH, self.width(min(COMMON, self.limits.source)))
        columns = _ladder(self.columns(0), self.columns(min(COMMON, self.limits.target)))
        return product(widths, columns)

    def reserve(self, source: int, steps: int) -> None:
        """Make room for sources and targets of so many tokens. Whoever held views of the blocks must ask
        again when `generation` has changed."""
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
        """Put one source into a slot, by operators of torch: for executors without kernels."""
        assert isinstance(encoded, Encoding)
        self.reserve(encoded.lengths[i], 0)
        parts: dict[str, Tensor] = {}
        if encoded.rows is not None:
            self.work.wait(encoded.mark, [encoded.rows[i].block])
            parts = encoded.rows[i].parts(self.memory.specs)
        self.memory.place(slot, encoded.lengths[i], parts)
        self.history.clear(slot)

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Run a step uncaptured, for those who bring inputs of their own."""
        steps = 0
        if self.history.caches is not None:
            self.history.caches.grow(n)
            steps = max(self.history.caches.steps[:n])
            self.reserve(0, steps)
        return self.run(inputs, self.width(max(self.memory.lengths[:n])), self.columns(steps), attention)

    def place_on_host(self, slot: int, length: int) -> None:
        """Do the host's part of `place`, which is left to the caller where one kernel places all."""
        self.memory.lengths[slot] = length
        if self.history.caches is not None:
            self.history.caches.steps[slot] = 0

    @abstractmethod
    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, followed: bool = False
    ) -> TopK:
        """Run one step in so much of the blocks: nothing but work of the device.

        followed: whether the rings have followed the parents already.
        """

    def stepper(self) -> CapturedStepper:
        stepper = CapturedStepper(self)
        if self.warm:
            stepper.warm()
            if self.memory.specs:
                with self.work.encoding():
                    self.encoders.warm()
        return stepper


class CapturedExecutor(CapturedSlots, TorchExecutor):
    """Of a model in torch."""

    def __init__(
        self,
        model: Model,
        lane: LaneSize,
        work: LaneStreams,
        kernels: Kernels | None = None,
        *,
        warm: bool = False,
    ) -> None:
        """Take a model that lies on the device already, in the type that it computes in.

        warm: capture common steps before the first request.
        """
        with work.decoding():
            TorchExecutor.__init__(self, model, *lane, work.device, kernels)
            self._begin(work, self._run_encoder, self.dtype, ROOM, warm=warm)

    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, followed: bool = False
    ) -> TopK:
        past = self.history.advance(inputs.parents, inputs.positions, columns, followed=followed)
        memory = self.memory.prefix(inputs.tokens.shape[0], width)
        top, new = self._forward(inputs, past, memory, attention)
        self.history.store(new, inputs.positions)
        return top


class PendingCopies(NamedTuple):
    """Copies to the host, right once the mark is reached: flags and weights of a step, or fields by name."""

    copies: Mapping[str, Tensor]
    mark: Mark

    @property
    def steps(self) -> int:
        return 1

    def done(self) -> list[bool]:
        self.mark.synchronize()
        return [bool(flag) for flag in self.copies["done"].tolist()]

    def attention(self) -> Any:
        self.mark.synchronize()
        return self.copies["attention"].numpy()

    def rows(self) -> tuple[Any, Sequence[int]]:
        self.mark.synchronize()
        fields = {name: copy.numpy() for name, copy in self.copies.items()}
        return SimpleNamespace(**fields), range(len(fields["step"]))


class CapturedStepper:
    """See `engine.search.executor.Stepper`.

    With kernels a plain step's search is two of them, and what is placed is only noted: the next launch or
    move places all at once.
    """

    late = 1
    patience = 0.0

    def __init__(self, executor: CapturedSlots) -> None:
        self.executor, self.work = executor, executor.work
        self.ahead = executor.slots // AHEAD if executor.slots >= LARGE else 0
        with self.work.decoding():
            self.search = BeamSearch(executor, tight=False, upload=self._up)
            whole = {"dtype": torch.int64, "device": executor.device}
            self._count = torch.zeros(1, **whole)  # active slots of the step
            self._sources, self._targets = torch.zeros(2, executor.slots, **whole).unbind()  # of moves
            self._kernels = None if executor.kernels is None else StepKernels(executor, self.search)
        self._newcomers: dict[int, Newcomer] = {}  # by slot
        self._marks: list[tuple[Mark, list[Tensor]]] = []  # what they wait for
        self._weights: Tensor | None = None  # attention that the newest step leaves
        self._graphs = Graphs(self.work, MOST)
        self._generation = executor.generation

    def warm(self) -> None:
        """Capture what almost every step is, the largest first, so that all others fit into its memory."""
        executor, search = self.executor, self.search
        sizes = product(_ladder(1, executor.slots), executor.common())
        with self.work.decoding():
            self._count.fill_(0)  # all slots are idle, and stay so
            for n, (width, column) in reversed([*sizes]):
                bucket = Bucket(n, width, column, plain(search.columns), attention=False)
                self._run_graph(bucket, partial(self._step, bucket), 1)

    def place(self, encoded: Any, i: int, slot: int, request: Request) -> None:
        if self._kernels is None:
            with self.work.decoding():
                self.executor.place(encoded, i, slot)
                self.search.start(slot, request.options, len(request.source))
            return
        row = None if encoded.rows is None else encoded.rows[i]
        self._newcomers[slot] = Newcomer(row, encoded.lengths[i], request.options)
        if row is not None:
            self._marks.append((encoded.mark, [row.block]))
        self.executor.place_on_host(slot, encoded.lengths[i])
        self.search.start_on_host(slot, request.options)

    def _settle(self) -> None:
        """Place whoever was noted."""
        if self._newcomers and self._kernels is not None:
            self.executor.reserve(max(n.length for n in self._newcomers.values()), 0)
            for mark, blocks in self._marks:
                self.work.wait(mark, blocks)
            self._kernels.place(self._newcomers)
            self._newcomers, self._marks = {}, []

    def launch(self, n: int, *, attention: bool) -> PendingCopies:
        with self.work.decoding():
            self._settle()
            bucket = self._bucket(n, attention)
            kind = bucket.kind
            self.executor.reserve(bucket.width, bucket.columns)
            self._count.fill_(n)
            if attention and self._weights is None:
                size = self.executor.slots, self.executor.beams, ceil(self.executor.limits.source, WIDTH)
                self._weights = torch.empty(size, device=self.executor.device).flatten()
            self._run_graph(bucket, partial(self._step, bucket), 1 if kind == plain(kind.columns) else RARE)
            self.search.advance_on_host(n)
            copies = {"done": self.work.down(self.search.state.done[:n])}
            if attention:
                copies["attention"] = self.work.down(self._attention(bucket)[:n])
            return PendingCopies(copies, self.work.mark())

    def snapshot(self, slots: Sequence[int]) -> Snapshot:
        with self.work.decoding():
            # of the columns, those that somebody has reached
            reached = self.search.longest(max(slots) + 1) + 2
            if self._kernels is not None:
                return self._kernels.snapshot(slots, reached)
            index, rows = self._up(slots), {}
            for name in SNAPSHOT:
                array = getattr(self.search.state, name)
                array = array[:, :reached] if name in COLUMNED else array
                rows[name] = self.work.down(array[index])
            return PendingCopies(rows, self.work.mark())

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        if not moves:
            return
        with self.work.decoding():
            self._settle()
            if self._kernels is not None:
                self._kernels.move(moves)
            else:
                self._move_plainly(moves)
        for source, target in moves:
            self.search.move_on_host(source, target)
            self.executor.memory.move_on_host(source, target)

    def _up(self, values: Sequence[int]) -> Tensor:
        return self.work.up(torch.tensor(values, dtype=torch.int64))

    def _bucket(self, n: int, attention: bool) -> Bucket:
        executor, kind = self.executor, self.search.kind(n)
        steps = self.search.longest(n) + 2
        if kind.histories:
            kind = kind._replace(columns=_bucket(steps, COLUMNS, self.search.columns))
        if kind.ngram:
            kind = kind._replace(ngram=next(size for size in NGRAMS if kind.ngram <= size))
        if kind.quotas:
            kind = kind._replace(quotas=next(size for size in LIMITED if kind.quotas <= size))
        width = executor.width(max(executor.memory.lengths[:n]))
        return Bucket(_bucket(n, 1, executor.slots), width, executor.columns(steps), kind, attention)

    def _run_graph(self, key: Any, work: Callable[[], None], after: int) -> None:
        if self._generation != self.executor.generation:
            self._graphs.clear()
            self._generation = self.executor.generation
        self._graphs.run(key, work, after)

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
        size = _bucket(len(moves), 1, self.executor.slots)
        padded = [*moves, *[moves[0]] * (size - len(moves))]
        for buffer, slots in zip((self._sources, self._targets), zip(*padded, strict=True), strict=True):
            buffer[:size].copy_(self._up(slots))
        self._run_graph(size, partial(self._move, size), RARE)

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


@cache
def plain(columns: int) -> Kind:
    """Return the kind of steps in which everybody searches and nobody wants more."""
    return Kind(
        columns=columns,
        ngram=0,
        quotas=0,
        ranked=True,
        sampled=False,
        groups=1,
        coverage=False,
        stepwise=False,
        prefixed=False,
        free=False,
        greedy=False,
        simple=False,
    )


@lru_cache(1 << 16)
def _bucket(value: int, smallest: int, largest: int) -> int:
    """The smallest of `smallest`, its doubles and `largest` that is not below `value`."""
    return next(size for size in _ladder(smallest, largest) if size >= value or size == largest)


def _ladder(smallest: int, largest: int) -> list[int]:
    rungs = [smallest]
    while rungs[-1] < largest:
        rungs.append(rungs[-1] * 2)
    return [*rungs[:-1], min(rungs[-1], largest)]
