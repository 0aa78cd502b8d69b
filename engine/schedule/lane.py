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
from engine.search.certain import certain_tokens
from engine.search.executor import EncodedBatch, Executor, PendingStep, SlotRequest, Snapshot
from engine.types import Hypothesis, Outcome, Request, Result, Timings

Reply = Callable[[Request, Outcome], None]
Report = Callable[[Request, list[int]], None]

SLOTS_CHECKED: Final = 32  # slots that a step checks for cancelled and late requests
NO_HYPOTHESIS = (
    "no hypothesis has a finite score: the options (prefix, unk_penalty, no_repeat_ngram_size) leave no "
    "token, or the model's scores are not numbers"
)


@dataclass(slots=True, eq=False)
class InFlight(SlotRequest):
    """One request in a slot.

    slot: number of the slot; -1 after the request has left it.
    first: number of steps that the lane had launched before the request was placed.
    steps: number of steps of the request, set when it leaves.
    certain: number of target tokens that its caller has received.
    """

    request: Request
    slot: int
    first: int
    steps: int = 0
    certain: int = 0


class EncodedRequests(NamedTuple):
    """Requests that wait for slots; their sources are encoded or being encoded.

    requests: requests of the batch without a slot.
    encoded: the whole batch.
    began: time.monotonic() at the start of the encoding.
    first: index of the first of these requests in the batch.
    """

    requests: list[Request]
    encoded: EncodedBatch
    began: float
    first: int = 0


class StepsLeft(NamedTuple):
    """Expected steps of the requests of a lane until all are done, summed up on use: few turns need the sum.

    ends: lane's step count at which each slot is expected to be free; 0 for a hole (a free slot in between).
    holes: number of holes.
    taken: number of steps that the lane has done.
    waiting: requests that wait for slots.
    """

    ends: NDArray[np.float64]
    holes: int
    taken: int
    waiting: list[list[Request]]

    def __float__(self) -> float:
        # `maximum` counts a hole as one step, like a request that takes longer than expected
        left = float(np.maximum(self.ends - self.taken, 1.0).sum()) - self.holes
        return left + sum([request.expected_steps for batch in self.waiting for request in batch])


class StepInFlight(NamedTuple):
    """A launched step, and the requests in slots 0, 1, ... when it was launched."""

    flights: list[InFlight]
    launched: PendingStep
    attention: bool


class PendingAnswers(NamedTuple):
    """Outcome of a step.

    finished: finished requests.
    streamed: running requests whose callers stream certain tokens.
    snapshot: snapshot of the slots of both, in this order.
    """

    finished: list[InFlight]
    streamed: list[InFlight]
    snapshot: Snapshot


