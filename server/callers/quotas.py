"""Counters of requests in a sliding window and of characters in 30 days, for each visitor.

The counters are in this process, or in Redis, where several servers share them and they outlive restarts.
"""

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

# function that runs `Counters.ask` in another process: verb and arguments
Count = Callable[[str, list[Any]], Awaitable[Any]]

MEMORY: Final = "memory://"
REDIS: Final = ("redis://", "rediss://", "redis+unix://")
BATCH_SECONDS: Final = 0.2  # delay before unlimited characters are sent to the process that counts
STORAGE_SECONDS: Final = 2.0  # time limit for an answer of Redis or of the process that counts
SWEEP_SECONDS: Final = 60.0  # seconds between two sweeps for expired counters
MONTH_SECONDS: Final = 30 * 24 * 3600  # window of characters, which begins with the first of them


def rates_of(minute: int, hour: int = -1, day: int = -1) -> tuple[RateLimitItem, ...]:
    """Return the limits on requests.

    minute, hour, day: greatest number of requests in this time; -1: no limit.
    """
    kinds = (RateLimitItemPerMinute, RateLimitItemPerHour, RateLimitItemPerDay)
    return tuple(
        kind(amount) for kind, amount in zip(kinds, (minute, hour, day), strict=True) if amount != -1
    )


class Quotas:
    """Counters by visitor name. Methods raise Refusal("unavailable") when the storage does not answer."""

    def __init__(self, url: str, count: Count | None = None) -> None:
        """Open the storage of counters.

        url: memory:// or the address of a Redis server.
        count: function that updates counters in another process, for several front ends; None: this process
            has the counters in memory.

        Raises ConfigError when the URL is invalid, or the library of Redis is missing.
        """
        self._storage = _open_storage(url, count)
        self._rates = SlidingWindowCounterRateLimiter(self._storage)

    async def count_request(
        self, name: str, rates: Sequence[RateLimitItem]
    ) -> tuple[RateLimitItem, int] | None:
        """Count a request; return the first exceeded limit, and the seconds until it allows a request.

        name: name of the visitor.
        rates: limits of the visitor.
        """
        for rate in rates:
            if not await _await_storage(self._rates.hit(rate, name)):
                stats = await _await_storage(self._rates.get_window_stats(rate, name))
                seconds = math.ceil(stats.reset_time - time.time())
                return rate, min(max(1, seconds), rate.get_expiry())
        return None

    async def wait(self, name: str, rates: Sequence[RateLimitItem]) -> int:
        """Return the seconds until the limits allow a request, without counting one; 0: now."""
        for rate in rates:
            stats = await _await_storage(self._rates.get_window_stats(rate, name))
            if stats.remaining <= 0:
                return max(1, math.ceil(stats.reset_time - time.time()))
        return 0

    async def add(self, name: str, characters: int) -> int:
        """Add characters to a visitor's count, or subtract a negative number; return the new count."""
        return await _await_storage(self._storage.incr(_characters_key(name), MONTH_SECONDS, characters))

    async def add_later(self, name: str, characters: int) -> None:
        """Count characters of a visitor without a limit; calls to another process are batched."""
        if isinstance(self._storage, RemoteCounters):
            self._storage.add_later(_characters_key(name), characters)
        else:
            await self.add(name, characters)

    async def count(self, name: str) -> int:
        # the count is negative when characters are refunded after their window has ended
        return max(0, await _await_storage(self._storage.get(_characters_key(name))))

    async def close(self) -> None:
        """Send the batched counts, and close the connections to Redis."""
        if isinstance(self._storage, RemoteCounters):
            self._storage.send_batch()
            await asyncio.sleep(0)  # lets the tasks send them
        if isinstance(self._storage, RedisStorage):
            bridge: Any = self._storage.bridge  # redis-py's module, which has no type
            await bridge.get_connection().aclose()


