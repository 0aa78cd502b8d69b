"""When an answer will be there: the steps it takes, those of all who go first, and how long a turn is.

A newcomer is accepted when it would be in time with a reserve, so that a machine that becomes slower does not
make those late who wait already. A short queue keeps the slots as busy as a long one, so the reserve costs
nothing but the patience for bursts. Whatever the forecast gets wrong, answers that come late, or nearly so,
widen the reserve (as a loss does in TCP, once for all who were accepted before), and time takes it back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.errors import WouldBeLate
from engine.schedule.queue import FairQueue
from engine.types import Limits, Request

LONGEST: Final = 60.0  # seconds after which it is worth trying again, whatever the forecast
LEAST: Final = 1.3  # who has to wait must be in time even if all becomes so much slower
WORST: Final = 2.0  # slower than on the whole, until it is known how much that happens
WIDER: Final = 1.5  # the reserve grows by this when answers are late
WIDEST: Final = 4.0  # and no further
HALVED: Final = 30.0  # seconds in which half of that growth is taken back, or half of a memory fades
MOMENT: Final = 1.0  # seconds after which the present speed of turns counts half
CLOSE: Final = 0.9  # an answer that took so much of its time was nearly late
SAMPLES: Final = 48  # answers that decide how many steps the next will take
GUESSES: Final = ((8, 20), (24, 52)) * 3  # tokens and steps in their place: the first to end are the short
FRESH: Final = 0.02  # seconds for which the deadlines of waiting groups are not looked at again
GROUND: Final = 0.01  # how much a line is drawn towards the origin, as a share of the mean's square


class LineFit:
    """A straight line through samples (x, y), old ones forgotten; it leans towards y in proportion to x, and
    never rises faster or falls. All are positive."""

    def __init__(self, samples: Iterable[tuple[float, float]] = ()) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        for x, y in samples:
            self.add(x, y, 1.0)

    def add(self, x: float, y: float, keep: float) -> None:
        """Take a sample in.

        keep: what older samples count from now on, 0 to 1.
        """
        self._weight = keep * self._weight + 1
        share = 1 / self._weight
        dx, dy = x - self._x, y - self._y
        self._x += share * dx
        self._y += share * dy
        self._xx = (1 - share) * (self._xx + share * dx * dx)
        self._xy = (1 - share) * (self._xy + share * dx * dy)
        self._yy = (1 - share) * (self._yy + share * dy * dy)

    @property
    def slope(self) -> float:
        ground = GROUND * self._x * self._x
        if not ground:
            return 0.0
        most = self._y / self._x
        return min(max(0.0, (self._xy + ground * most) / (self._xx + ground)), most)

    def at(self, x: float) -> float:
        """Return the line's y at an x; 0 while there is no sample."""
        return self._y + self.slope * (x - self._x)

    @property
    def spread(self) -> float:
        """Standard deviation of the samples from the line."""
        slope = self.slope
        return math.sqrt(max(0.0, self._yy - 2 * slope * self._xy + slope * slope * self._xx))

    @property
    def most(self) -> float:
        """What a sixth of the samples exceeds, whatever their x: the mean and a standard deviation."""
        return self._y + math.sqrt(self._yy)


class Tempo:
    """How long a turn takes: by the rows in use, how much slower it goes at the moment than it did on the
    whole, and how slow it has been of late."""

    def __init__(self) -> None:
        self._line = LineFit()  # seconds, by rows
        self._widest = 0.0  # most rows of late
        self._taken = self._usual = 0.0  # seconds of the last moments, and what they would have been
        self._worst, self._since = WORST, 0.0

    @property
    def _level(self) -> float:
        return self._taken / self._usual if self._usual else 1.0

    def add(self, rows: int, seconds: float, now: float) -> None:
        keep = math.exp2(-seconds / MOMENT)
        longer = math.exp2(-seconds / HALVED)
        self._line.add(rows, seconds, longer)
        self._widest = max(rows, longer * self._widest)
        self._taken = keep * self._taken + seconds
        self._usual = keep * self._usual + self._line.at(rows)
        worst = max(self._level, _fading(self._worst, now - self._since))
        self._worst, self._since = min(worst, WIDEST), now  # one long halt is no speed

    def usual(self, rows: int) -> float:
        """Return the seconds that a turn took on the whole, or those that it takes now where they are fewer.

        More rows than were seen of late cost nothing.
        """
        return self._line.at(min(rows, self._widest)) * min(1.0, self._level)

    def seconds(self, rows: int, *, bold: bool = False) -> float:
        """Return the seconds that a turn takes now; 0 while none has been seen.

        bold: more rows than were seen of late are taken to cost nothing, else to cost as much each as those
            before.
        """
        return self._line.at(min(rows, self._widest) if bold else rows) * self._level

    def reserve(self, now: float) -> float:
        """Estimate how much slower than now turns may become, if they become as slow as they have been."""
        return max(LEAST, _fading(self._worst, now - self._since) / self._level)


