"""When an answer will be there: its steps, the steps of all requests before it, and the time of a
turn.

A request that would have to wait is accepted when it would be in time with a reserve, so that requests that
wait already are not late when the machine becomes slower. A short queue keeps the slots as busy as a long
one, so the reserve costs nothing but the patience for bursts. Whatever the forecast gets wrong, answers that
come late, or nearly so, widen the reserve (as a loss does in TCP: once for all requests that were accepted
before), and time takes it back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, NamedTuple, SupportsFloat

from engine.errors import DeadlineExceeded, WouldBeLate
from engine.schedule.queue import SHORT_TOKENS, FairQueue, slots_of_group
from engine.schedule.tempo import MAX_FACTOR, LineFit, Margin, Tempo
from engine.types import DecodeOptions, Limits, Outcome, Request, Result

MAX_RETRY_SECONDS: Final = 60.0  # after which it is worth trying again, whatever the forecast
NEAR_MISS: Final = 0.9  # the share of its time after which an answer was nearly late
KEPT_PER_ANSWER: Final = 1 - 1 / 48  # weight of older answers for the steps that are expected of the next
# (source tokens, steps) until there are answers: the first answers to end are the short ones
FIRST_SAMPLES: Final = ((8, 20), (24, 52)) * 3
SHARE_ROUNDS: Final = 4  # in which the wait is brought near to what shares of slots make of it
MAX_KNOWN_BOUNDS: Final = 4096  # of steps, that are kept
DEADLINES_FRESH_SECONDS: Final = 0.02  # for which the deadlines of waiting groups are not looked at again


class LaneWork(NamedTuple):
    """What a lane has before it.

    requests: in its slots, or encoded for them.
    steps_left: steps that these are expected to take yet, in parts, each worked out when it is asked for.
    """

    requests: int
    steps_left: Sequence[SupportsFloat]


@dataclass(eq=False, slots=True)
class LaneLoad:
    """The load of a lane now.

    slots: of the lane.
    beams: of each slot.
    active: requests in its slots.
    left: steps that those of the last turn's end are expected to take yet, in parts.
    admitted: steps of those that came since.
    steps: a line through steps of answers, by source tokens.
    offered: steps expected of requests that arrived with time enough.
    deadlines: the nearest deadline of waiting groups, by the group's size, as of `looked`.
    looked: when the deadlines were looked at, in seconds.
    """

    slots: int
    beams: int
    active: int = 0
    left: Sequence[SupportsFloat] = ()
    admitted: float = 0.0
    steps: LineFit = field(default_factory=lambda: LineFit(FIRST_SAMPLES))
    offered: LineFit = field(default_factory=LineFit)
    deadlines: dict[int, float] = field(default_factory=dict)
    looked: float = -math.inf

    @property
    def steps_left(self) -> float:
        """The steps that requests in its slots are expected to take yet, together."""
        self.left = left = [math.fsum(map(float, self.left))]
        return left[0] + self.admitted


class Forecast:
    """What an engine expects of its queue and lanes. Times are seconds of the engine's clock. Not safe for
    threads by itself."""

    def __init__(self, queue: FairQueue, lanes: Iterable[tuple[int, int]], limits: Limits) -> None:
        """Make a forecast of an engine that has not run yet.

        queue: of the engine.
        lanes: slots and beams of each lane.
        limits: of the engine; these bound the steps of an answer.
        """
        self._queue = queue
        # by options and length of the source
        self._bounds = lru_cache(MAX_KNOWN_BOUNDS)(partial(steps_bounds, limits))
        self.loads = [LaneLoad(slots, beams) for slots, beams in lanes]
        self._tempo, self._margin = Tempo(), Margin()
        self._stepping = Tempo()  # of turns without their encoding
        self._began: float | None = None  # the turn under way
        self._rows, self._taken = 0, 1  # rows that the turn has stepped, and how many times
        self._encoded = 0.0  # seconds of the turn that went into encoding

    # what happens

    def begin_turn(self, now: float) -> None:
        """Note that a turn begins. Where the turn before left work to do, it has begun at that turn's end."""
        if self._began is None:
            self._began = now

    def end_turn(self, now: float, work: Sequence[LaneWork]) -> None:
        """Note that a turn ends.

        now: the time in seconds.
        work: of each lane.
        """
        for load, left in zip(self.loads, work, strict=True):
            (load.active, load.left), load.admitted = left, 0.0
        if self._rows and self._began is not None:
            self._tempo.add(self._rows, (now - self._began) / self._taken, now)
            stepping = max(0.0, now - self._began - self._encoded)
            self._stepping.add(self._rows, stepping / self._taken, now)
        # requests that only wait may be cancelled, and then nothing happens for long
        self._began, self._rows = (now if any(left.requests for left in work) else None), 0
        self._taken, self._encoded = 1, 0.0

    def note_step(self, lane: int, slots: int, steps: int = 1) -> None:
        """Note that a lane has stepped in this turn.

        lane: its number.
        slots: in use.
        steps: how many.
        """
        self._rows += slots * self.loads[lane].beams
        self._taken = max(self._taken, steps)

    def note_encoding(self, seconds: float) -> None:
        """Note that encoding sources took so many seconds of this turn."""
        self._encoded += seconds

    def note_admission(self, lane: int, requests: Sequence[Request]) -> None:
        """Note that requests have just left the queue for a lane."""
        load = self.loads[lane]
        load.active += len(requests)
        load.admitted += sum(request.expected_steps for request in requests)

    def note_replies(
        self, replies: Iterable[tuple[Request, Outcome]], lane_of: Callable[[int], int], now: float
    ) -> None:
        """Note what requests were told.

        replies: requests and their outcomes.
        lane_of: finds the number of the lane of a beam size.
        now: the time in seconds.
        """
        taken = dict[int, list[tuple[int, int]]]()  # by beams, source tokens and steps
        for request, outcome in replies:
            if isinstance(outcome, Result):
                if not request.decided:
                    sample = len(request.source), outcome.timings.steps
                    taken.setdefault(request.options.beam_size, []).append(sample)
                deadline = request.deadline
                if deadline < math.inf and now - request.arrived > NEAR_MISS * (deadline - request.arrived):
                    self.note_miss(request, now)
            elif isinstance(outcome, DeadlineExceeded):
                self.note_miss(request, now)
        for beams, samples in taken.items():
            self.loads[lane_of(beams)].steps.extend(samples, KEPT_PER_ANSWER)

    def note_miss(self, request: Request, now: float) -> None:
        """Note that a request was late, or nearly."""
        if request.promised:
            self._margin.widen(now, request.arrived)

    # what will be

    def set_expected_steps(self, request: Request, lane: int) -> None:
        """Set the steps that a request is expected to take in a lane."""
        low, high = self._bounds(request.options, len(request.source))
        request.decided = low == high
        request.expected_steps = self._steps(request, lane, 0.0)

    def too_late(self, requests: Sequence[Request], lane: int, now: float) -> list[Request]:
        """List those that would be late even if their answers were short, they started now, turns were as
        fast as usual and no sources were encoded. None where no lane is active: a turn shows how fast it is.

        requests: whose turn has come.
        lane: the number of their lane.
        now: the time in seconds.
        """
        urgent = [request for request in requests if request.deadline < math.inf]
        if not urgent or not any(load.active for load in self.loads):
            return []
        each = self._stepping.least_seconds(self._rows_after({}))
        return [r for r in urgent if now + self._steps(r, lane, -1.0) * each > r.deadline]

    def retry_after(self, now: float, tokens: int) -> float:
        """Estimate the seconds, 1 to 60, until so many source tokens have left the queue."""
        share = tokens / max(1, self._queue.tokens)
        turns = max(self._wait(lane, 0, share * r.steps, 1.0) for lane, r in enumerate(self._queue.rounds))
        return min(max(1.0, turns * self._turn_seconds({})), MAX_RETRY_SECONDS)

    def check(self, now: float, group: Sequence[Request], lanes: Sequence[int]) -> None:
        """Raise WouldBeLate when a group would be late, or would make groups late that wait already.

        now: the time in seconds.
        group: requests that are accepted together or not at all.
        lanes: the number of each request's lane.

        A group without a deadline is never refused, nor is any while no other request is there: that shows
        how fast turns are. What is late already will be answered as such.
        """
        budget = min((r.deadline - now for r in group if r.deadline > now), default=math.inf)
        if budget == math.inf or self._is_idle():
            return
        counts = Counter(lanes)
        for lane in counts:
            mine = [r for r, at in zip(group, lanes, strict=True) if at == lane]
            self._check_lane(now, mine, lane, counts, budget)
        for request in group:
            request.promised = True
        for lane, count in counts.items():  # until they are looked at
            deadlines = self.loads[lane].deadlines
            if count > 1:
                deadlines[count] = min(now + budget, deadlines.get(count, math.inf))

    def _is_idle(self) -> bool:
        return not any(
            load.active or line.requests for load, line in zip(self.loads, self._queue.rounds, strict=True)
        )

    def _check_lane(
        self, now: float, mine: Sequence[Request], lane: int, counts: Counter[int], budget: float
    ) -> None:
        """Raise WouldBeLate for the requests `mine` of a group that are for one lane, within `budget`
        seconds.

        counts: of the whole group, by lane.
        """
        turn, margin = self._turn_seconds(counts), self._margin.at(now)
        reserve = min(margin * self._tempo.reserve(now), MAX_FACTOR)
        halt = max(0.0, now - (now if self._began is None else self._began) - turn)  # of the turn under way
        own = max(self._steps(r, lane, 2.0) for r in mine)
        steps = sum(r.expected_steps for r in mine) - mine[-1].expected_steps
        wait = self._wait(lane, len(mine), steps, sum(len(r.source) for r in mine) / len(mine))
        # free slots are filled, to see how long turns are then; a queue is made when that is known
        seconds_each = self._turn_seconds(counts, extrapolate=bool(wait))
        offered = self.loads[lane].offered
        # else it had no time from the start, and no other request is to blame
        if own * seconds_each <= budget:
            offered.add(1.0, own, KEPT_PER_ANSWER)
        if wait:  # as if it were long: else short answers would keep all others out
            own = max(own, offered.high)
        needed = ((wait + own) * seconds_each + halt) * (reserve if wait else margin)
        if needed > budget:
            text = f"an answer may take {needed:.1f} seconds, and this has {budget:.1f}: try again later"
            raise WouldBeLate(text, min(max(1.0, needed - budget), MAX_RETRY_SECONDS))
        self._check_promises(lane, mine, turn, reserve, now)

    def _check_promises(
        self, lane: int, mine: Sequence[Request], turn: float, reserve: float, now: float
    ) -> None:
        """Raise WouldBeLate when requests would make a waiting group late that was promised to be in time.

        Groups let other requests pass. A group that was accepted without a promise keeps no request out.

        turn: seconds of a turn.
        reserve: how many times slower turns may become.
        """
        load, line = self.loads[lane], self._queue.rounds[lane]
        if now - load.looked > DEADLINES_FRESH_SECONDS:
            load.looked, load.deadlines = now, line.promised_deadlines()
        if not load.deadlines:
            return
        mean = sum(r.expected_steps for r in mine) / len(mine)
        for size, deadline in load.deadlines.items():
            own = (size - 1) * line.steps / max(1, line.requests)
            before = (self._wait(lane, size, own, 1.0, waiting=True) + load.offered.high) * turn
            after = before + min(size, len(mine)) * mean / load.slots * turn
            if before <= deadline - now < after * reserve:
                raise WouldBeLate(
                    "others who wait would be late: try again later", min(after, MAX_RETRY_SECONDS)
                )

    def _wait(self, lane: int, count: int, own: float, tokens: float, *, waiting: bool = False) -> float:
        """Turns until the last request of a new group of `count` has its slot.

        own: steps of the group's other requests.
        tokens: of each of its sources.
        waiting: whether the group waits already.

        The slots share the steps before it, no group has more than its share of them, and when it begins the
        others are half through theirs.
        """
        load, line = self.loads[lane], self._queue.rounds[lane]
        # others have their share of slots by then
        ahead = line.ahead(count, load.slots) if count else line.requests
        share = slots_of_group(load.slots, tokens)
        alone = load.slots if tokens <= SHORT_TOKENS else share  # that it has once no other group waits
        if load.active + ahead + count <= load.slots and (
            count <= share or alone > share and not line.groups
        ):
            return 0.0
        begun, requests = load.steps_left, load.active
        if not waiting:
            begun, requests = begun + own, requests + max(0, count - 1)
        usual, turns = (line.steps + load.steps_left) / max(1, line.requests + load.active), math.inf
        for _ in range(SHARE_ROUNDS if count and not waiting else 1):
            steps, others = line.ahead_of(own + usual, turns, load.slots) if count else (0.0, 0.0)
            before = begun + steps
            half = (before / max(1.0, requests + others) if count else usual) / 2
            turns = (before - (load.slots - 1) * half) / load.slots
        if waiting or not count:
            return max(1.0, turns)
        mean, waves = own / max(1, count - 1), max(0, math.ceil(count / share) - 1)
        behind = line.turns(load.slots)
        return max(1.0, turns, min(mean * waves, behind + max(0.0, mean * waves - behind) * share / alone))

    def _turn_seconds(self, counts: dict[int, int], *, extrapolate: bool = True) -> float:
        """Seconds of a turn, once new requests, by lane, and all that wait have filled the slots."""
        return self._tempo.seconds(self._rows_after(counts), extrapolate=extrapolate)

    def _rows_after(self, counts: dict[int, int]) -> int:
        rows = 0
        for lane, (load, line) in enumerate(zip(self.loads, self._queue.rounds, strict=True)):
            there = load.active + line.requests + counts.get(lane, 0)
            rows += min(load.slots, there) * load.beams
        return rows

    def _steps(self, request: Request, lane: int, deviations: float) -> float:
        """Steps expected of a request, and so many standard deviations more."""
        low, high = self._bounds(request.options, len(request.source))
        line = self.loads[lane].steps
        expected = line.at(len(request.source)) + deviations * line.deviation
        return min(max(low, expected), high)


def steps_bounds(limits: Limits, options: DecodeOptions, source: int) -> tuple[int, int]:
    """Find the fewest and the most steps of an answer; the last one is of end-of-sentence.

    limits: of the engine.
    options: of the request.
    source: tokens of its source, end-of-sentence included.
    """
    low, high = options.lengths(source, limits)
    low = max(low, min(len(options.prefix), high))
    return low + 1, high + 1
