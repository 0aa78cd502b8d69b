"""The plain stepper: executor and search by turns, each step over before the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.executor import Executor
from engine.search import BeamSearch
from engine.slots import State, host
from engine.types import Request


class Landed(NamedTuple):
    """A step that is over."""

    flags: list[bool]
    weights: Any

    def done(self) -> list[bool]:
        return self.flags

    def attention(self) -> Any:
        return host(self.weights)


class Here(NamedTuple):
    """The search's own state: right until slots move."""

    state: State
    slots: Sequence[int]

    def rows(self) -> tuple[State, Sequence[int]]:
        return self


class PlainStepper:
    """See `engine.executor.Stepper`."""

    late = 0

    def __init__(self, executor: Executor) -> None:
        self.executor, self.search = executor, BeamSearch(executor)

    def place(self, encoded: Any, i: int, slot: int, request: Request) -> None:
        self.executor.place(encoded, i, slot)
        self.search.start(slot, request.options, len(request.source))

    def launch(self, n: int, *, attention: bool) -> Landed:
        topk = self.executor.step(n, self.search.inputs(n), attention=attention)
        return Landed(host(self.search.advance(topk, n)).tolist(), topk.attention)

    def tell(self, slots: Sequence[int]) -> Here:
        return Here(self.search.state, slots)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.executor.move(source, target)
            self.search.move(source, target)