class Lane:
    """Slots of one executor with their requests.

    A step runs on slots 0..n-1. A freed slot is a hole until a new request takes it, or until the last slot
    moves into it before the next step. If `Stepper.flag_delay` is 1, flags are read one step after the launch
    and answers another step later. Errors of the executor are raised; after a failed `step` or `drop` call
    `clear`.
    """

    def __init__(self, executor: Executor, reply: Reply, report: Report | None = None) -> None:
        """Make a lane without requests.

        executor: owner of the slots.
        reply: function that is called with each request and its outcome; must not raise.
        report: function that is called with each request that has a `progress` function, and its certain
            tokens; must not raise. None: nothing is streamed.
        """
        self.executor, self.reply, self.report = executor, reply, report
        self.stepper = executor.stepper()
        self.search = self.stepper.search
        self._flights: list[InFlight] = []  # by slot; a hole keeps the request that has left it
        self._holes: list[int] = []  # free slots among those in use
        self._attending = self._streaming = 0  # active requests with attention, and with streaming
        self._launched = self._collected = 0  # steps since the start
        self.waiting: deque[EncodedRequests] = deque()
        self._steps: deque[StepInFlight] = deque()
        self._answers: deque[PendingAnswers] = deque()
        self._expected = np.zeros(executor.slots)  # step count at which each slot is expected to be free
        self._next_check = 0  # slot at which `overdue` continues
        self._group_slots = dict[int, int]()  # slots of each group, by ticket

    @property
    def active(self) -> list[InFlight]:
        """Requests in slots."""
        return [f for f in self._flights if f.slot >= 0] if self._holes else [*self._flights]

    @property
    def in_use(self) -> int:
        """Number of slots in use."""
        return len(self._flights) - len(self._holes)

    @property
    def free(self) -> int:
        """Number of requests that `admit` accepts now.

        When all slots are taken, sources are encoded ahead of need, in batches of at least half of
        `Stepper.encode_ahead`.
        """
        admitted, ahead = self.requests, self.stepper.encode_ahead
        room = self.executor.slots + ahead - admitted
        return room if admitted < self.executor.slots or 2 * room >= ahead else 0

    @property
    def requests(self) -> int:
        """Number of requests that have a slot or wait for one."""
        return self.in_use + sum([len(batch.requests) for batch in self.waiting])

    @property
    def steps_left(self) -> StepsLeft:
        """Expected steps of all requests of the lane until they are done."""
        ends = self._expected[: len(self._flights)].copy()
        return StepsLeft(ends, len(self._holes), self._collected, [batch.requests for batch in self.waiting])

    @property
    def slots_by_group(self) -> dict[int, int]:
        """Number of slots that each group has or waits for, by ticket."""
        slots = self._group_slots.copy()
        for request in [r for batch in self.waiting for r in batch.requests]:
            slots[request.ticket] = slots.get(request.ticket, 0) + 1
        return slots

    def overdue(self, now: float) -> list[InFlight]:
        """List cancelled and late requests among the next SLOTS_CHECKED slots. A few calls check all slots.

        now: current time in seconds.
        """
        begin = self._next_check if self._next_check < len(self._flights) else 0
        self._next_check = begin + SLOTS_CHECKED
        checked = self._flights[begin : self._next_check]
        found = [f for f in checked if f.request.cancelled or f.request.deadline <= now]
        return [f for f in found if f.slot >= 0]

    def admit(self, requests: Sequence[Request]) -> float:
        """Encode requests as one batch and place them in free slots; returns the seconds that this took.

        If the device encodes in parallel with steps, `settle` places the requests when their encoding is
        done. If encoding raises, no slot has been taken.
        """
        began = time.monotonic()
        batch = EncodedRequests(list(requests), self.executor.encode([r.source for r in requests]), began)
        if self._flights and (self.waiting or not batch.encoded.ready()):
            self.waiting.append(batch)
        elif (rest := self._place(batch)) is not None:
            self.waiting.append(rest)
        return time.monotonic() - began

    def settle(self) -> None:
        """Place encoded requests in free slots. A lane without active slots waits for the encoding to end."""
        waiting, slots = self.waiting, self.executor.slots
        while waiting and self.in_use < slots and (waiting[0].encoded.ready() or not self._flights):
            rest = self._place(waiting[0])
            if rest is None:
                waiting.popleft()
            else:
                waiting[0] = rest

    def step(self, patience: float = 0.0) -> int:
        """Decode one token for every active request; answer finished requests and free their slots.

        patience: seconds for which the stepper may take further steps while no slot is done. It takes none
            while a request streams.

        Returns the number of launched steps.
        """
        self.settle()
        attention = self._attending > 0
        self.stepper.launch_seconds = 0.0 if self._streaming else patience
        self._close_holes()
        launched = self.stepper.launch(len(self._flights), attention=attention)
        self._launched += launched.steps
        self._steps.append(StepInFlight([*self._flights], launched, attention))
        if len(self._steps) > self.stepper.flag_delay:
            self._collect(self._steps.popleft())
            self.settle()
        return launched.steps

    def drain(self, requests: Iterable[Request] = ()) -> int:
        """Admit requests as slots become free, and step until none is left; returns the number of steps."""
        waiting, steps = deque(requests), 0
        while waiting or self._flights:
            if waiting and self.free:
                self.admit([waiting.popleft() for _ in range(min(self.free, len(waiting)))])
            steps += self.step(math.inf)
        return steps

    def drop(self, flight: InFlight) -> Request:
        """Free the slot of a request at once: the last slot moves into it."""
        self._vacate([flight])
        self._close_holes()
        if not self._flights:  # no later step delivers the pending answers
            self._deliver(0)
            self.settle()
        return flight.request

    def clear(self) -> list[Request]:
        """Free all slots without calling the executor; returns the requests that were in the lane."""
        requests = [f.request for answers in self._answers for f in answers.finished]
        requests += [f.request for f in self.active]
        requests += [r for batch in self.waiting for r in batch.requests]
        for flight in self._flights:
            flight.slot = -1
        for collection in (self._flights, self._holes, self.waiting, self._steps, self._answers):
            collection.clear()
        self._group_slots.clear()
        self._attending = self._streaming = 0
        self._collected = self._launched
        return requests

    def _place(self, batch: EncodedRequests) -> EncodedRequests | None:
        """Place requests in all free slots; returns the rest of the batch, None if it is empty."""
        holes, flights, expected = self._holes, self._flights, self._expected
        room, first, new = self.executor.slots - self.in_use, batch.first, len(flights)
        here, left = batch.requests[:room], batch.requests[room:]
        after = first + len(here)
        members: Sequence[int] = range(first, after)
        # requests that were cancelled during their encoding take no slot
        alive = [i for i, request in enumerate(here) if not request.cancelled]
        if len(alive) < len(here):
            members, here = [first + i for i in alive], [here[i] for i in alive]
        # holes are filled first, then slots after the last one
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
        """Read the flags of a step, and free the slots of finished requests."""
        ended = self._ended(step)
        streamed = (
            [f for f in self._flights if f.request.progress and f not in ended] if self._streaming else []
        )
        if ended or streamed:
            snapshot = self.stepper.snapshot([f.slot for f in ended], [f.slot for f in streamed])
            self._answers.append(PendingAnswers(ended, streamed, snapshot))
        self._deliver(self.stepper.flag_delay)
        self._vacate(ended)
        if not self._flights:
            self._deliver(0)

    def _ended(self, step: StepInFlight) -> list[InFlight]:
        """List the requests that a step has finished and that are still in their slots."""
        done = step.launched.done().nonzero()[0].tolist()
        self._collected += step.launched.steps
        if step.attention:
            attention = step.launched.attention()
            for row, flight in enumerate(step.flights):
                if flight.slot >= 0 and flight.attention is not None:
                    length = len(flight.request.source)
                    flight.attention += [weights[row, :, :length].copy() for weights in attention]
        ended = [flight for row in done if (flight := step.flights[row]).slot >= 0]
        for flight in ended:
            flight.steps = max(0, self._collected - flight.first)
        return ended

    def _count(self, requests: Sequence[Request], change: int) -> None:
        """Count requests that take slots (`change` is 1) or leave slots (-1)."""
        slots, streams = self._group_slots, self.report is not None
        for request in requests:
            ticket = request.ticket
            count = slots.get(ticket, 0) + change
            if count:
                slots[ticket] = count
            else:
                del slots[ticket]
            if request.options.attends:
                self._attending += change
            if streams and request.progress is not None:
                self._streaming += change

    def _vacate(self, flights: Sequence[InFlight]) -> None:
        """Free the slots of requests: each becomes a hole, unless the lane is empty afterwards."""
        self._count([f.request for f in flights], -1)
        for flight in flights:
            self._holes.append(flight.slot)
            self._expected[flight.slot] = 0.0
            flight.slot = -1
        if len(self._holes) == len(self._flights):
            self._flights.clear()
            self._holes.clear()

    def _close_holes(self) -> None:
        """Move the last slots into the holes."""
        if not self._holes:
            return
        flights, moves = self._flights, list[tuple[int, int]]()
        for hole in sorted(self._holes):
            while flights[-1].slot < 0:  # a hole at the end needs no move
                flights.pop()
            if hole >= len(flights):
                break
            last = flights[hole] = flights.pop()
            moves.append((last.slot, hole))
            self._expected[hole], last.slot = self._expected[last.slot], hole
        self._holes.clear()
        self.stepper.move(moves)

    def _deliver(self, later: int) -> None:
        """Answer finished requests and stream certain tokens, except for the newest `later` steps."""
        while len(self._answers) > later:
            answers = self._answers.popleft()
            hypotheses_by_request, now = answers.snapshot.hypotheses(answers.finished), time.monotonic()
            for flight, hypotheses in zip(answers.finished, hypotheses_by_request, strict=True):
                self.reply(flight.request, _outcome(flight, hypotheses, now))
            if answers.streamed:
                state, rows = answers.snapshot.rows()
                for flight, row in zip(answers.streamed, rows, strict=True):
                    self._stream(flight, state, row)

    def _stream(self, flight: InFlight, state: Any, row: int) -> None:
        """Report new certain tokens of a request to its caller, unless it was answered in the meantime."""
        if self.report is None or flight.slot < 0:  # answered in the meantime
            return
        tokens = certain_tokens(state, row, flight.request.options, flight.certain)
        if len(tokens) > flight.certain:
            flight.certain = len(tokens)
            self.report(flight.request, tokens)


def _outcome(flight: InFlight, hypotheses: list[Hypothesis], now: float) -> Outcome:
    """Return the answer to a finished request: ExecutorFailed if it has no hypothesis."""
    if not hypotheses:
        return ExecutorFailed(NO_HYPOTHESIS)
    request = flight.request
    admitted, encoding = request.admitted, request.encode_seconds
    timings = Timings(admitted - request.arrived, encoding, now - admitted - encoding, flight.steps)
    return Result(hypotheses, timings)
