"""A lane of decoding slots: the only place where executor, search and requests meet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.ended import finished
from engine.errors import ExecutorFailed
from engine.executor import Encoded, Executor, Launched, Told
from engine.progress import certain
from engine.types import Outcome, Request, Result, Timings

Reply = Callable[[Request, Outcome], None]
Report = Callable[[Request, list[int]], None]

NOTHING = (
    "no hypothesis has a finite score: the options (prefix, unk_penalty, no_repeat_ngram_size) leave no "
    "token, or the model's scores are not numbers"
)


@dataclass(slots=True, eq=False)
class InFlight:
    """One request in a slot. slot: where it is now; -1 once it has left. attention: a host array [B, source
    length] of each step, when asked for. certain: how many target tokens its caller has been told."""

    request: Request
    slot: int
    steps: int = 0
    certain: int = 0
    attention: list[Any] = field(default_factory=list)


class Staged(NamedTuple):
    """Requests whose sources are being encoded. began: time.monotonic()."""

    requests: list[Request]
    encoded: Encoded
    began: float


class Step(NamedTuple):
    """A step under way and the flights that it covers, by their slots then."""

    flights: list[InFlight]
    launched: Launched
    attention: bool


class News(NamedTuple):
    """What a step has brought: flights that are done, and others whose callers want to hear of them."""

    done: list[InFlight]
    watched: list[InFlight]
    told: Told


class Lane:
    """Slots 0..len(active)-1 are in use: when one is freed, the last active one moves into the hole.

    A stepper may be late: flags are then read a step after it was launched, and answers another step later.
    Anything that the executor raises passes through; after a failed `step` or `drop` call `clear`.
    """

    def __init__(self, executor: Executor, reply: Reply, report: Report | None = None) -> None:
        """report: told of requests with a `progress`, which it is to call; both must not raise."""
        self.executor, self.reply, self.report = executor, reply, report
        self.stepper = executor.stepper()
        self.search = self.stepper.search
        self.active: list[InFlight] = []
        self.staged: deque[Staged] = deque()
        self._steps: deque[Step] = deque()
        self._news: deque[News] = deque()

    @property
    def free(self) -> int:
        return self.executor.slots - len(self.active) - sum(len(s.requests) for s in self.staged)

    def admit(self, requests: Sequence[Request]) -> float:
        """Encode requests together and place them behind the active slots, at once or, where the device
        encodes beside its steps, when that is over; returns the seconds it took of the host.

        When it raises, no slot has been taken.
        """
        began = time.monotonic()
        staged = Staged(list(requests), self.executor.encode([r.source for r in requests]), began)
        if self.active and (self.staged or not staged.encoded.ready()):
            self.staged.append(staged)
        else:
            self._place(staged)
        return time.monotonic() - began

    def settle(self) -> None:
        """Place what has been encoded; what is still under way too when there is nothing else to do, so that
        nobody is staged while no slot is active."""
        while self.staged and (self.staged[0].encoded.ready() or not self.active):
            self._place(self.staged[0])
            self.staged.popleft()

    def step(self) -> None:
        """One token for every active request; replies to those that are done and frees their slots."""
        self.settle()
        wanted = any(f.request.options.attends for f in self.active)
        launched = self.stepper.launch(len(self.active), attention=wanted)
        self._steps.append(Step(list(self.active), launched, wanted))
        if len(self._steps) > self.stepper.late:
            self._collect(self._steps.popleft())
            self.settle()

    def drop(self, slot: int) -> Request:
        """Free a slot at once, by moving the last active one into it."""
        flight = self.active[slot]
        self.stepper.move(self._vacate([slot]))
        if not self.active:
            self._deliver(0)
            self.settle()
        return flight.request

    def clear(self) -> list[Request]:
        """Free all slots without touching the executor; returns the requests that were in flight."""
        requests = [f.request for news in self._news for f in news.done]
        requests += [f.request for f in self.active]
        requests += [r for staged in self.staged for r in staged.requests]
        for flight in self.active:
            flight.slot = -1
        for held in (self.active, self.staged, self._steps, self._news):
            held.clear()
        return requests

    def _place(self, staged: Staged) -> None:
        here = [(i, r) for i, r in enumerate(staged.requests) if not r.cancelled]
        for slot, (i, request) in enumerate(here, len(self.active)):
            self.stepper.place(staged.encoded, i, slot, request)
        seconds = time.monotonic() - staged.began
        for _, request in here:
            request.admitted, request.encode_seconds = staged.began, seconds
            self.active.append(InFlight(request, len(self.active)))

    def _collect(self, step: Step) -> None:
        """Read the flags of a step. Flights that have left since are nobody's any more."""
        done = step.launched.done()
        weights = step.launched.attention() if step.attention else None
        ended = []
        for row, flight in enumerate(step.flights):
            if flight.slot < 0:
                continue
            flight.steps += 1
            if flight.request.options.alignment:
                assert weights is not None
                flight.attention.append(weights[row, :, : len(flight.request.source)].copy())
            if done[row]:
                ended.append(flight)
        watched = [f for f in self.active if f.request.progress and f not in ended] if self.report else []
        if ended or watched:
            told = self.stepper.tell([f.slot for f in (*ended, *watched)])
            self._news.append(News(ended, watched, told))
        moves = self._vacate([f.slot for f in ended])
        self._deliver(self.stepper.late if self.active else 0)
        if moves:
            self.stepper.move(moves)

    def _vacate(self, slots: Sequence[int]) -> list[tuple[int, int]]:
        """Take slots from their flights; returns what has to move where."""
        for slot in sorted(slots, reverse=True):
            self.active[slot].slot = -1
            last = self.active.pop()
            if slot < len(self.active):
                self.active[slot] = last
        moves = [(flight.slot, slot) for slot, flight in enumerate(self.active) if flight.slot != slot]
        for _, slot in moves:
            self.active[slot].slot = slot
        return moves

    def _deliver(self, later: int) -> None:
        """Answer what is done and tell what is certain; all but the newest `later` steps' news."""
        while len(self._news) > later:
            news = self._news.popleft()
            state, rows = news.told.rows()
            done = len(news.done)
            for flight, row in zip(news.done, rows[:done], strict=True):
                self.reply(flight.request, self._outcome(flight, state, row))
            for flight, row in zip(news.watched, rows[done:], strict=True):
                self._tell(flight, state, row)

    def _outcome(self, flight: InFlight, state: Any, row: int) -> Outcome:
        request = flight.request
        log = flight.attention if request.options.alignment else None
        found = finished(state, row, request.options, log)
        if not found:
            return ExecutorFailed(NOTHING)
        queued = request.admitted - request.arrived
        decoding = time.monotonic() - request.admitted - request.encode_seconds
        return Result(found, Timings(queued, request.encode_seconds, decoding, flight.steps))

    def _tell(self, flight: InFlight, state: Any, row: int) -> None:
        if self.report is None or flight.slot < 0:  # it has been answered since
            return
        tokens = certain(state, row, flight.request.options, flight.certain)
        if len(tokens) > flight.certain:
            flight.certain = len(tokens)
            self.report(flight.request, tokens)
