"""A lane of decoding slots: the only place where executor, search and requests meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import to_device

from engine.errors import ExecutorFailed
from engine.executor import Executor
from engine.progress import certain
from engine.search import BeamSearch
from engine.types import Outcome, Request, Result, Timings

Reply = Callable[[Request, Outcome], None]
Report = Callable[[Request, list[int]], None]

NOTHING = (
    "no hypothesis has a finite score: the options (prefix, unk_penalty, no_repeat_ngram_size) leave no "
    "token, or the model's scores are not numbers"
)


@dataclass(slots=True)
class InFlight:
    """One request in a slot. attention: a host array [B, source length] of each step, when asked for.
    certain: how many target tokens its caller has been told."""

    request: Request
    steps: int = 0
    certain: int = 0
    attention: list[Any] = field(default_factory=list)


class Lane:
    """Slots 0..len(active)-1 are in use: when one is freed, the last active one moves into the hole.

    Anything that the executor raises passes through; after a failed `step` or `drop` call `clear`.
    """

    def __init__(self, executor: Executor, reply: Reply, report: Report | None = None) -> None:
        """report: told of requests with a `progress`, which it is to call; both must not raise."""
        self.executor, self.reply, self.report = executor, reply, report
        self.search = BeamSearch(executor)
        self.active: list[InFlight] = []

    @property
    def free(self) -> int:
        return self.executor.slots - len(self.active)

    def admit(self, requests: Sequence[Request]) -> float:
        """Encode requests together, place them behind the active slots; returns the seconds it took.

        When it raises, no slot has been taken.
        """
        began = time.monotonic()
        encoded = self.executor.encode([r.source for r in requests])
        for i, request in enumerate(requests):
            slot = len(self.active) + i
            self.executor.place(encoded, i, slot)
            self.search.start(slot, request.options, len(request.source))
        seconds = time.monotonic() - began
        for request in requests:
            request.admitted, request.encode_seconds = began, seconds
        self.active += [InFlight(r) for r in requests]
        return seconds

    def step(self) -> None:
        """One token for every active request; replies to those that are done and frees their slots."""
        n = len(self.active)
        wanted = any(f.request.options.attends for f in self.active)
        topk = self.executor.step(n, self.search.inputs(n), attention=wanted)
        if wanted:
            self._log(topk.attention)
        done = _host(self.search.advance(topk, n)).tolist()
        for flight in self.active:
            flight.steps += 1
        for slot in reversed(range(n)):
            if done[slot]:
                self.reply(self.active[slot].request, self._outcome(slot))
                self.drop(slot)
        if self.report:
            for slot, flight in enumerate(self.active):
                if flight.request.progress:
                    self._tell(self.report, slot, flight)

    def drop(self, slot: int) -> Request:
        """Free a slot at once, by moving the last active one into it."""
        request, last = self.active[slot].request, self.active.pop()
        if slot < len(self.active):
            self.active[slot] = last
            self.executor.move(len(self.active), slot)
            self.search.move(len(self.active), slot)
        return request

    def clear(self) -> list[Request]:
        """Free all slots without touching the executor; returns the requests that were in flight."""
        requests = [f.request for f in self.active]
        self.active.clear()
        return requests

    def _outcome(self, slot: int) -> Outcome:
        flight = self.active[slot]
        request = flight.request
        found = self.search.best(slot, flight.attention if request.options.alignment else None)
        if not found:
            return ExecutorFailed(NOTHING)
        queued = request.admitted - request.arrived
        decoding = time.monotonic() - request.admitted - request.encode_seconds
        return Result(found, Timings(queued, request.encode_seconds, decoding, flight.steps))

    def _tell(self, report: Report, slot: int, flight: InFlight) -> None:
        tokens = certain(self.search.state, slot, flight.request.options, flight.certain)
        if len(tokens) > flight.certain:
            flight.certain = len(tokens)
            report(flight.request, tokens)

    def _log(self, attention: Any) -> None:
        host = _host(attention)
        for slot, flight in enumerate(self.active):
            if flight.request.options.alignment:
                flight.attention.append(host[slot, :, : len(flight.request.source)].copy())


def _host(array: Any) -> Any:
    return np.asarray(to_device(array, "cpu"))
