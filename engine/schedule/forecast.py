"""Forecasts when an answer will be ready, and refuses requests that would be late.

A new group is accepted if `_check_lane` finds

    ((wait + own) * turn + halt) * reserve <= budget

wait     turns until the last request of the group has a slot (`Forecast._wait`)
own      turns for decoding the group's longest request: the expected steps + 2 standard deviations
turn     seconds of a turn once all waiting requests have filled the slots (`tempo`)
halt     seconds by which the current turn already exceeds this
reserve  how many times slower turns may become (`Tempo.reserve`), times a margin that late answers widen. A
         group that needs not wait has the margin only
budget   seconds to the group's deadline

The wait is 0 if the group fits into the free slots. Otherwise it is the larger of two estimates:

1. All S slots share the steps to be done before the last request of the group starts: the steps left in the
   slots (`begun`), the steps of the group's other requests (`own`), and the steps of waiting groups that go
   ahead of it (`Round.work_ahead`). When it starts, the other S - 1 slots are half through a request of mean
   length m, so (S - 1) * m / 2 of their steps are still to do:

       turns = (begun + own + ahead - (S - 1) * m / 2) / S

   `ahead` depends on `turns`, because no group decodes faster than its share of slots: the equation is
   iterated SHARE_ROUNDS times.
2. A group of `count` requests has at most `share` slots while other groups wait, and `alone` slots later. It
   needs ceil(count / share) - 1 waves of requests before the last one.

A short queue keeps the slots as busy as a long one, so the reserve costs throughput only in bursts. Answers
that come late, or nearly so, widen the margin once for all requests accepted before (as a lost packet does in
TCP); it fades with time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, NamedTuple, SupportsFloat

from engine.errors import DeadlineExceeded, WouldBeLate
from engine.schedule.queue import SHORT_TOKENS, FairQueue, Round, group_share
from engine.schedule.tempo import MAX_FACTOR, LineFit, Margin, Tempo
from engine.types import DecodeOptions, Limits, Outcome, Request, Result

MAX_RETRY_SECONDS: Final = 60.0  # longest Retry-After
NEAR_MISS: Final = 0.9  # an answer that used this share of its time was nearly late
KEPT_PER_ANSWER: Final = 1 - 1 / 48  # factor on the weight of older answers at each new one
# (source tokens, steps) before there are answers: the first answers to end are the short ones
FIRST_SAMPLES: Final = ((8, 20), (24, 52)) * 3
SHARE_ROUNDS: Final = 4  # iterations of the wait, see above
MAX_KNOWN_BOUNDS: Final = 4096  # entries of the cache of `steps_bounds`
DEADLINES_FRESH_SECONDS: Final = 0.02  # seconds between two searches for the deadlines of waiting groups


class LaneWork(NamedTuple):
    """The work of a lane.

    requests: number of requests in slots, or encoded for slots.
    steps_left: expected steps of these requests, as terms of a sum that are computed on use.
    """

    requests: int
    steps_left: Sequence[SupportsFloat]


@dataclass(eq=False, slots=True)
class LaneLoad:
    """The load of a lane now.

    slots: number of slots.
    beams: number of beams in each slot.
    active: number of requests in slots.
    left: expected steps of these requests at the end of the last turn, as terms of a sum.
    admitted: expected steps of requests admitted since then.
    steps: line fit of the steps of answers over source tokens.
    offered: expected steps of recent requests whose deadline left time enough.
    deadlines: nearest deadline of the waiting groups, by group size.
    deadlines_at: time in seconds at which `deadlines` was computed.
    """

    slots: int
    beams: int
    active: int = 0
    left: Sequence[SupportsFloat] = ()
    admitted: float = 0.0
    steps: LineFit = field(default_factory=lambda: LineFit(FIRST_SAMPLES))
    offered: LineFit = field(default_factory=LineFit)
    deadlines: dict[int, float] = field(default_factory=dict)
    deadlines_at: float = -math.inf

    @property
    def steps_left(self) -> float:
        """Expected steps of all requests in slots until they are done."""
        # the sum replaces its terms, so that they are added only once
        self.left = left = [math.fsum(map(float, self.left))]
        return left[0] + self.admitted


class Forecast:
    """Forecast of an engine's queue and lanes. Times are seconds of the engine's clock. Not thread-safe."""

    def __init__(self, queue: FairQueue, lanes: Iterable[tuple[int, int]], limits: Limits) -> None:
        """Make a forecast for an engine that has not run yet.

        queue: queue of the engine.
        lanes: slots and beams of each lane.
        limits: limits of the engine; they bound the steps of an answer.
        """
        self._queue = queue
        self._bounds = lru_cache(MAX_KNOWN_BOUNDS)(partial(steps_bounds, limits))
        self.loads = [LaneLoad(slots, beams) for slots, beams in lanes]
        self._tempo, self._margin = Tempo(), Margin()
        self._stepping = Tempo()  # durations of turns without their encoding
        self._began: float | None = None  # start of the current turn
        self._rows, self._steps_taken = 0, 1  # slots in use times beams, and steps, of the current turn
        self._encode_seconds = 0.0  # seconds that the current turn spent on encoding

    # observations

    def begin_turn(self, now: float) -> None:
        """Note that a turn begins. If the last turn left work to do, the new turn began at its end."""
        if self._began is None:
            self._began = now

    def end_turn(self, now: float, work: Sequence[LaneWork]) -> None:
        """Note that a turn ends.

        now: current time in seconds.
        work: work of each lane.
        """
        for load, left in zip(self.loads, work, strict=True):
            (load.active, load.left), load.admitted = left, 0.0
        if self._rows and self._began is not None:
            self._tempo.add(self._rows, (now - self._began) / self._steps_taken, now)
            stepping = max(0.0, now - self._began - self._encode_seconds)
            self._stepping.add(self._rows, stepping / self._steps_taken, now)
        # a queue alone starts no turn: its requests may be cancelled, and then no turn happens for long
        self._began, self._rows = (now if any(left.requests for left in work) else None), 0
        self._steps_taken, self._encode_seconds = 1, 0.0

    def note_step(self, lane: int, slots: int, steps: int = 1) -> None:
        """Note that a lane has stepped in this turn.

        lane: number of the lane.
        slots: number of slots in use.
        steps: number of steps.
        """
        self._rows += slots * self.loads[lane].beams
        self._steps_taken = max(self._steps_taken, steps)

    def note_encoding(self, seconds: float) -> None:
        """Note that this turn spent `seconds` on encoding sources."""
        self._encode_seconds += seconds

    def note_admission(self, lane: int, requests: Sequence[Request]) -> None:
        """Note that requests have left the queue for a lane."""
        load = self.loads[lane]
        load.active += len(requests)
        load.admitted += sum(request.expected_steps for request in requests)

    def note_replies(
        self, replies: Iterable[tuple[Request, Outcome]], lane_of: Callable[[int], int], now: float
    ) -> None:
        """Learn from the outcomes of requests.

        replies: requests with their outcomes.
        lane_of: function that returns the lane number of a beam size.
        now: current time in seconds.
        """
        samples_by_beams = dict[int, list[tuple[int, int]]]()  # (source tokens, steps)
        for request, outcome in replies:
            if isinstance(outcome, Result):
                # steps that the options alone decide are no sample of the model's
                if not request.decided:
                    sample = len(request.source), outcome.timings.steps
                    samples_by_beams.setdefault(request.options.beam_size, []).append(sample)
                deadline = request.deadline
                if deadline < math.inf and now - request.arrived > NEAR_MISS * (deadline - request.arrived):
                    self.note_miss(request, now)
            elif isinstance(outcome, DeadlineExceeded):
                self.note_miss(request, now)
        for beams, samples in samples_by_beams.items():
            self.loads[lane_of(beams)].steps.extend(samples, KEPT_PER_ANSWER)

    def note_miss(self, request: Request, now: float) -> None:
        """Note that a request was late or nearly late."""
        if request.promised:
            self._margin.widen(now, request.arrived)

    # forecasts

    def set_expected_steps(self, request: Request, lane: int) -> None:
        """Set `expected_steps` of a request for a lane, and `decided`: whether its options fix the steps."""
        low, high = self._bounds(request.options, len(request.source))
        request.decided = low == high
        request.expected_steps = self._steps(request, lane, 0.0)

    def too_late(self, requests: Sequence[Request], lane: int, now: float) -> list[Request]:
        """List the requests that would be late even in the best case.

        requests: requests that are about to be admitted.
        lane: number of their lane.
        now: current time in seconds.

        The best case is a short answer that starts now, turns of the usual duration and no encoding. An idle
        engine admits every request, because its turns measure the speed.
        """
        urgent = [request for request in requests if request.deadline < math.inf]
        if not urgent or not any(load.active for load in self.loads):
            return []
        turn = self._stepping.least_seconds(self._rows_after({}))
        return [r for r in urgent if now + self._steps(r, lane, -1.0) * turn > r.deadline]

    def retry_after(self, now: float, tokens: int) -> float:
        """Estimate the seconds, 1 to 60, until `tokens` source tokens have left the queue."""
        share = tokens / max(1, self._queue.tokens)
        # turns until the lanes have done this share of the queued steps
        turns = max(self._wait(lane, 0, share * r.steps, 1.0) for lane, r in enumerate(self._queue.rounds))
        return min(max(1.0, turns * self._turn_seconds({})), MAX_RETRY_SECONDS)

    def check(self, now: float, group: Sequence[Request], lanes: Sequence[int]) -> None:
        """Raise WouldBeLate if a group would be late, or would make a waiting group late.

        now: current time in seconds.
        group: requests that are accepted together or not at all.
        lanes: lane number of each request.

        A group without a deadline is always accepted. So is every group while the engine is idle, because its
        turns show how fast it is. A deadline that has passed is answered later, when the queue is read.
        """
        budget = min((r.deadline - now for r in group if r.deadline > now), default=math.inf)
        if budget == math.inf or self._is_idle():
            return
        counts = Counter(lanes)
        for lane in counts:
            part = [r for r, number in zip(group, lanes, strict=True) if number == lane]
            self._check_lane(now, part, lane, counts, budget)
        for request in group:
            request.promised = True
        for lane, count in counts.items():  # until `_check_promises` searches the queue again
            deadlines = self.loads[lane].deadlines
            if count > 1:
                deadlines[count] = min(now + budget, deadlines.get(count, math.inf))

    def _is_idle(self) -> bool:
        return not any(
            load.active or lane_queue.requests
            for load, lane_queue in zip(self.loads, self._queue.rounds, strict=True)
        )

    def _check_lane(
        self, now: float, part: Sequence[Request], lane: int, counts: Counter[int], budget: float
    ) -> None:
        """Raise WouldBeLate if the requests of a group for one lane (`part`) need more than `budget` seconds.

        counts: number of requests of the whole group, by lane.
        """
        turn, margin = self._turn_seconds(counts), self._margin.at(now)
        reserve = min(margin * self._tempo.reserve(now), MAX_FACTOR)
        halt = max(0.0, now - (now if self._began is None else self._began) - turn)
        own = max(self._steps(r, lane, 2.0) for r in part)
        others = sum(r.expected_steps for r in part) - part[-1].expected_steps
        wait = self._wait(lane, len(part), others, sum(len(r.source) for r in part) / len(part))
        # free slots are filled before it is known how long turns are then; a queue forms only after that
        turn_of_part = self._turn_seconds(counts, extrapolate=bool(wait))
        offered = self.loads[lane].offered
        # a request whose deadline leaves no time for its own steps is no measure of the load
        if own * turn_of_part <= budget:
            offered.add(1.0, own, KEPT_PER_ANSWER)
        if wait:  # counted as a long request: otherwise short requests would keep all others out
            own = max(own, offered.high)
        needed = ((wait + own) * turn_of_part + halt) * (reserve if wait else margin)
        if needed > budget:
            text = f"an answer may take {needed:.1f} seconds, and this has {budget:.1f}: try again later"
            raise WouldBeLate(text, min(max(1.0, needed - budget), MAX_RETRY_SECONDS))
        self._check_promises(lane, part, turn, reserve, now)

    def _check_promises(
        self, lane: int, part: Sequence[Request], turn: float, reserve: float, now: float
    ) -> None:
        """Raise WouldBeLate if requests would make a waiting group late that was promised to be in time.

        turn: duration of a turn in seconds.
        reserve: factor by which turns may become slower.

        A waiting group of several requests lets one request of each later group pass between two of its own.
        """
        load, lane_queue = self.loads[lane], self._queue.rounds[lane]
        if now - load.deadlines_at > DEADLINES_FRESH_SECONDS:
            load.deadlines_at, load.deadlines = now, lane_queue.promised_deadlines()
        if not load.deadlines:
            return
        mean = sum(r.expected_steps for r in part) / len(part)
        for size, deadline in load.deadlines.items():
            own = (size - 1) * lane_queue.steps / max(1, lane_queue.requests)
            before = (self._wait(lane, size, own, 1.0, waiting=True) + load.offered.high) * turn
            after = before + min(size, len(part)) * mean / load.slots * turn
            # the waiting group is in time without the new requests, but not with them
            if before <= deadline - now < after * reserve:
                raise WouldBeLate(
                    "waiting requests would be late: try again later", min(after, MAX_RETRY_SECONDS)
                )

    def _wait(self, lane: int, count: int, own: float, tokens: float, *, waiting: bool = False) -> float:
        """Estimate the turns until the last request of a group has its slot, see the top of this module.

        count: number of requests in the group; 0: until the queue is empty.
        own: expected steps of all but the last request.
        tokens: mean number of tokens of a source.
        waiting: whether the group is in the queue already.
        """
        load, lane_queue = self.loads[lane], self._queue.rounds[lane]
        share = group_share(load.slots, tokens)
        alone = load.slots if tokens <= SHORT_TOKENS else share
        others = lane_queue.requests_ahead(count, load.slots) if count else lane_queue.requests
        fits = load.active + others + count <= load.slots
        if fits and (count <= share or (alone > share and not lane_queue.groups)):
            return 0.0
        turns = _shared_turns(load, lane_queue, count, own, waiting=waiting)
        if waiting or not count:
            return max(1.0, turns)
        # estimate 2: `share` slots while other groups wait (`crowded`), `alone` slots later
        waves = own / max(1, count - 1) * max(0, math.ceil(count / share) - 1)
        crowded = lane_queue.turns_to_empty(load.slots)
        return max(1.0, turns, min(waves, crowded + max(0.0, waves - crowded) * share / alone))

    def _turn_seconds(self, counts: dict[int, int], *, extrapolate: bool = True) -> float:
        """Estimate the seconds of a turn after all waiting and new requests have taken slots.

        counts: number of new requests by lane.
        extrapolate: see `Tempo.seconds`.
        """
        return self._tempo.seconds(self._rows_after(counts), extrapolate=extrapolate)

    def _rows_after(self, counts: dict[int, int]) -> int:
        """Return slots in use times beams after all waiting and `counts` new requests have taken slots."""
        rows = 0
        for lane, (load, lane_queue) in enumerate(zip(self.loads, self._queue.rounds, strict=True)):
            requests = load.active + lane_queue.requests + counts.get(lane, 0)
            rows += min(load.slots, requests) * load.beams
        return rows

    def _steps(self, request: Request, lane: int, deviations: float) -> float:
        """Return the expected steps of a request plus a number of standard deviations."""
        low, high = self._bounds(request.options, len(request.source))
        fit = self.loads[lane].steps
        expected = fit.at(len(request.source)) + deviations * fit.deviation
        return min(max(low, expected), high)


def _shared_turns(load: LaneLoad, lane_queue: Round, count: int, own: float, *, waiting: bool) -> float:
    """Estimate the turns until a group's last request starts: estimate 1 at the top of this module."""
    begun, requests = load.steps_left, load.active
    if not waiting:
        begun, requests = begun + own, requests + max(0, count - 1)
    mean = (lane_queue.steps + load.steps_left) / max(1, lane_queue.requests + load.active)
    turns = math.inf
    for _ in range(SHARE_ROUNDS if count and not waiting else 1):
        steps, others = lane_queue.work_ahead(own + mean, turns, load.slots) if count else (0.0, 0.0)
        before = begun + steps
        half = (before / max(1.0, requests + others) if count else mean) / 2
        turns = (before - (load.slots - 1) * half) / load.slots
    return turns


def steps_bounds(limits: Limits, options: DecodeOptions, source: int) -> tuple[int, int]:
    """Return the fewest and the most steps of an answer; the last step is end-of-sentence.

    limits: limits of the engine.
    options: options of the request.
    source: number of source tokens, end-of-sentence included.
    """
    low, high = options.lengths(source, limits)
    low = max(low, min(len(options.prefix), high))
    return low + 1, high + 1