class Counters(MemoryStorage):
    """Counters in memory, with a steady clock. A hit reads only its own counter.

    The library's storage scans all counters at each hit, and uses the wall clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = steady(None)
        self._swept = self._clock()

    async def get(self, key: str) -> int:
        """Return a counter; an expired one is removed and counts 0."""
        if self.expirations.get(key, 0.0) <= self._clock():
            self.storage.pop(key, None)
            self.expirations.pop(key, None)
        return self.storage.get(key, 0)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        now = self._clock()
        return await self._get_sliding_window_info(*self.sliding_window_keys(key, expiry, now), expiry, now)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        # counts a request if the sliding window has room for it, and returns whether it had
        # nothing in here waits, so no other task runs in between
        previous, lasts, current, _ = await self.get_sliding_window(key, expiry)
        # requests of the previous window count by the share of it that the sliding window still covers
        if math.floor(previous * lasts / expiry + current) + amount > limit:
            return False
        _, window = self.sliding_window_keys(key, expiry, self._clock())
        # a window is read once more, as the previous one
        await self.incr(window, 2 * expiry, amount)
        return True

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        if self._clock() - self._swept > SWEEP_SECONDS:
            self._swept = self._clock()
            for old in list(self.expirations):
                await self.get(old)  # removes an expired counter
        await self.get(key)
        self.expirations.setdefault(key, self._clock() + expiry)
        self.storage[key] += amount
        return self.storage[key]

    async def ask(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Execute a method for the RemoteCounters of another process.

        verb: short name of the method: "get", "incr", "window" or "enter".
        arguments: arguments of the method.
        """
        verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "get": self.get,
            "incr": self.incr,
            "window": self.get_sliding_window,
            "enter": self.acquire_sliding_window_entry,
        }
        return await verbs[verb](*arguments)


class RemoteCounters(Counters):
    """Counters in another process."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count
        self._batch = Counter[str]()  # characters that were not sent yet
        self._sending = set[asyncio.Task[None]]()

    def add_later(self, key: str, characters: int) -> None:
        """Count characters with the next batch."""
        if not self._batch:
            asyncio.get_running_loop().call_later(BATCH_SECONDS, self.send_batch)
        self._batch[key] += characters

    def send_batch(self) -> None:
        """Send the batch of counts now."""
        batch, self._batch = self._batch, Counter()
        for key, characters in batch.items():
            task = asyncio.get_running_loop().create_task(self._send(key, characters))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, key: str, characters: int) -> None:
        try:
            await self.incr(key, MONTH_SECONDS, characters)
        except StorageError as error:
            logger.error("%d characters were not counted: %s", characters, error)  # noqa: TRY400

    async def get(self, key: str) -> int:
        # characters of this batch have not reached the other process yet
        return int(await self._ask("get", key)) + self._batch[key]

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        # JSON has turned the tuple into a list
        previous, lasts, current, ends = await self._ask("window", key, expiry)
        return previous, lasts, current, ends

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(await self._ask("enter", key, limit, expiry, amount))

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        return int(await self._ask("incr", key, expiry, amount))

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        """Return the answer of the process that counts. Raises StorageError after STORAGE_SECONDS."""
        try:
            async with asyncio.timeout(STORAGE_SECONDS):
                return await self._count(verb, list(arguments))
        except TimeoutError as error:
            raise StorageError(error) from error


def _characters_key(name: str) -> str:
    return f"CONVOY/characters/{name}"


async def _await_storage(answer: Awaitable[T]) -> T:
    """Await an answer of the storage. Raises Refusal when the storage fails."""
    try:
        return await answer
    except StorageError as error:
        logger.error("the counters of requests (in Redis or the supervisor) do not answer: %s", error)  # noqa: TRY400
        message = "this server can't count requests at the moment: try again later"
        raise Refusal("unavailable", message, {"Retry-After": "5"}) from error


def _open_storage(url: str, count: Count | None) -> Storage:
    """Return the storage at a URL. Raises ConfigError."""
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
