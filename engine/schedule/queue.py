"""Requests that wait, counted in source tokens; groups take turns. Pure bookkeeping, no thread, no lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.types import Request

Group = OrderedDict[Request, None]


@dataclass(eq=False, slots=True)
class Round:
    """Who waits for one lane.

    groups: by ticket, next one first.
    sizes: how many groups there are of each size.
    steps: the decoding steps that all of them are expected to take.
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

    def tightest(self) -> dict[int, float]:
        """Find the nearest deadline of the groups of each size that are foreseen to be in time, as far as
        newcomers may delay them: one by one a group lets others pass, so its last request waits for them, and
        a single request does not."""
        nearest: dict[int, float] = {}
        for group in self.groups.values():
            last = next(reversed(group))
            if len(group) > 1 and last.foreseen and last.deadline < math.inf:
                nearest[len(group)] = min(last.deadline, nearest.get(len(group), math.inf))
        return nearest

    def resize(self, before: int, after: int) -> None:
        """Note that a group has now another size; 0 is none."""
        for size, change in ((before, -1), (after, 1)):
            if size:
                self.sizes[size] += change
                if not self.sizes[size]:
                    del self.sizes[size]


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
        """Append a group of requests, each with the number of its lane.

        first: it has the next turn.
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
            line.steps += request.steps
            self._where[request] = lane, ticket
            self.tokens += len(request.source)
            if request.deadline < math.inf:
                heapq.heappush(self._deadlines, (request.deadline, next(self._tickets), request))
        for line in self.rounds:
            line.resize(0, len(line.groups.get(ticket, ())))

    def take(self, lane: int, slots: int, budget: int, *, first: bool) -> list[Request]:
        """Take at most `slots` requests for a lane, one of each group in turn, of at most `budget` source
        tokens together. With `first` the very first may be longer, so that no source waits for ever."""
        groups, requests = self.rounds[lane].groups, list[Request]()
        while groups and len(requests) < slots:
            ticket, group = next(iter(groups.items()))
            request = next(iter(group))
            cost = 0 if request.cancelled else len(request.source)
            if cost > budget and not (first and not requests):
                break
            if len(group) > 1:
                groups.move_to_end(ticket)
            self.remove(request)
            if not request.cancelled:
                requests.append(request)
                budget -= cost
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
        line.steps = line.steps - request.steps if line.requests else 0.0  # no error of rounding stays
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
