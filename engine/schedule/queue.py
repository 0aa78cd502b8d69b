"""Waiting requests, counted in source tokens; groups take turns. Pure bookkeeping, no thread, no lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from engine.types import Request

Group = OrderedDict[Request, None]

SHORT_TOKENS: Final = (
    64  # of a source, or of what is expected of its target; a group of longer sources has fewer slots
)


@dataclass(eq=False, slots=True)
class Round:
    """The groups that wait for one lane.

    groups: by ticket, the next one first.
    sizes: number of groups of each size.
    requests: number of requests in all groups.
    steps: decoding steps that all requests are expected to take, together.
    """

    groups: OrderedDict[int, Group] = field(default_factory=OrderedDict)
    sizes: Counter[int] = field(default_factory=Counter)
    requests: int = 0
    steps: float = 0.0

    def ahead(self, requests: int) -> int:
        """Count the requests that leave before the last of a new group of so many.

        At most as many of each other group go first.
        """
        return sum(groups * min(size, requests) for size, groups in self.sizes.items())

    def promised_deadlines(self) -> dict[int, float]:
        """Find the nearest deadline, by size, of the groups that were promised to be in time.

        Only groups of several requests count: a group lets one request of each later group pass between two
        of its own, while a single request is never passed.
        """
        nearest: dict[int, float] = {}
        for group in self.groups.values():
            last = next(reversed(group))
            if len(group) > 1 and last.promised and last.deadline < math.inf:
                nearest[len(group)] = min(last.deadline, nearest.get(len(group), math.inf))
        return nearest

    def resize(self, before: int, after: int) -> None:
        """Note that a group has now another size; 0 is none."""
        for size, change in ((before, -1), (after, 1)):
            if size:
                self.sizes[size] += change
                if not self.sizes[size]:
                    del self.sizes[size]


@dataclass(slots=True)
class LaneRoom:
    """Room of a lane, or of several of one width.

    slots: all there are.
    free: slots that nobody has.
    held: slots that each group has, by ticket.
    """

    slots: int
    free: int
    held: Counter[int] = field(default_factory=Counter)

    def share(self, request: Request, groups: int) -> int:
        """Count the slots that the group of a request may have.

        request: the group's next; long sources and long answers keep their slots, so that others would wait.
        groups: number of groups that wait for the lane.

        Returns half of the slots, less the longer the source; all where nobody else waits, and requests are
        so short that whoever comes soon finds a slot.
        """
        if groups == 1 and max(len(request.source), request.expected_steps) <= SHORT_TOKENS:
            return self.slots
        return max(1, self.slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, len(request.source)))


class FairQueue:
    """One round of groups per lane: each take serves the groups in turn, one request each.

    Groups are served first come, first served within, so a group of thousands delays a newcomer by one
    request per turn only.
    """

    def __init__(self, lanes: int) -> None:
        self.tokens = 0
        self.rounds = [Round() for _ in range(lanes)]
        self._where: dict[Request, tuple[int, int]] = {}  # lane and ticket of the group
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
        ticket = next(self._tickets)
        for request, lane in group:
            assert request not in self._where
            line = self.rounds[lane]
            mine = line.groups.setdefault(ticket, OrderedDict())
            mine[request] = None
            if first:
                line.groups.move_to_end(ticket, last=False)
            line.requests += 1
            line.steps += request.expected_steps
            self._where[request], request.ticket = (lane, ticket), ticket
            self.tokens += len(request.source)
            if request.deadline < math.inf:
                heapq.heappush(self._deadlines, (request.deadline, next(self._tickets), request))
        for line in self.rounds:
            line.resize(0, len(line.groups.get(ticket, ())))

    def take(self, lane: int, room: LaneRoom, budget: int, *, first: bool) -> list[Request]:
        """Take requests for a lane, one of each group in turn, but for groups that have their share of slots.

        lane: the number of the lane.
        room: its free slots, and what each group holds of the others.
        budget: source tokens of all requests together.
        first: whether the very first may be longer than that, so that no source waits for ever.
        """
        groups, requests, passed = self.rounds[lane].groups, list[Request](), 0
        while passed < len(groups) and len(requests) < room.free:
            ticket, group = next(iter(groups.items()))
            request = next(iter(group))
            cost = 0 if request.cancelled else len(request.source)
            if not request.cancelled and room.held[ticket] >= room.share(request, len(groups)):
                groups.move_to_end(ticket)
                passed += 1
                continue
            if cost > budget and not (first and not requests):
                break
            if len(group) > 1:
                groups.move_to_end(ticket)
            self.remove(request)
            if not request.cancelled:
                requests.append(request)
                budget -= cost
                room.held[ticket] += 1
                passed = 0
        return requests

    def remove(self, request: Request) -> bool:
        """Free the space of a request, wherever it waits; False when it does not wait here."""
        lane, ticket = self._where.pop(request, (-1, -1))
        if lane < 0:
            return False
        line = self.rounds[lane]
        group = line.groups[ticket]
        del group[request]
        line.resize(len(group) + 1, len(group))
        line.requests -= 1
        # no error of rounding stays
        line.steps = line.steps - request.expected_steps if line.requests else 0.0
        if not group:
            del line.groups[ticket]
        self.tokens -= len(request.source)
        return True

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
