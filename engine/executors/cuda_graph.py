"""The CUDA backend: each step of model and search is one CUDA graph, with nothing of the host in it.

Graphs need arrays that stay where they are: memory, state and search lie in blocks of all slots, and a graph
reads a prefix of them (docs/gpu.md). Finished flags are read one step late, so that the device never waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from engine.executor import StepInput, TopK
from engine.executors.memory import Staged, ceil
from engine.executors.streams import Mark, Work
from engine.executors.torch import TorchExecutor
from engine.kernels.calls import Kernels
from engine.models.model import Model
from engine.search import BeamSearch, Kind
from engine.slots import TOLD
from engine.types import Request

WIDTH: Final = 32  # the smallest bucket of source positions; others double
COLUMNS: Final = 64  # likewise of target columns
ROOM: Final = 256  # positions and columns that blocks begin with; they grow when somebody needs more
COMMON: Final = 128  # graphs up to so many positions and columns are captured at the start
RARE: Final = 3  # steps of an uncommon kind that run uncaptured before a graph is made for it
MOST: Final = 256  # graphs that a lane holds; the least used are forgotten
NGRAMS: Final = (4, 32)  # buckets of the largest size that may not repeat


class Encoding(Staged):
    """Sources under way on the encoders' stream, up to a mark."""

    def __init__(self, staged: Staged, mark: Mark) -> None:
        super().__init__(staged.lengths, staged.memory, staged.listed)
        self.mark = mark

    def ready(self) -> bool:
        return self.mark.query()


class CapturedExecutor(TorchExecutor):
    """One lane whose blocks only grow. generation: how often they have moved."""

    def __init__(
        self,
        model: Model,
        lane: tuple[int, int],
        work: Work,
        kernels: Kernels | None = None,
        *,
        warm: bool = False,
    ) -> None:
        """lane: beams and slots. The model lies on the device already, in the type that it computes in. warm:
        capture common steps before the first request."""
        self.work, self.generation, self.warm = work, 0, warm
        with work.decoding():
            super().__init__(model, *lane, work.device, kernels)
            self.history.rings.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
            self.reserve(min(ROOM, model.config.max_source), min(ROOM, model.config.max_target))
            work.mark().synchronize()  # whatever stream the first caller is on

    def width(self, source: int) -> int:
        """The bucket of source positions that this many need."""
        return _bucket(source, WIDTH, ceil(self.limits.source, WIDTH))

    def columns(self, steps: int) -> int:
        """The bucket of the caches' columns after so many steps; 0 where nothing is cached."""
        cached = self.history.caches is not None
        return _bucket(steps, COLUMNS, ceil(self.limits.target + 1, 32)) if cached else 0

    def reserve(self, source: int, steps: int) -> None:
        """Make room for sources and targets of so many tokens. Whoever held views of the blocks must ask
        again when `generation` has changed."""
        moved = self.memory.reserve(self.width(source))
        if self.history.caches is not None:
            moved |= self.history.caches.reserve(self.columns(steps))
        self.generation += moved

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoding:
        with self.work.encoding():
            return Encoding(super().encode(sources), self.work.mark())

    def _upload(self, array: Tensor) -> Tensor:
        return self.work.up(array)

    @torch.no_grad()
    def place(self, encoded: Staged, i: int, slot: int) -> None:
        assert isinstance(encoded, Encoding)
        self.reserve(encoded.lengths[i], 0)
        self.work.wait(encoded.mark, [*encoded.memory[i].values()])
        super().place(encoded, i, slot)

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        """Uncaptured, for those who bring inputs of their own."""
        steps = 0
        if self.history.caches is not None:
            self.history.caches.grow(n)
            steps = max(self.history.caches.steps[:n])
            self.reserve(0, steps)
        return self.run(inputs, self.width(max(self.memory.lengths[:n])), self.columns(steps), attention)

    def run(self, inputs: StepInput, width: int, columns: int, attention: bool) -> TopK:
        """One step in so much of the blocks: nothing but work of the device."""
        past = self.history.advance(inputs.parents, inputs.positions, columns)
        memory = self.memory.prefix(inputs.tokens.shape[0], width)
        top, new = self._forward(inputs, past, memory, attention)
        self.history.store(new, inputs.positions)
        return top

    def stepper(self) -> CapturedStepper:
        made = CapturedStepper(self)
        if self.warm:
            made.warm()
        return made


class Bucket(NamedTuple):
    """What one graph is for: so many slots, source positions and target columns, of one kind of search;
    attention: whether its weights are wanted."""

    slots: int
    width: int
    columns: int
    kind: Kind
    attention: bool


