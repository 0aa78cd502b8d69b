"""A lane of decoding slots: the only place where executor, search and requests meet."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.errors import ExecutorFailed
from engine.search.certain import certain
from engine.search.executor import EncodedBatch, Executor, PendingStep, Snapshot
from engine.search.finished import finished_hypotheses
from engine.types import Outcome, Request, Result, Timings

Reply = Callable[[Request, Outcome], None]
Report = Callable[[Request, list[int]], None]

NOTHING = (
    "no hypothesis has a finite score: the options (prefix, unk_penalty, no_repeat_ngram_size) leave no "
    "token, or the model's scores are not numbers"
)


@dataclass(slots=True, eq=False)
class InFlight:
    """One request in a slot.

    slot: where it is now; -1 once it has left.
    certain: how many target tokens its caller has been told.
    attention: a host array [B, source length] of each step, when asked for.
    """

    request: Request
    slot: int
    steps: int = 0
    certain: int = 0
    attention: list[Any] = field(default_factory=list)


class StagedRequests(NamedTuple):
    """Requests whose sources are being encoded, or wait encoded for slots.

    began: time.monotonic().
    first: the place of the first of them in the encoded batch, whose others have been placed.
    """

    requests: list[Request]
    encoded: EncodedBatch
    began: float
    first: int = 0


class StepInFlight(NamedTuple):
    """A step under way and the flights that it covers, by their slots then."""

    flights: list[InFlight]
    launched: PendingStep
    attention: bool


class News(NamedTuple):
    """What a step has brought: flights that are done, and others whose callers want to hear of them."""

    done: list[InFlight]
    watched: list[InFlight]
    snapshot: Snapshot


class Lane:
    """Slots 0..len(active)-1 are in use: when one is freed, the last active one moves into the hole.

    A stepper may be late: flags are then read a step after it was launched, and answers another step later.
    Anything that the executor raises passes through; after a failed `step` or `drop` call `clear`.
    """

    def __init__(self, executor: Executor, reply: Reply, report: Report | None = None) -> None:
        """Make a lane without requests.

        report: told of requests with a `progress`, which it is to call; both must not raise.
        """
        self.executor, self.reply, self.report = executor, reply, report
        self.stepper = executor.stepper()
        self.search = self.stepper.search
        self.active: list[InFlight] = []
        self._attended: bool | None = None  # whether any of them wants attention; None: some are others now
        self._watched = False  # whether any of them tells what is certain; as old as that
        self.staged: deque[StagedRequests] = deque()
        self._steps: deque[StepInFlight] = deque()
        self._news: deque[News] = deque()

    @property
    def free(self) -> int:
        """How many requests it takes now. Once all slots are taken, those that are encoded ahead of need come
        in groups of at least half of what there is room for."""
        here, ahead = len(self.active) + sum(len(s.requests) for s in self.staged), self.stepper.ahead
        room = self.executor.slots + ahead - here
        return room if here < self.executor.slots or 2 * room >= ahead else 0

    @property
    def occupants(self) -> list[tuple[Request, int]]:
        """The requests that have a slot, or will, with the steps that they have had."""
        staged = [(request, 0) for s in self.staged for request in s.requests]
        return [(flight.request, flight.steps) for flight in self.active] + staged

    def admit(self, requests: Sequence[Request]) -> float:
        """Encode requests together and place them behind the active slots, at once or, where the device
        encodes beside its steps, when that is over; returns the seconds it took of the host.

        When it raises, no slot has been taken.
        """
        began = time.monotonic()
        staged = StagedRequests(list(requests), self.executor.encode([r.source for r in requests]), began)
        if self.active and (self.staged or not staged.encoded.ready()):
            self.staged.append(staged)
        elif (rest := self._place(staged)) is not None:
            self.staged.append(rest)
        return time.monotonic() - began

    def settle(self) -> None:
        """Place what has been encoded; what is still under way too when there is nothing else to do, so that
        nobody is staged while no slot is active."""
        while self.staged and (self.staged[0].encoded.ready() or not self.active):
            rest = self._place(self.staged[0])
            if rest is not None:
                self.staged[0] = rest
                return
            self.staged.popleft()

    def step(self, patience: float = 0.0) -> int:
        """Decode one token for every active request; reply to those that are done and free their slots.

        patience: seconds for which the stepper may take further steps while nobody is done, where nobody
            listens to what is certain and nobody waits for a turn.

        Returns how many steps were launched.
        """
        self.settle()
        if self._attended is None:
            self._attended = any(f.request.options.attends for f in self.active)
            self._watched = self.report is not None and any(f.request.progress for f in self.active)
        attention = self._attended
        self.stepper.patience = 0.0 if self._watched else patience
        launched = self.stepper.launch(len(self.active), attention=attention)
        self._steps.append(StepInFlight(list(self.active), launched, attention))
        if len(self._steps) > self.stepper.late:
            self._collect(self._steps.popleft())
            self.settle()
        return launched.steps

    def drain(self, requests: Iterable[Request] = ()) -> int:
        """Admit requests as slots get free, and step until nobody is active; returns the steps taken."""
        waiting, steps = deque(requests), 0
        while waiting or self.active:
            if waiting and self.free:
                self.admit([waiting.popleft() for _ in range(min(self.free, len(waiting)))])
            steps += self.step(math.inf)  # whoever waits gets a slot when somebody is done
        return steps

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
        for collection in (self.active, self.staged, self._steps, self._news):
            collection.clear()
        self._attended = None
        return requests

    def _place(self, staged: StagedRequests) -> StagedRequests | None:
        """Place as many as there are slots for; returns the others."""
        here: list[tuple[int, Request]] = []
        room, count = self.executor.slots - len(self.active), 0
        for i, request in enumerate(staged.requests, staged.first):
            if len(here) == room and not request.cancelled:
                break
            count += 1
            if not request.cancelled:
                here.append((i, request))
        for slot, (i, request) in enumerate(here, len(self.active)):
            self.stepper.place(staged.encoded, i, slot, request)
        seconds = time.monotonic() - staged.began
        for _, request in here:
            request.admitted, request.encode_seconds = staged.began, seconds
            self.active.append(InFlight(request, len(self.active)))
        self._attended = None
        others = staged.requests[count:]
        return staged._replace(requests=others, first=staged.first + count) if others else None

    def _collect(self, step: StepInFlight) -> None:
        """Read the flags of a step. Flights that have left since are nobody's any more."""
        done = step.launched.done()
        weights = step.launched.attention() if step.attention else None
        ended = []
        for row, flight in enumerate(step.flights):
            if flight.slot < 0:
                continue
            flight.steps += step.launched.steps
            if flight.request.options.alignment:
                assert weights is not None
                flight.attention.append(weights[row, :, : len(flight.request.source)].copy())
            if done[row]:
                ended.append(flight)
        watched = [f for f in self.active if f.request.progress and f not in ended] if self.report else []
        if ended or watched:
            snapshot = self.stepper.snapshot([f.slot for f in (*ended, *watched)])
            self._news.append(News(ended, watched, snapshot))
        moves = self._vacate([f.slot for f in ended]) if ended else []
        self._deliver(self.stepper.late if self.active else 0)
        if moves:
            self.stepper.move(moves)

    def _vacate(self, slots: Sequence[int]) -> list[tuple[int, int]]:
        """Take slots from their flights; returns what has to move where."""
        for slot in sorted(slots, reverse=True):
            self.active[slot].slot = -1
            last = self.active.pop()
            self._attended = None
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
            state, rows = news.snapshot.rows()
            count = len(news.done)
            for flight, row in zip(news.done, rows[:count], strict=True):
                self.reply(flight.request, self._outcome(flight, state, row))
            for flight, row in zip(news.watched, rows[count:], strict=True):
                self._tell(flight, state, row)

    def _outcome(self, flight: InFlight, state: Any, row: int) -> Outcome:
        request = flight.request
        log = flight.attention if request.options.alignment else None
        hypotheses = finished_hypotheses(state, row, request.options, log)
        if not hypotheses:
            return ExecutorFailed(NOTHING)
        queued = request.admitted - request.arrived
        decoding = time.monotonic() - request.admitted - request.encode_seconds
        return Result(hypotheses, Timings(queued, request.encode_seconds, decoding, flight.steps))

    def _tell(self, flight: InFlight, state: Any, row: int) -> None:
        if self.report is None or flight.slot < 0:  # it has been answered since
            return
        tokens = certain(state, row, flight.request.options, flight.certain)
        if len(tokens) > flight.certain:
            flight.certain = len(tokens)
            self.report(flight.request, tokens)