class Margin:
    """How much more reserve late answers have asked for: 1 is none."""

    def __init__(self) -> None:
        self._value, self._since = 1.0, -math.inf

    def at(self, now: float) -> float:
        return _fading(self._value, now - self._since)

    def widen(self, now: float, arrived: float) -> None:
        """Grow for a request that arrived then and was late.

        Those accepted before the last growth say nothing new.
        """
        if arrived >= self._since:
            self._value, self._since = min(self.at(now) * WIDER, WIDEST), now


def _fading(value: float, seconds: float) -> float:
    """A factor that time takes back to 1."""
    return 1 + (value - 1) * math.exp2(-seconds / HALVED)


@dataclass(eq=False, slots=True)
class LaneLoad:
    """A lane as it is now.

    active: requests in its slots.
    left: steps that they are expected to take yet.
    steps: of answers, by source tokens.
    offered: steps of those who came with time enough for them.
    deadlines: of groups that wait, by size, as they were at `looked`.
    """

    slots: int
    beams: int
    active: int = 0
    left: float = 0.0
    steps: LineFit = field(default_factory=lambda: LineFit(GUESSES))
    offered: LineFit = field(default_factory=LineFit)
    deadlines: dict[int, float] = field(default_factory=dict)
    looked: float = -math.inf


