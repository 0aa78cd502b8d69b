"""The queue of waiting requests: groups take turns. Pure bookkeeping, no thread, no lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from engine.types import Request

SHORT_TOKENS: Final = 64  # a source, or expected target, of up to this many tokens is short
# decoding steps in a turn of a group: a request that takes more uses up its group's next turns too
TURN_STEPS: Final = 64.0


def group_share(slots: int, tokens: float) -> int:
    """Return the number of slots that a group may have while other groups wait: half of the lane or fewer.

    slots: number of slots of the lane.
    tokens: number of tokens of a source; longer sources get fewer slots.
    """
    return max(1, int(slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, tokens)))


@dataclass(eq=False, slots=True)
class Group:
    """Requests of one group that wait for a lane.

    lane: number of the lane.
    ticket: number of the group in the queue.
    requests: waiting requests in order; the values are unused.
    steps, tokens: sums of the requests' expected decoding steps and source tokens.
    deficit: steps that taken requests needed beyond their turns; the group skips turns to make up for them.
    counted: whether `Round.sizes` includes the group in its current state.
    """

    lane: int
    ticket: int
    requests: OrderedDict[Request, None] = field(default_factory=OrderedDict)
    steps: float = 0.0
    tokens: int = 0
    deficit: float = 0.0
    counted: bool = False


@dataclass(eq=False, slots=True)
class GroupsOfSize:
    """Groups of equal size that wait for a lane: their number and the sums of their steps and tokens."""

    count: int = 0
    steps: float = 0.0
    tokens: int = 0


@dataclass(eq=False, slots=True)
class Round:
    """The groups that wait for one lane.

    groups: groups by ticket, the next one first.
    sizes: statistics of the groups, by the number of their requests.
    requests: number of requests in all groups.
    steps: sum of the expected decoding steps of all requests.
    changing: changed groups, which `sizes` leaves out until `settle`.
    """

    groups: OrderedDict[int, Group] = field(default_factory=OrderedDict)
    sizes: dict[int, GroupsOfSize] = field(default_factory=dict)
    requests: int = 0
    steps: float = 0.0
    changing: list[Group] = field(default_factory=list)

    def add(self, group: Group) -> None:
        """Append a group."""
        self.requests += len(group.requests)
        self.steps += group.steps
        self.groups[group.ticket] = group
        self._count(group, 1)
        group.counted = True

    def remove(self, group: Group, request: Request) -> None:
        """Remove a request from its group. Call `settle` before `sizes` is read."""
        if group.counted:
            self._count(group, -1)
            group.counted = False
            self.changing.append(group)
        steps = request.expected_steps
        del group.requests[request]
        group.steps -= steps
        group.tokens -= len(request.source)
        if not group.requests:
            del self.groups[group.ticket]
        self.requests -= 1
        # an empty round resets rounding errors
        self.steps = self.steps - steps if self.requests else 0.0

    def settle(self) -> None:
        """Add changed groups to `sizes`, once for any number of removed requests."""
        for group in self.changing:
            if group.requests:
                self._count(group, 1)
                group.counted = True
        self.changing.clear()

    def _count(self, group: Group, change: int) -> None:
        """Add a group to the statistics of its size (`change` is 1), or take it out (-1)."""
        size = len(group.requests)
        alike = self.sizes.get(size) or self.sizes.setdefault(size, GroupsOfSize())
        alike.count += change
        alike.steps += change * group.steps
        alike.tokens += change * group.tokens
        if not alike.count:
            del self.sizes[size]

    def requests_ahead(self, requests: int, slots: int) -> int:
        """Count the waiting requests that get slots before the last request of a new group, or with it.

        requests: number of requests in the new group.
        slots: number of slots of the lane.
        """
        return sum(
            alike.count * min(size, requests, group_share(slots, alike.tokens / (size * alike.count)))
            for size, alike in self.sizes.items()
        )

    def work_ahead(self, steps: float, turns: float, slots: int) -> tuple[float, float]:
        """Estimate the work of waiting groups that is done before the last request of a new group starts.

        steps: decoding steps of the new group. Another group overtakes it by at most this many, or by one
            request.
        turns: turns until that request starts; a group decodes at most its share of slots in each.
        slots: number of slots of the lane.

        Returns the steps and the number of requests.
        """
        total = requests = 0.0
        for size, alike in self.sizes.items():
            mean = alike.steps / alike.count  # steps of one group
            share = group_share(slots, alike.tokens / (size * alike.count))
            # steps of these groups before that request starts
            ahead = alike.count * min(mean, max(mean / size, steps), share * turns)
            total += ahead
            requests += ahead * size / max(1.0, mean)
        return total, requests

    def turns_to_empty(self, slots: int) -> float:
        """Estimate the turns until no group waits any more if each uses its share of `slots` slots."""
        return max(
            (
                alike.steps / alike.count / group_share(slots, alike.tokens / (size * alike.count))
                for size, alike in self.sizes.items()
            ),
            default=0.0,
        )

    def promised_deadlines(self) -> dict[int, float]:
        """Return the nearest deadline, by group size, of groups accepted because they would be in time.

        Only groups of several requests count: between two of its requests a group lets one request of each
        later group pass, while a single request is never overtaken.
        """
        nearest: dict[int, float] = {}
        for group in self.groups.values():
            size, last = len(group.requests), next(reversed(group.requests))
            if size > 1 and last.promised and last.deadline < math.inf:
                nearest[size] = min(last.deadline, nearest.get(size, math.inf))
        return nearest


@dataclass(slots=True)
class LaneRoom:
    """Free slots of a lane, or of several lanes of one width.

    slots: number of slots.
    free: number of free slots.
    used: number of slots in use by each group, by ticket.
    """

    slots: int
    free: int
    used: dict[int, int] = field(default_factory=dict)

    def share(self, request: Request, groups: int) -> float:
        """Return the number of slots that the group of a request may have.

        request: next request of the group.
        groups: number of groups that wait for the lane.

        This is `group_share`, or infinity if no other group waits and the request is so short that a slot is
        free soon for the next group. Sources that are encoded ahead of need count as slots.
        """
        tokens = len(request.source)
        if groups == 1 and tokens <= SHORT_TOKENS >= request.expected_steps:
            return math.inf
        return group_share(self.slots, tokens)


class FairQueue:
    """A queue with one round of groups per lane, which `take` serves in turn, one request each (deficit round
    robin: a request of many steps costs its group further turns).

    Within a group, requests are served in order. A group of thousands delays a new group by one request per
    turn only.
    """

    def __init__(self, lanes: int) -> None:
        self.tokens = 0
        self.rounds = [Round() for _ in range(lanes)]
        self._group_of: dict[Request, Group] = {}
        # heap of deadline, unique number (breaks ties) and request; may hold removed requests
        self._deadlines: list[tuple[float, int, Request]] = []
        self._tickets = itertools.count()

    @property
    def requests(self) -> int:
        return len(self._group_of)

    def add(self, group: Iterable[tuple[Request, int]], *, first: bool = False) -> None:
        """Append a group.

        group: requests with the number of their lanes.
        first: the group has the next turn.
        """
        ticket, groups = next(self._tickets), dict[int, Group]()  # by lane
        for request, lane in group:
            assert request not in self._group_of
            part = groups.get(lane)  # the requests of the group for this lane
            if part is None:
                part = groups[lane] = Group(lane, ticket)
            part.requests[request] = None
            part.steps += request.expected_steps
            part.tokens += len(request.source)
            self._group_of[request], request.ticket = part, ticket
            if request.deadline < math.inf:
                heapq.heappush(self._deadlines, (request.deadline, next(self._tickets), request))
        for lane, part in groups.items():
            self.tokens += part.tokens
            self.rounds[lane].add(part)
            if first:
                self.rounds[lane].groups.move_to_end(ticket, last=False)

    def take(self, lane: int, room: LaneRoom, budget: int, *, first: bool) -> list[Request]:
        """Take requests for a lane, one of each group in turn; groups with their share of slots are skipped.

        lane: number of the lane.
        room: free slots of the lane, and slots in use by each group.
        budget: largest number of source tokens of all taken requests.
        first: the first request may exceed the budget, so that no source waits forever.
        """
        lane_round, requests, skipped, used = self.rounds[lane], list[Request](), 0, room.used
        groups, free = lane_round.groups, room.free
        while skipped < len(groups) and free:
            ticket = next(iter(groups))
            group = groups[ticket]
            request = next(iter(group.requests))
            if request.cancelled:
                self._leave(request, lane_round)
                continue
            has = used.get(ticket, 0)
            if has and has >= room.share(request, len(groups)):
                groups.move_to_end(ticket)
                skipped += 1
                continue
            if group.deficit >= TURN_STEPS:
                group.deficit -= TURN_STEPS
                groups.move_to_end(ticket)
                skipped = 0
                continue
            cost = len(request.source)
            if cost > budget and not (first and not requests):
                break
            if len(group.requests) > 1:
                groups.move_to_end(ticket)
            self._leave(request, lane_round)
            requests.append(request)
            free -= 1
            budget -= cost
            deficit = group.deficit + request.expected_steps - TURN_STEPS
            group.deficit = deficit if deficit > 0 else 0.0
            used[ticket] = has + 1
            skipped = 0
        lane_round.settle()
        return requests

    def remove(self, request: Request) -> bool:
        """Remove a request and free its space. Returns False if it is not in the queue."""
        group = self._group_of.get(request)
        if group is None:
            return False
        lane_round = self.rounds[group.lane]
        self._leave(request, lane_round)
        lane_round.settle()
        return True

    def _leave(self, request: Request, lane_round: Round) -> None:
        lane_round.remove(self._group_of.pop(request), request)
        self.tokens -= len(request.source)

    def pop_expired(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadline has passed."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if self.remove(request):
                late.append(request)
        # more than half of the heap are removed requests
        if len(self._deadlines) > 2 * self.requests + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._group_of]
            heapq.heapify(self._deadlines)
        return late

    def sweep(self) -> None:
        """Remove the cancelled requests."""
        for request in [r for r in self._group_of if r.cancelled]:
            self.remove(request)

    def clear(self) -> list[Request]:
        """Remove and return all requests."""
        requests = list(self._group_of)
        for request in requests:
            self.remove(request)
        self._deadlines.clear()
        return requests