class Flying(NamedTuple):
    """Copies to the host, right once the mark is reached: flags and weights of a step, or fields by name."""

    copies: Mapping[str, Tensor]
    mark: Mark

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
    """See `engine.executor.Stepper`."""

    late = 1

    def __init__(self, executor: CapturedExecutor) -> None:
        self.executor, self.work = executor, executor.work
        with self.work.decoding():
            self.search = BeamSearch(executor, tight=False, upload=self._up)
            whole = {"dtype": torch.int64, "device": executor.device}
            self._count = torch.zeros(1, **whole)  # active slots of the step
            self._sources, self._targets = torch.zeros(2, executor.slots, **whole).unbind()  # of moves
        self._weights: Tensor | None = None  # attention that the newest step leaves
        self._graphs: dict[Any, Callable[[], None]] = {}  # least used first
        self._seen: dict[Any, int] = {}
        self._generation = executor.generation

    def warm(self) -> None:
        """Capture what almost every step is, the largest first, so that all others fit into its memory."""
        executor, search = self.executor, self.search
        widths = _ladder(WIDTH, executor.width(min(COMMON, executor.limits.source)))
        columns = _ladder(executor.columns(0), executor.columns(min(COMMON, executor.limits.target)))
        sizes = product(_ladder(1, executor.slots), widths, columns)
        with self.work.decoding():
            self._count.fill_(0)  # all slots are idle, and stay so
            for n, width, column in reversed([*sizes]):
                bucket = Bucket(n, width, column, plain(search.columns), attention=False)
                self._run(bucket, partial(self._step, bucket), 1)

    def place(self, encoded: Any, i: int, slot: int, request: Request) -> None:
        with self.work.decoding():
            self.executor.place(encoded, i, slot)
            self.search.start(slot, request.options, len(request.source))

    def launch(self, n: int, *, attention: bool) -> Flying:
        with self.work.decoding():
            bucket = self._bucket(n, attention)
            kind = bucket.kind
            self.executor.reserve(bucket.width, bucket.columns)
            self._count.fill_(n)
            if attention and self._weights is None:
                size = self.executor.slots, self.executor.beams, ceil(self.executor.limits.source, WIDTH)
                self._weights = torch.empty(size, device=self.executor.device).flatten()
            self._run(bucket, partial(self._step, bucket), 1 if kind == plain(kind.columns) else RARE)
            self.search.stepped(n)
            copies = {"done": self.work.down(self.search.state.done[:n])}
            if attention:
                copies["attention"] = self.work.down(self._attention(bucket)[:n])
            return Flying(copies, self.work.mark())

    def tell(self, slots: Sequence[int]) -> Flying:
        with self.work.decoding():
            index = self._up(slots)
            rows = {name: self.work.down(getattr(self.search.state, name)[index]) for name in TOLD}
            return Flying(rows, self.work.mark())

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        if not moves:
            return
        with self.work.decoding():
            size = _bucket(len(moves), 1, self.executor.slots)
            padded = [*moves, *[moves[0]] * (size - len(moves))]
            for held, slots in zip((self._sources, self._targets), zip(*padded, strict=True), strict=True):
                held[:size].copy_(self._up(slots))
            self._run(size, partial(self._move, size), RARE)
        for source, target in moves:
            self.search.moved(source, target)
            self.executor.memory.moved(source, target)

    def _up(self, values: Sequence[int]) -> Tensor:
        return self.work.up(torch.tensor(values, dtype=torch.int64))

    def _bucket(self, n: int, attention: bool) -> Bucket:
        executor, kind = self.executor, self.search.kind(n)
        steps = self.search.longest(n) + 2
        if kind.ngram:
            columns = _bucket(steps, COLUMNS, self.search.columns)
            kind = kind._replace(columns=columns, ngram=next(size for size in NGRAMS if kind.ngram <= size))
        width = executor.width(max(executor.memory.lengths[:n]))
        return Bucket(_bucket(n, 1, executor.slots), width, executor.columns(steps), kind, attention)

    def _run(self, key: Any, work: Callable[[], None], after: int) -> None:
        """Replay the graph of this key, or do the work as it is, which readies all that a capture can't, and
        capture it once it has been wanted so often."""
        if self._generation != self.executor.generation:
            self._forget(len(self._graphs))
            self._generation = self.executor.generation
        graph = self._graphs.pop(key, None)
        if graph is not None:
            graph()
        else:
            work()
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] < after:
                return
            self._forget(len(self._graphs) + 1 - MOST)
            graph = self.work.capture(work)
        self._graphs[key] = graph

    def _forget(self, count: int) -> None:
        """Let go of the graphs that were used least lately."""
        if count > 0 and self._graphs:
            self.work.mark().synchronize()  # their memory may be another's at once
            for key in [*self._graphs][:count]:
                del self._graphs[key]

    @torch.no_grad()
    def _step(self, bucket: Bucket) -> None:
        """What a graph holds: one step of model and search."""
        n, search = bucket.slots, self.search
        search.rest(self._count, n)
        inputs = search.inputs(n, bucket.kind)
        top = self.executor.run(inputs, bucket.width, bucket.columns, bucket.attention)
        search.absorb(top, n, bucket.kind)
        if bucket.attention:
            self._attention(bucket).copy_(top.attention)

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


def plain(columns: int) -> Kind:
    """Of steps in which everybody searches and nobody wants more."""
    return Kind(
        columns=columns,
        ngram=0,
        ranked=True,
        sampled=False,
        groups=1,
        coverage=False,
        stepwise=False,
        simple=False,
    )


def _bucket(value: int, smallest: int, largest: int) -> int:
    """The smallest of `smallest`, its doubles and `largest` that is not below `value`."""
    return next(size for size in _ladder(smallest, largest) if size >= value or size == largest)


def _ladder(smallest: int, largest: int) -> list[int]:
    found = [smallest]
    while found[-1] < largest:
        found.append(found[-1] * 2)
    return [*found[:-1], min(found[-1], largest)]
