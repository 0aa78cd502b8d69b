"""Who has sent how much: requests in a sliding window, and characters in 30 days. The counters live in this
process or, shared by several servers and kept over restarts, in Redis."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from limits import RateLimitItem, RateLimitItemPerDay, RateLimitItemPerHour, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError, StorageError

from engine.api import ConfigError
from server.errors import Refusal
from server.process.clock import steady

logger = logging.getLogger(__name__)

T = TypeVar("T")

Count = Callable[[str, list[Any]], Awaitable[Any]]

MEMORY: Final = "memory://"
REDIS: Final = ("redis://", "rediss://", "redis+unix://")
NOTE_SECONDS: Final = 0.2  # until another process is told of characters that nothing limits
STORAGE_SECONDS: Final = 2.0  # that Redis gets to answer
SWEEP_SECONDS: Final = 60.0  # between two looks for counters that have ended
MONTH_SECONDS: Final = 30 * 24 * 3600  # seconds: the window of characters, from the first of them


def rates_of(minute: int, hour: int = -1, day: int = -1) -> tuple[RateLimitItem, ...]:
    """Make the limits on requests.

    minute, hour, day: requests in so long; -1 is no limit.
    """
    kinds = (RateLimitItemPerMinute, RateLimitItemPerHour, RateLimitItemPerDay)
    return tuple(
        kind(amount) for kind, amount in zip(kinds, (minute, hour, day), strict=True) if amount != -1
    )


class Quotas:
    """Counters by the name of a visitor. Methods raise Refusal("unavailable") when Redis does not answer."""

    def __init__(self, url: str, count: Count | None = None) -> None:
        """count: has what is counted in memory counted elsewhere, for several front ends.

        Raises ConfigError when the URL is none of ours, or its library is missing.
        """
        self._storage = _open(url, count)
        self._rates = SlidingWindowCounterRateLimiter(self._storage)

    async def count_request(
        self, name: str, rates: Sequence[RateLimitItem]
    ) -> tuple[RateLimitItem, int] | None:
        """Count a request, and tell the first limit that it exceeds, with the seconds until it may come."""
        for rate in rates:
            if not await _await_storage(self._rates.hit(rate, name)):
                stats = await _await_storage(self._rates.get_window_stats(rate, name))
                seconds = math.ceil(stats.reset_time - time.time())
                return rate, min(max(1, seconds), rate.get_expiry())
        return None

    async def wait(self, name: str, rates: Sequence[RateLimitItem]) -> int:
        """Tell in how many seconds a request may come, without counting one; 0: now."""
        for rate in rates:
            stats = await _await_storage(self._rates.get_window_stats(rate, name))
            if stats.remaining <= 0:
                return max(1, math.ceil(stats.reset_time - time.time()))
        return 0

    async def add(self, name: str, characters: int) -> int:
        """Count characters, or with a negative number give them back; returns the new count."""
        return await _await_storage(self._storage.incr(_key(name), MONTH_SECONDS, characters))

    async def note(self, name: str, characters: int) -> None:
        """Count characters that nothing limits: where another process counts, several requests' at once."""
        if isinstance(self._storage, RemoteCounters):
            self._storage.note(_key(name), characters)
        else:
            await self.add(name, characters)

    async def count(self, name: str) -> int:
        # below 0 when characters are given back after their month has ended
        return max(0, await _await_storage(self._storage.get(_key(name))))

    async def close(self) -> None:
        """Tell what was noted, and end the connections to Redis."""
        if isinstance(self._storage, RemoteCounters):
            self._storage.tell_noted()
            await asyncio.sleep(0)  # in which it goes
        if isinstance(self._storage, RedisStorage):
            bridge: Any = self._storage.bridge  # of redis-py, which the library's types leave open
            await bridge.get_connection().aclose()


class Counters(MemoryStorage):
    """Counters in memory, by a clock that nobody sets; a hit looks at its own counter only.

    The library's own storage looks at all counters at every hit, and counts by the wall clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = steady(None)
        self._swept = self._clock()

    async def get(self, key: str) -> int:
        if self.expirations.get(key, 0.0) <= self._clock():
            self.storage.pop(key, None)
            self.expirations.pop(key, None)
        return self.storage.get(key, 0)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        now = self._clock()
        return await self._get_sliding_window_info(*self.sliding_window_keys(key, expiry, now), expiry, now)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        # nothing in here waits, so nobody comes between
        previous, lasts, current, _ = await self.get_sliding_window(key, expiry)
        if math.floor(previous * lasts / expiry + current) + amount > limit:
            return False
        _, window = self.sliding_window_keys(key, expiry, self._clock())
        await self.incr(window, 2 * expiry, amount)
        return True

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        if self._clock() - self._swept > SWEEP_SECONDS:
            self._swept = self._clock()
            for old in list(self.expirations):
                await self.get(old)  # drops what has ended
        await self.get(key)
        self.expirations.setdefault(key, self._clock() + expiry)
        self.storage[key] += amount
        return self.storage[key]

    async def ask(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Do for another process what its RemoteCounters are asked for."""
        verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "get": self.get,
            "incr": self.incr,
            "window": self.get_sliding_window,
            "enter": self.acquire_sliding_window_entry,
        }
        return await verbs[verb](*arguments)


class RemoteCounters(Counters):
    """Counters that another process keeps."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count
        self._noted = Counter[str]()  # characters that were not told yet
        self._telling = set[asyncio.Task[None]]()

    def note(self, key: str, characters: int) -> None:
        """Count characters soon."""
        if not self._noted:
            asyncio.get_running_loop().call_later(NOTE_SECONDS, self.tell_noted)
        self._noted[key] += characters

    def tell_noted(self) -> None:
        """Count now what was noted."""
        noted, self._noted = self._noted, Counter()
        for key, characters in noted.items():
            task = asyncio.get_running_loop().create_task(self._tell(key, characters))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, key: str, characters: int) -> None:
        try:
            await self.incr(key, MONTH_SECONDS, characters)
        except StorageError as error:
            logger.error("%d characters were not counted: %s", characters, error)  # noqa: TRY400

    async def get(self, key: str) -> int:
        return int(await self._ask("get", key)) + self._noted[key]

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        previous, lasts, current, ends = await self._ask("window", key, expiry)
        return previous, lasts, current, ends

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(await self._ask("enter", key, limit, expiry, amount))

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        return int(await self._ask("incr", key, expiry, amount))

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            async with asyncio.timeout(STORAGE_SECONDS):
                return await self._count(verb, list(arguments))
        except TimeoutError as error:
            raise StorageError(error) from error


def _key(name: str) -> str:
    return f"CONVOY/characters/{name}"


async def _await_storage(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except StorageError as error:
        logger.error("what counts requests (Redis, or the supervisor) does not answer: %s", error)  # noqa: TRY400
        message = "this server can't count requests at the moment: try again later"
        raise Refusal("unavailable", message, {"Retry-After": "5"}) from error


def _open(url: str, count: Count | None) -> Storage:
    if url == MEMORY:
        return RemoteCounters(count) if count else Counters()
    if not url.startswith(REDIS):
        scheme = url.partition(":")[0]  # the rest may hold a password
        raise ConfigError(f"limits are counted in {MEMORY} or redis://host:port, not in {scheme!r}")
    try:
        return RedisStorage(
            f"async+{url}",
            wrap_exceptions=True,
            implementation="redispy",
            socket_timeout=STORAGE_SECONDS,
            socket_connect_timeout=STORAGE_SECONDS,
        )
    except ConfigurationError as error:
        raise ConfigError("Redis needs its library: pip install 'convoy-server[redis]'") from error
