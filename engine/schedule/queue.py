"""Waiting requests, counted in source tokens; groups take turns. Pure bookkeeping, no thread, no lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from engine.types import Request

SHORT_TOKENS: Final = 64  # of a source, or of what is expected of its target
TURN_STEPS: Final = (
    64.0  # decoding steps of a turn: a request that takes more costs its group the next turns too
)


def slots_of_group(slots: int, tokens: float) -> int:
    """Count the slots of a lane that a group may have where others wait: half, less the longer its sources.

    slots: all there are.
    tokens: of a source.
    """
    return max(1, int(slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, tokens)))


@dataclass(eq=False, slots=True)
class Group:
    """Requests of a group that wait for a lane.

    lane: its number.
    ticket: the group's number in the queue.
    requests: in their order.
    steps, tokens: of all of them, expected decoding steps and tokens of sources.
    owed: steps of requests beyond their turns; the group passes its next turns for them.
    counted: whether `Round.sizes` knows it as it is.
    """

    lane: int
    ticket: int
    requests: OrderedDict[Request, None] = field(default_factory=OrderedDict)
    steps: float = 0.0
    tokens: int = 0
    owed: float = 0.0
    counted: bool = False


@dataclass(eq=False, slots=True)
class GroupsOfSize:
    """The groups of one size that wait for a lane: how many, and their steps and tokens together."""

    count: int = 0
    steps: float = 0.0
    tokens: int = 0


@dataclass(eq=False, slots=True)
class Round:
    """The groups that wait for one lane.

    groups: by ticket, the next one first.
    sizes: groups by the number of their requests.
    requests: number of requests in all groups.
    steps: decoding steps that all requests are expected to take, together.
    changing: groups that `sizes` does not count until the round is settled.
    """

    groups: OrderedDict[int, Group] = field(default_factory=OrderedDict)
    sizes: dict[int, GroupsOfSize] = field(default_factory=dict)
    requests: int = 0
    steps: float = 0.0
    changing: list[Group] = field(default_factory=list)

    def add(self, group: Group) -> None:
        """Take in a group, the last of all."""
        self.requests += len(group.requests)
        self.steps += group.steps
        self.groups[group.ticket] = group
        self._count(group, 1)
        group.counted = True

    def remove(self, group: Group, request: Request) -> None:
        """Have a request leave its group. Before anybody asks for sizes, `settle`."""
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
        # no error of rounding stays
        self.steps = self.steps - steps if self.requests else 0.0

    def settle(self) -> None:
        """Count groups that have changed, once each however many requests have gone."""
        for group in self.changing:
            if group.requests:
                self._count(group, 1)
                group.counted = True
        self.changing.clear()

    def _count(self, group: Group, change: int) -> None:
        size = len(group.requests)
        alike = self.sizes.get(size) or self.sizes.setdefault(size, GroupsOfSize())
        alike.count += change
        alike.steps += change * group.steps
        alike.tokens += change * group.tokens
        if not alike.count:
            del self.sizes[size]

    def ahead(self, requests: int, slots: int) -> int:
        """Count the requests that have slots before the last of a new group, or beside it.

        requests: of the new group.
        slots: of the lane.
        """
        return sum(
            alike.count * min(size, requests, slots_of_group(slots, alike.tokens / (size * alike.count)))
            for size, alike in self.sizes.items()
        )

    def ahead_of(self, steps: float, turns: float, slots: int) -> tuple[float, float]:
        """Estimate what is decoded of waiting groups before the last request of a new one begins.

        steps: of the new group; no other goes ahead by more, or by more than a request.
        turns: until then; a group decodes no more meanwhile than its share of slots.
        slots: of the lane.

        Returns steps and requests.
        """
        total = requests = 0.0
        for size, alike in self.sizes.items():
            each, share = (
                alike.steps / alike.count,
                slots_of_group(slots, alike.tokens / (size * alike.count)),
            )
            ahead = alike.count * min(each, max(each / size, steps), share * turns)
            total += ahead
            requests += ahead * size / max(1.0, each)
        return total, requests

    def turns(self, slots: int) -> float:
        """Estimate the turns until no group waits any more, by their shares of so many slots alone."""
        return max(
            (
                alike.steps / alike.count / slots_of_group(slots, alike.tokens / (size * alike.count))
                for size, alike in self.sizes.items()
            ),
            default=0.0,
        )

    def promised_deadlines(self) -> dict[int, float]:
        """Find the nearest deadline, by size, of the groups that were promised to be in time.

        Only groups of several requests count: a group lets one request of each later group pass between two
        of its own, while a single request is never passed.
        """
        nearest: dict[int, float] = {}
        for group in self.groups.values():
            size, last = len(group.requests), next(reversed(group.requests))
            if size > 1 and last.promised and last.deadline < math.inf:
                nearest[size] = min(last.deadline, nearest.get(size, math.inf))
        return nearest


@dataclass(slots=True)
class LaneRoom:
    """Room of a lane, or of several of one width.

    slots: all there are.
    free: slots that nobody has.
    held: slots that each group has, by ticket.
    """

    slots: int
    free: int
    held: dict[int, int] = field(default_factory=dict)

    def share(self, request: Request, groups: int) -> float:
        """Count the slots that the group of a request may have.

        request: the group's next; long sources and long answers keep their slots, so that others would wait.
        groups: number of groups that wait for the lane.

        Returns what `slots_of_group` does; any number where nobody else waits, and requests are so short that
        whoever comes soon finds a slot. What is encoded ahead of need is counted too.
        """
        tokens = len(request.source)
        if groups == 1 and tokens <= SHORT_TOKENS >= request.expected_steps:
            return math.inf
        return slots_of_group(self.slots, tokens)


class FairQueue:
    """One round of groups per lane: each take serves the groups in turn, one request each. A group whose
    request takes many steps passes as many turns as these are worth.

    Groups are served first come, first served within, so a group of thousands delays a newcomer by one
    request per turn only.
    """

    def __init__(self, lanes: int) -> None:
        self.tokens = 0
        self.rounds = [Round() for _ in range(lanes)]
        self._where: dict[Request, Group] = {}
        self._deadlines: list[tuple[float, int, Request]] = []  # a heap; removed requests leave it lazily
        self._tickets = itertools.count()

    @property
    def requests(self) -> int:
        return len(self._where)

    def add(self, group: Iterable[tuple[Request, int]], *, first: bool = False) -> None:
        """Append a group.

        group: requests, each with the number of its lane.
        first: whether the group has the next turn.
        """
        ticket, groups = next(self._tickets), dict[int, Group]()  # by lane
        for request, lane in group:
            assert request not in self._where
            mine = groups.get(lane)
            if mine is None:
                mine = groups[lane] = Group(lane, ticket)
            mine.requests[request] = None
            mine.steps += request.expected_steps
            mine.tokens += len(request.source)
            self._where[request], request.ticket = mine, ticket
            if request.deadline < math.inf:
                heapq.heappush(self._deadlines, (request.deadline, next(self._tickets), request))
        for lane, mine in groups.items():
            self.tokens += mine.tokens
            self.rounds[lane].add(mine)
            if first:
                self.rounds[lane].groups.move_to_end(ticket, last=False)

    def take(self, lane: int, room: LaneRoom, budget: int, *, first: bool) -> list[Request]:
        """Take requests for a lane, one of each group in turn, but for groups that have their share of slots.

        lane: the number of the lane.
        room: its free slots, and what each group holds of the others.
        budget: source tokens of all requests together.
        first: whether the very first may be longer than that, so that no source waits for ever.
        """
        line, requests, passed, held = self.rounds[lane], list[Request](), 0, room.held
        groups, free = line.groups, room.free
        while passed < len(groups) and free:
            ticket = next(iter(groups))
            group = groups[ticket]
            request = next(iter(group.requests))
            if request.cancelled:
                self._leave(request, line)
                continue
            has = held.get(ticket, 0)
            if has and has >= room.share(request, len(groups)):
                groups.move_to_end(ticket)
                passed += 1
                continue
            if group.owed >= TURN_STEPS:
                group.owed -= TURN_STEPS
                groups.move_to_end(ticket)
                passed = 0
                continue
            cost = len(request.source)
            if cost > budget and not (first and not requests):
                break
            if len(group.requests) > 1:
                groups.move_to_end(ticket)
            self._leave(request, line)
            requests.append(request)
            free -= 1
            budget -= cost
            owed = group.owed + request.expected_steps - TURN_STEPS
            group.owed = owed if owed > 0 else 0.0
            held[ticket] = has + 1
            passed = 0
        line.settle()
        return requests

    def remove(self, request: Request) -> bool:
        """Free the space of a request, wherever it waits; False when it does not wait here."""
        group = self._where.get(request)
        if group is None:
            return False
        line = self.rounds[group.lane]
        self._leave(request, line)
        line.settle()
        return True

    def _leave(self, request: Request, line: Round) -> None:
        line.remove(self._where.pop(request), request)
        self.tokens -= len(request.source)

    def pop_expired(self, now: float) -> list[Request]:
        """Remove and return the requests whose deadline has passed."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if self.remove(request):
                late.append(request)
        if len(self._deadlines) > 2 * self.requests + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._where]
            heapq.heapify(self._deadlines)
        return late

    def sweep(self) -> None:
        """Remove the requests whose caller has set `cancelled`."""
        for request in [r for r in self._where if r.cancelled]:
            self.remove(request)

    def clear(self) -> list[Request]:
        """Remove and return everything."""
        everything = list(self._where)
        for request in everything:
            self.remove(request)
        self._deadlines.clear()
        return everything
