"""Requests that wait, counted in source tokens; groups take turns. Pure bookkeeping, no thread, no lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable

from engine.types import Request

Round = OrderedDict[int, OrderedDict[Request, None]]  # groups by ticket, next one first


class FairQueue:
    """One round of groups per lane: each take serves the groups in turn, one request each.

    Groups are served first come, first served within, so a group of thousands delays a newcomer by one
    request per turn only.
    """

    def __init__(self, lanes: int) -> None:
        self.tokens = 0
        self._rounds: list[Round] = [OrderedDict() for _ in range(lanes)]
        self._where: dict[Request, tuple[int, int]] = {}  # lane and ticket of the group
        self._deadlines: list[tuple[float, int, Request]] = []  # a heap; removed requests leave it lazily
        self._tickets = itertools.count()

    @property
    def requests(self) -> int:
        return len(self._where)

    def add(self, group: Iterable[tuple[Request, int]]) -> None:
        """Append a group of requests, each with the number of its lane."""
        ticket = next(self._tickets)
        for request, lane in group:
            assert request not in self._where
            self._rounds[lane].setdefault(ticket, OrderedDict())[request] = None
            self._where[request] = lane, ticket
            self.tokens += len(request.source)
            if request.deadline < math.inf:
                heapq.heappush(self._deadlines, (request.deadline, next(self._tickets), request))

    def take(self, lane: int, slots: int, budget: int, *, first: bool) -> list[Request]:
        """At most `slots` requests for a lane, one of each group in turn, of at most `budget` source tokens
        together. With `first` the very first may be longer, so that no source waits for ever."""
        rounds, taken = self._rounds[lane], list[Request]()
        while rounds and len(taken) < slots:
            ticket, group = next(iter(rounds.items()))
            request = next(iter(group))
            cost = 0 if request.cancelled else len(request.source)
            if cost > budget and not (first and not taken):
                break
            if len(group) > 1:
                rounds.move_to_end(ticket)
            self.remove(request)
            if not request.cancelled:
                taken.append(request)
                budget -= cost
        return taken

    def waits(self, lane: int) -> bool:
        """Whether anybody waits for a lane."""
        return bool(self._rounds[lane])

    def ahead(self, lane: int, requests: int) -> int:
        """About how many source tokens leave before, or with, the last of a new group of so many requests."""
        groups = self._rounds[lane].values()
        return sum(len(r.source) for group in groups for r in itertools.islice(group, requests))

    def remove(self, request: Request) -> bool:
        """Free the space of a request, wherever it waits; False when it does not wait here."""
        lane, ticket = self._where.pop(request, (-1, -1))
        if lane < 0:
            return False
        group = self._rounds[lane][ticket]
        del group[request]
        if not group:
            del self._rounds[lane][ticket]
        self.tokens -= len(request.source)
        return True

    def expired(self, now: float) -> list[Request]:
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
