"""The lag of the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

logger = logging.getLogger(__name__)

PULSE_SECONDS: Final = 0.05  # seconds between two measurements
SPAN_SECONDS: Final = 5.0  # span of time with one longest lag
MAX_SPANS: Final = 12  # number of spans that are kept
LOGGED_LAG_SECONDS: Final = 1.0  # a longer lag is logged


class LoopLag:
    """Measures by how many seconds the event loop is late. It serves no request during a lag."""

    def __init__(self) -> None:
        # start and longest lag of each span
        self._longest: deque[tuple[float, float]] = deque(maxlen=MAX_SPANS)

    def longest(self) -> float:
        """Return the longest lag of the last minute, in seconds."""
        since = time.monotonic() - SPAN_SECONDS * MAX_SPANS
        return max((lag for began, lag in self._longest if began >= since), default=0.0)

    def record(self, lag: float) -> None:
        """Record a lag in seconds. Each span of SPAN_SECONDS keeps only its longest lag."""
        now = time.monotonic()
        if not self._longest or now - self._longest[-1][0] > SPAN_SECONDS:
            self._longest.append((now, lag))
        elif lag > self._longest[-1][1]:
            self._longest[-1] = self._longest[-1][0], lag

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Measure while the context lasts."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        """Measure the lag every PULSE_SECONDS, without end."""
        while True:
            due = time.monotonic() + PULSE_SECONDS
            await asyncio.sleep(PULSE_SECONDS)
            lag = max(0.0, time.monotonic() - due)
            self.record(lag)
            if lag > LOGGED_LAG_SECONDS:
                logger.warning("no request was served for %.1f s: something blocked the event loop", lag)
