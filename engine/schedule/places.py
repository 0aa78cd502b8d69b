"""Places for work in processes, shared fairly by the owners of the work."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """A number of places. For one event loop.

    A free place goes to the waiting owner that holds the fewest, among equal ones in turn, and to the first
    of its requests.
    """

    def __init__(self, places: int, share: int | None = None) -> None:
        """share: places that one owner may hold; None: all."""
        self._free, self._share = places, share or places
        self._held = Counter[str]()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a place."""
        return sum(not granted.done() for line in self._waiting.values() for granted in line)

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it within the context."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            if not granted.cancelled():  # otherwise it holds no place
                self._held[owner] -= 1
                self._held += Counter()  # without zeros
                self._free += 1
                self._grant()

    def _grant(self) -> None:
        """Give free places to waiting requests."""
        while self._free:
            owners = [owner for owner in self._waiting if self._held[owner] < self._share]
            if not owners:
                return
            owner = min(owners, key=self._held.__getitem__)
            line = self._waiting.pop(owner)
            granted = line.popleft()
            if line:
                self._waiting[owner] = line  # after all other owners
            if not granted.cancelled():
                granted.set_result(None)
                self._held[owner] += 1
                self._free -= 1
