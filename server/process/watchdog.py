"""The lag of the event loop, and limits for slow heads and tiny chunks of requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger(__name__)

PULSE_SECONDS: Final = 0.05  # seconds between two measurements
SPAN_SECONDS: Final = 5.0  # span of time with one longest lag
MAX_SPANS: Final = 12  # number of spans that are kept
LOGGED_LAG_SECONDS: Final = 1.0  # a longer lag is logged
HEAD_SECONDS: Final = 20.0  # time limit for the head of a request
# bytes of a read. The C library would map asyncio's 256 KiB again for each read, which takes 12 microseconds
READ_BYTES: Final = 1 << 16
FREE_CHUNKS: Final = 1_000  # number of chunks of a body without a least size
CHUNK_BYTES: Final = 64  # least mean size of the other chunks of a body: each chunk costs the same time
TINY_CHUNKS: Final = f"Too many chunks of fewer than {CHUNK_BYTES} bytes: send the body in larger ones."


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


class Grammar(h11.Connection):
    """A connection that refuses a body in many tiny chunks, since each chunk takes time of the event loop."""

    _lacking = 0  # bytes by which this body is smaller than CHUNK_BYTES for each chunk

    @property
    def too_many_tiny_chunks(self) -> bool:
        """Whether the body is refused."""
        return self._lacking > FREE_CHUNKS * CHUNK_BYTES

    def next_event(self) -> Any:
        """Return the next event. Raises h11.RemoteProtocolError on invalid HTTP and on too many tiny
        chunks."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._lacking = 0
        elif isinstance(event, h11.Data):
            # chunk_start is true only for the first event of a chunk
            self._lacking = max(0, self._lacking + CHUNK_BYTES * event.chunk_start - len(event.data))
            if self.too_many_tiny_chunks:
                raise h11.RemoteProtocolError(TINY_CHUNKS)
        return event


class HttpProtocol(H11Protocol):
    """Uvicorn's protocol in Python, which limits the length of a head; its other protocol does not. It closes
    a connection whose head is not complete in time."""

    conn: Grammar
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first head."""
        self.conn = Grammar(h11.SERVER)
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # a transport without TLS
            transport.max_size = READ_BYTES
        self._start_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, or close the connection if an answer has begun."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # its answer can't be sent any more
        if self.conn.our_state is h11.SEND_RESPONSE:
            super().send_400_response(TINY_CHUNKS if self.conn.too_many_tiny_chunks else msg)
        else:  # an answer is being sent, or has been sent
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; the time limit runs while no request is being answered."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        """Start the time limit of the next head. Parts of the head don't extend it."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_late)

    def _close_late(self) -> None:
        """Close a connection whose head is not complete in time."""
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        """End the time limit, because a head is complete or the connection is closed."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
