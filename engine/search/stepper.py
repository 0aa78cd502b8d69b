"""The plain stepper: each step of executor and search finishes before the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.search.beam import BeamSearch
from engine.search.executor import Executor, SlotRequest
from engine.search.finished import finished_hypotheses
from engine.search.state import SearchState, to_numpy
from engine.types import Hypothesis, Request


class CompletedStep(NamedTuple):
    """One or more finished steps."""

    flags: NDArray[np.bool_]
    weights: Sequence[Any] = ()
    steps: int = 1

    def done(self) -> NDArray[np.bool_]:
        return self.flags

    def attention(self) -> list[Any]:
        return [to_numpy(weights) for weights in self.weights]


class LiveSnapshot(NamedTuple):
    """A view of the search's own state: valid until slots move."""

    state: SearchState
    done: Sequence[int]
    running: Sequence[int]

    def hypotheses(self, finished: Sequence[SlotRequest]) -> list[list[Hypothesis]]:
        return finished_hypotheses(self.state, self.done, finished)

    def rows(self) -> tuple[SearchState, Sequence[int]]:
        return self.state, self.running


class PlainStepper:
    """Implements `engine.search.executor.Stepper` without any step in flight."""

    flag_delay = 0
    encode_ahead = 0
    launch_seconds = 0.0

    def __init__(self, executor: Executor) -> None:
        self.executor, self.search = executor, BeamSearch(executor)

    def place(
        self, encoded: Any, members: Sequence[int], slots: Sequence[int], requests: Sequence[Request]
    ) -> None:
        for i, slot, request in zip(members, slots, requests, strict=True):
            self.executor.place(encoded, i, slot, request.options.prefix)
            self.search.start(slot, request.options, len(request.source))

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        topk = self.executor.step(n, self.search.inputs(n), attention=attention)
        weights = () if topk.attention is None else (topk.attention,)
        # copied, because the next step writes into the flags
        return CompletedStep(to_numpy(self.search.advance(topk, n)).copy(), weights)

    def snapshot(self, done: Sequence[int], running: Sequence[int]) -> LiveSnapshot:
        return LiveSnapshot(self.search.state, done, running)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.executor.move(source, target)
            self.search.move(source, target)