class Forecast:
    """What an engine expects of its queue and lanes. Seconds are of the engine's clock. Not safe for threads
    by itself."""

    def __init__(self, queue: FairQueue, lanes: Iterable[tuple[int, int]], limits: Limits) -> None:
        """Expect nothing yet.

        lanes: slots and beams of each.
        """
        self._queue, self._limits = queue, limits
        self.loads = [LaneLoad(slots, beams) for slots, beams in lanes]
        self._tempo, self._margin = Tempo(), Margin()
        self._stepping = Tempo()  # of turns without their encoding
        self._began: float | None = None  # the turn under way
        self._rows, self._taken = 0, 1  # that it has stepped, and how often
        self._encoded = 0.0  # seconds of it that went into encoding

    # what happens

    def begins(self, now: float) -> None:
        """Note that a turn begins; it has begun already when the one before left work to do."""
        if self._began is None:
            self._began = now

    def ends(self, now: float, flights: Sequence[Sequence[tuple[Request, int]]]) -> None:
        """Note that a turn ends.

        flights: the requests in each lane's slots, with the steps that they have had.
        """
        for load, there in zip(self.loads, flights, strict=True):
            load.active = len(there)
            load.left = sum(max(1.0, request.steps - steps) for request, steps in there)
        if self._rows and self._began is not None:
            self._tempo.add(self._rows, (now - self._began) / self._taken, now)
            stepping = max(0.0, now - self._began - self._encoded)
            self._stepping.add(self._rows, stepping / self._taken, now)
        # who only waits may be cancelled, and then nothing happens for long
        self._began, self._rows = (now if any(flights) else None), 0
        self._taken, self._encoded = 1, 0.0

    def note_step(self, lane: int, slots: int, steps: int = 1) -> None:
        self._rows += slots * self.loads[lane].beams
        self._taken = max(self._taken, steps)

    def note_encoding(self, seconds: float) -> None:
        """Note that encoding sources took so many seconds of this turn."""
        self._encoded += seconds

    def took(self, lane: int, requests: Sequence[Request]) -> None:
        """Note that requests have just left the queue for a lane."""
        load = self.loads[lane]
        load.active += len(requests)
        load.left += sum(request.steps for request in requests)

    def note_answer(self, lane: int, request: Request, steps: int, now: float) -> None:
        """Note that a request was answered after so many steps."""
        low, high = self._bounds(request)
        if low < high:  # else its options have decided
            self.loads[lane].steps.add(len(request.source), steps, 1 - 1 / SAMPLES)
        if now - request.arrived > CLOSE * (request.deadline - request.arrived):
            self.note_miss(request, now)

    def note_miss(self, request: Request, now: float) -> None:
        """Note that a request was late, or nearly."""
        if request.foreseen:
            self._margin.widen(now, request.arrived)

    # what will be

    def expect(self, request: Request, lane: int) -> None:
        """Set the steps that a request is expected to take."""
        request.steps = self._steps(request, lane, 0.0)

    def hopeless(self, request: Request, lane: int, now: float) -> bool:
        """Tell whether a request would be late even if it were short, started now, went as fast as usual and
        no others were encoded. Never where nobody else is decoded: doing it shows how fast it goes now."""
        if request.deadline == math.inf or not any(load.active for load in self.loads):
            return False
        seconds = self._steps(request, lane, -1.0) * self._stepping.usual(self._rows_then({}))
        return now + seconds > request.deadline

    def retry_after(self, now: float, tokens: int) -> float:
        """Estimate the seconds, 1 to 60, until so many source tokens have left the queue."""
        share = tokens / max(1, self._queue.tokens)
        turns = max(self._wait(lane, 0, share * r.steps) for lane, r in enumerate(self._queue.rounds))
        return min(max(1.0, turns * self._seconds({})), LONGEST)

    def check(self, now: float, group: Sequence[Request], lanes: Sequence[int]) -> None:
        """Raise WouldBeLate when a group would be late, or would make those late who wait already.

        What has no deadline is never refused, nor is anything while nobody else is there: that shows how fast
        it goes now. What is late already will be answered as such.
        """
        budget = min((r.deadline - now for r in group if r.deadline > now), default=math.inf)
        if budget == math.inf or not any(
            load.active or line.requests for load, line in zip(self.loads, self._queue.rounds, strict=True)
        ):
            return
        counts = Counter(lanes)
        turn, margin = self._seconds(counts), self._margin.at(now)
        reserve = min(margin * self._tempo.reserve(now), WIDEST)
        halt = max(0.0, now - (now if self._began is None else self._began) - turn)  # of the turn under way
        for lane, count in counts.items():
            mine = [r for r, at in zip(group, lanes, strict=True) if at == lane]
            own = max(self._steps(r, lane, 2.0) for r in mine)
            wait = self._wait(lane, count, sum(r.steps for r in mine) - mine[-1].steps)
            # free slots are filled, to see how long turns are then; a queue is made when that is known
            bold = self._seconds(counts, bold=not wait)
            offered = self.loads[lane].offered
            if own * bold <= budget:  # else nobody keeps it out: it had no time from the start
                offered.add(1.0, own, 1 - 1 / SAMPLES)
            if wait:  # as if it were long: else short ones would keep all others out
                own = max(own, offered.most)
            seconds = (wait + own) * bold + halt
            needed = seconds * (reserve if wait else margin)
            if needed > budget:
                text = f"an answer may take {needed:.1f} seconds, and this has {budget:.1f}: try again later"
                raise WouldBeLate(text, min(max(1.0, needed - budget), LONGEST))
            self._keep(lane, mine, turn, reserve, now)
        for request in group:
            request.foreseen = True
        for lane, count in counts.items():  # until they are looked at
            deadlines = self.loads[lane].deadlines
            if count > 1:
                deadlines[count] = min(now + budget, deadlines.get(count, math.inf))

    def _keep(self, lane: int, mine: Sequence[Request], turn: float, reserve: float, now: float) -> None:
        """Raise WouldBeLate when newcomers would make a group late that lets them pass and was promised to be
        in time; who came unforeseen, with hardly time enough, keeps nobody out."""
        load, line = self.loads[lane], self._queue.rounds[lane]
        if now - load.looked > FRESH:
            load.looked, load.deadlines = now, line.tightest()
        if not load.deadlines:
            return
        mean = sum(r.steps for r in mine) / len(mine)
        for size, deadline in load.deadlines.items():
            before = (self._wait(lane, size, 0.0) + load.offered.most) * turn
            after = before + min(size, len(mine)) * mean / load.slots * turn
            if before <= deadline - now < after * reserve:
                raise WouldBeLate("others who wait would be late: try again later", min(after, LONGEST))

    def _wait(self, lane: int, count: int, own: float) -> float:
        """Turns until the last of a new group of `count` has its slot.

        own: steps of the others of them.

        The slots share the steps before it, and when it begins the others are half through theirs.
        """
        load, line = self.loads[lane], self._queue.rounds[lane]
        if line.requests + load.active + count <= load.slots:
            return 0.0
        mean = line.steps / line.requests if line.requests else 0.0
        usual = (line.steps + load.left) / max(1, line.requests + load.active)
        before = load.left + line.ahead(count) * mean + own
        return max(1.0, (before - (load.slots - 1) * usual / 2) / load.slots)

    def _seconds(self, counts: dict[int, int], *, bold: bool = False) -> float:
        """Of a turn, once newcomers, by lane, and all who wait have filled the slots."""
        return self._tempo.seconds(self._rows_then(counts), bold=bold)

    def _rows_then(self, counts: dict[int, int]) -> int:
        rows = 0
        for lane, (load, line) in enumerate(zip(self.loads, self._queue.rounds, strict=True)):
            there = load.active + line.requests + counts.get(lane, 0)
            rows += min(load.slots, there) * load.beams
        return rows

    def _steps(self, request: Request, lane: int, deviations: float) -> float:
        low, high = self._bounds(request)
        line = self.loads[lane].steps
        expected = line.at(len(request.source)) + deviations * line.spread
        return min(max(low, expected), high)

    def _bounds(self, request: Request) -> tuple[int, int]:
        """Fewest and most steps; the last one is of end-of-sentence."""
        low, high = request.options.lengths(len(request.source), self._limits)
        low = max(low, min(len(request.options.prefix), high))
        return low + 1, high + 1
