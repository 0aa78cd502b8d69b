"""A lane of decoding slots: the only place where executor, search and requests meet."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ExecutorFailed
from engine.search.certain import certain
from engine.search.executor import EncodedBatch, Ended, Executor, PendingStep, Snapshot
from engine.types import Hypothesis, Outcome, Request, Result, Timings

Reply = Callable[[Request, Outcome], None]
Report = Callable[[Request, list[int]], None]

SLOTS_LOOKED_AT: Final = 32  # in each step, for requests that nobody wants any more
NOTHING = (
    "no hypothesis has a finite score: the options (prefix, unk_penalty, no_repeat_ngram_size) leave no "
    "token, or the model's scores are not numbers"
)


@dataclass(slots=True, eq=False)
class InFlight(Ended):
    """One request in a slot.

    slot: where it is now; -1 once it has left.
    first: steps that the lane had launched when it was placed.
    steps: that it has had, once it has left.
    certain: number of target tokens that its caller has been told.
    """

    request: Request
    slot: int
    first: int
    steps: int = 0
    certain: int = 0


class EncodedRequests(NamedTuple):
    """Requests that wait for slots, their sources encoded or under way.

    requests: those of the batch that have no slot yet.
    encoded: the whole batch.
    began: when its encoding did, a time.monotonic().
    first: the place of the first of the requests in the batch.
    """

    requests: list[Request]
    encoded: EncodedBatch
    began: float
    first: int = 0


class StepsLeft(NamedTuple):
    """The steps that requests of a lane are expected to take yet. Few turns ask how many these are.

    ends: of each slot, steps of the lane by the time it is free again; 0 of a hole.
    holes: number of those.
    taken: steps of the lane so far.
    waiting: requests that wait for slots.
    """

    ends: NDArray[np.float64]
    holes: int
    taken: int
    waiting: list[list[Request]]

    def __float__(self) -> float:
        # a hole counts as one step, as whoever is longer at it than expected
        left = float(np.maximum(self.ends - self.taken, 1.0).sum()) - self.holes
        return left + sum([request.expected_steps for batch in self.waiting for request in batch])


class StepInFlight(NamedTuple):
    """A step under way and the flights that it covers, by their slots then."""

    flights: list[InFlight]
    launched: PendingStep
    attention: bool


class PendingAnswers(NamedTuple):
    """What a step has brought: finished requests, and running ones whose callers stream what is certain.

    snapshot: of the slots of both, in this order.
    """

    finished: list[InFlight]
    streamed: list[InFlight]
    snapshot: Snapshot


class Lane:
    """Slots 0..n-1 are in use when a step is launched: one that is freed is a hole until somebody comes, or
    the last one moves into it.

    A stepper may be late: flags are then read a step after it was launched, and answers another step later.
    Anything that the executor raises passes through; after a failed `step` or `drop` call `clear`.
    """

    def __init__(self, executor: Executor, reply: Reply, report: Report | None = None) -> None:
        """Make a lane without requests.

        executor: whose slots these are.
        reply: is called with each request and its outcome; must not raise.
        report: is called with each request that has a `progress`, which it is to call, and the tokens that
            are certain; must not raise. None: nothing is streamed.
        """
        self.executor, self.reply, self.report = executor, reply, report
        self.stepper = executor.stepper()
        self.search = self.stepper.search
        self._flights: list[InFlight] = []  # by slot; a hole among them keeps the one that has left it
        self._holes: list[int] = []  # slots that are free, until somebody comes or the next step is launched
        self._attending = self._streaming = 0  # active requests that want attention, and that stream
        self._launched = self._collected = 0  # steps, all along
        self.waiting: deque[EncodedRequests] = deque()
        self._steps: deque[StepInFlight] = deque()
        self._answers: deque[PendingAnswers] = deque()
        self._expected = np.zeros(executor.slots)  # of each slot: steps launched by the time it is free again
        self._looked_at = 0  # slots before it were looked at lately, see `overdue`
        self._held = dict[int, int]()  # slots of each group, by ticket

    @property
    def active(self) -> list[InFlight]:
        """List the requests that have a slot."""
        return [f for f in self._flights if f.slot >= 0] if self._holes else [*self._flights]

    @property
    def in_use(self) -> int:
        """The number of slots that requests have."""
        return len(self._flights) - len(self._holes)

    @property
    def free(self) -> int:
        """The number of requests that it takes now. Once all slots are taken, sources are encoded ahead of
        need in batches of at least half of the room for them."""
        here, ahead = self.requests, self.stepper.ahead
        room = self.executor.slots + ahead - here
        return room if here < self.executor.slots or 2 * room >= ahead else 0

    @property
    def requests(self) -> int:
        """The number of requests that have a slot or wait for one."""
        return self.in_use + sum([len(batch.requests) for batch in self.waiting])

    @property
    def steps_left(self) -> StepsLeft:
        """The steps that these are expected to take yet, together."""
        ends = self._expected[: len(self._flights)].copy()
        return StepsLeft(ends, len(self._holes), self._collected, [batch.requests for batch in self.waiting])

    @property
    def held(self) -> dict[int, int]:
        """The number of slots that each group has or waits for, by ticket."""
        held = self._held.copy()
        for request in [r for batch in self.waiting for r in batch.requests]:
            held[request.ticket] = held.get(request.ticket, 0) + 1
        return held

    def overdue(self, now: float) -> list[InFlight]:
        """List requests that have a slot and are cancelled, or late at this time. Each call looks at the next
        few slots, so that every slot is looked at within a few steps."""
        begin = self._looked_at if self._looked_at < len(self._flights) else 0
        self._looked_at = begin + SLOTS_LOOKED_AT
        some = self._flights[begin : self._looked_at]
        found = [f for f in some if f.request.cancelled or f.request.deadline <= now]
        return [f for f in found if f.slot >= 0]

    def admit(self, requests: Sequence[Request]) -> float:
        """Encode requests together and place them behind the active slots, at once or, where the device
        encodes beside its steps, when that is over; returns the seconds it took of the host.

        When it raises, no slot has been taken.
        """
        began = time.monotonic()
        batch = EncodedRequests(list(requests), self.executor.encode([r.source for r in requests]), began)
        if self._flights and (self.waiting or not batch.encoded.ready()):
            self.waiting.append(batch)
        elif (rest := self._place(batch)) is not None:
            self.waiting.append(rest)
        return time.monotonic() - began

    def settle(self) -> None:
        """Place what has been encoded. While no slot is active, place what is still under way too: there is
        nothing else to do."""
        waiting, slots = self.waiting, self.executor.slots
        while waiting and self.in_use < slots and (waiting[0].encoded.ready() or not self._flights):
            rest = self._place(waiting[0])
            if rest is None:
                waiting.popleft()
            else:
                waiting[0] = rest

    def step(self, patience: float = 0.0) -> int:
        """Decode one token for every active request; reply to those that are done and free their slots.

        patience: seconds for which the stepper may take further steps while no slot is done. Where a request
            streams what is certain, none are taken.

        Returns how many steps were launched.
        """
        self.settle()
        attention = self._attending > 0
        self.stepper.patience = 0.0 if self._streaming else patience
        self._close_holes()
        launched = self.stepper.launch(len(self._flights), attention=attention)
        self._launched += launched.steps
        self._steps.append(StepInFlight([*self._flights], launched, attention))
        if len(self._steps) > self.stepper.late:
            self._collect(self._steps.popleft())
            self.settle()
        return launched.steps

    def drain(self, requests: Iterable[Request] = ()) -> int:
        """Admit requests as slots get free, and step until nobody is active; returns the steps taken."""
        waiting, steps = deque(requests), 0
        while waiting or self._flights:
            if waiting and self.free:
                self.admit([waiting.popleft() for _ in range(min(self.free, len(waiting)))])
            steps += self.step(math.inf)  # a slot gets free only when one is done
        return steps

    def drop(self, flight: InFlight) -> Request:
        """Free the slot of a request at once, by moving the last active one into it."""
        self._vacate([flight])
        self._close_holes()
        if not self._flights:
            self._deliver(0)
            self.settle()
        return flight.request

    def clear(self) -> list[Request]:
        """Free all slots without touching the executor; returns the requests that were in flight."""
        requests = [f.request for answers in self._answers for f in answers.finished]
        requests += [f.request for f in self.active]
        requests += [r for batch in self.waiting for r in batch.requests]
        for flight in self._flights:
            flight.slot = -1
        for collection in (self._flights, self._holes, self.waiting, self._steps, self._answers):
            collection.clear()
        self._held.clear()
        self._attending = self._streaming = 0
        self._collected = self._launched
        return requests

    def _place(self, batch: EncodedRequests) -> EncodedRequests | None:
        """Place as many requests as there are slots for; returns the others."""
        holes, flights, expected = self._holes, self._flights, self._expected
        room, first, new = self.executor.slots - self.in_use, batch.first, len(flights)
        here, left = batch.requests[:room], batch.requests[room:]
        after = first + len(here)
        members: Sequence[int] = range(first, after)
        alive = [i for i, request in enumerate(here) if not request.cancelled]
        if len(alive) < len(here):
            members, here = [first + i for i in alive], [here[i] for i in alive]
        slots = [*holes[: len(here)], *range(new, new + len(here) - len(holes))]
        self.stepper.place(batch.encoded, members, slots, here)
        del holes[: len(here)]
        began, seconds, launched = batch.began, time.monotonic() - batch.began, self._launched
        for slot, request in zip(slots, here, strict=True):
            request.admitted, request.encode_seconds = began, seconds
            options = request.options
            flight = InFlight(options, [] if options.alignment else None, request, slot, launched)
            if slot < new:
                flights[slot] = flight
            else:
                flights.append(flight)
            expected[slot] = launched + request.expected_steps
        self._count(here, 1)
        return batch._replace(requests=left, first=after) if left else None

    def _collect(self, step: StepInFlight) -> None:
        """Read the flags of a step, and free the slots that are done."""
        ended = self._ended(step)
        streamed = (
            [f for f in self._flights if f.request.progress and f not in ended] if self._streaming else []
        )
        if ended or streamed:
            snapshot = self.stepper.snapshot([f.slot for f in ended], [f.slot for f in streamed])
            self._answers.append(PendingAnswers(ended, streamed, snapshot))
        self._deliver(self.stepper.late)
        self._vacate(ended)
        if not self._flights:
            self._deliver(0)

    def _ended(self, step: StepInFlight) -> list[InFlight]:
        """List the requests that are done by a step, but for those that have left their slots since."""
        done = step.launched.done().nonzero()[0].tolist()
        self._collected += step.launched.steps
        if step.attention:
            every = step.launched.attention()
            for row, flight in enumerate(step.flights):
                if flight.slot >= 0 and flight.attention is not None:
                    length = len(flight.request.source)
                    flight.attention += [weights[row, :, :length].copy() for weights in every]
        ended = [flight for row in done if (flight := step.flights[row]).slot >= 0]
        for flight in ended:
            flight.steps = max(0, self._collected - flight.first)
        return ended

    def _count(self, requests: Sequence[Request], change: int) -> None:
        """Count requests that have become active, or are so no more."""
        held, streams = self._held, self.report is not None
        for request in requests:
            ticket = request.ticket
            has = held.get(ticket, 0) + change
            if has:
                held[ticket] = has
            else:
                del held[ticket]
            if request.options.attends:
                self._attending += change
            if streams and request.progress is not None:
                self._streaming += change

    def _vacate(self, flights: Sequence[InFlight]) -> None:
        """Take slots from their requests: they become holes, and none where nobody is left."""
        self._count([f.request for f in flights], -1)
        for flight in flights:
            self._holes.append(flight.slot)
            self._expected[flight.slot] = 0.0
            flight.slot = -1
        if len(self._holes) == len(self._flights):
            self._flights.clear()
            self._holes.clear()

    def _close_holes(self) -> None:
        """Let the last slots move into holes that nobody has come for."""
        if not self._holes:
            return
        flights, moves = self._flights, list[tuple[int, int]]()
        for hole in sorted(self._holes):
            while flights[-1].slot < 0:
                flights.pop()
            if hole >= len(flights):
                break
            last = flights[hole] = flights.pop()
            moves.append((last.slot, hole))
            self._expected[hole], last.slot = self._expected[last.slot], hole
        self._holes.clear()
        self.stepper.move(moves)

    def _deliver(self, later: int) -> None:
        """Answer finished requests and stream what is certain, but for the newest `later` steps."""
        while len(self._answers) > later:
            answers = self._answers.popleft()
            found, now = answers.snapshot.hypotheses(answers.finished), time.monotonic()
            for flight, hypotheses in zip(answers.finished, found, strict=True):
                self.reply(flight.request, _outcome(flight, hypotheses, now))
            if answers.streamed:
                state, rows = answers.snapshot.rows()
                for flight, row in zip(answers.streamed, rows, strict=True):
                    self._stream(flight, state, row)

    def _stream(self, flight: InFlight, state: Any, row: int) -> None:
        if self.report is None or flight.slot < 0:  # it has been answered since
            return
        tokens = certain(state, row, flight.request.options, flight.certain)
        if len(tokens) > flight.certain:
            flight.certain = len(tokens)
            self.report(flight.request, tokens)


def _outcome(flight: InFlight, hypotheses: list[Hypothesis], now: float) -> Outcome:
    if not hypotheses:
        return ExecutorFailed(NOTHING)
    request = flight.request
    admitted, encoding = request.admitted, request.encode_seconds
    timings = Timings(admitted - request.arrived, encoding, now - admitted - encoding, flight.steps)
    return Result(hypotheses, timings)
