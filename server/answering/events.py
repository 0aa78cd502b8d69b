"""Answers as server-sent events: what is certain of them while they grow, then what the plain route answers.

    event: partial    data: {"index": 0, "text": "..."}    the beginning of the answer to text `index`
    event: result     data: the plain answer
    event: error      data: {"error": "..."}               what failed after the first event

(HTML standard, section 9.2.) A failure within a moment is a plain error with its own status. Other interfaces
say the same in other words: a Dialect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.api import Cancelled, ConvoyError, Partial
from server.answering.results import OnPartial
from server.errors import INTERNAL
from server.http.parameters import while_connected
from server.http.responses import json_bytes
from server.observing.context import CANCELLED, FAILED, set_outcome
from server.state import state_of

logger = logging.getLogger(__name__)

Event = tuple[str, Any]  # an event's name, "" for none, and its data; bytes as they are, else as JSON
# makes the plain answer, and tells a listener what is certain of it by then
Answering = Callable[[OnPartial | None], Coroutine[Any, Any, dict[str, Any]]]

PLAIN_ERROR_SECONDS: Final = 1.0  # in which a failure still gets its status
# seconds of silence after which a comment keeps proxies from closing the connection
COMMENT_SECONDS: Final = 15.0
LAST_ID: Final = "end"  # id of the last event: an EventSource that comes back with it is told to stay away
STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Dialect:
    """What is sent of a stream, in order. One for each stream."""

    def partial(self, partial: Partial) -> list[Event]:
        return [("partial", {"index": partial.index, "text": partial.text})]

    def result(self, answer: dict[str, Any]) -> list[Event]:
        return [("result", answer)]

    def error(self, error: ConvoyError) -> list[Event]:
        return [("error", {"error": str(error)})]


class Deltas:
    """What is new of each answer as it grows, for streams that tell every word once."""

    def __init__(self) -> None:
        self._told: dict[int, str] = {}

    def next(self, index: int, text: str) -> str:
        """Return what comes after what was told of an answer before.

        index: number of the answer's text.
        text: the answer so far; it begins with what was told.
        """
        told, self._told[index] = self._told.get(index, ""), text
        assert text.startswith(told)
        return text[len(told) :]


async def events(request: Request, work: Answering, dialect: Dialect | None = None) -> Response:
    """Make the response that streams an answer.

    request: the client's; one that has read the last event before gets no content.
    work: makes the answer; cancelled when the client goes.
    dialect: the words of the stream; None: ours.

    Raises what `work` raises within a moment, when nothing has been told yet.
    """
    if request.headers.get("last-event-id") == LAST_ID:
        return Response(status_code=204)
    feed = _Feed(work, dialect or Dialect())
    try:
        await while_connected(request, feed.first())
    except BaseException:
        await feed.close()
        raise
    return _Events(request, feed)


class _Feed:
    """The work under way, and the newest beginning of each text's answer that has not been sent."""

    def __init__(self, work: Answering, dialect: Dialect) -> None:
        self.dialect = dialect
        self.changed = asyncio.Event()
        self._waiting: dict[int, str] = {}
        self.task = asyncio.create_task(work(self._on_partial))
        self.task.add_done_callback(lambda _: self.changed.set())

    async def first(self) -> None:
        """Wait a moment for the first partial. Raises what has gone wrong by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PLAIN_ERROR_SECONDS):
                await self.changed.wait()
        if self.task.done():
            self.task.result()

    async def read(self) -> AsyncIterator[bytes]:
        """Events on the wire. Raises what `work` raises."""
        while not self.task.done() or self._waiting:
            try:
                async with asyncio.timeout(
                    COMMENT_SECONDS
                ):  # Python 3.11's wait_for may swallow a cancellation
                    await self.changed.wait()
            except TimeoutError:
                yield b": still at work\n\n"
                continue
            if not self.task.done():
                self.changed.clear()
            while self._waiting:
                index = next(iter(self._waiting))
                yield await _wire(self.dialect.partial(Partial(index, self._waiting.pop(index))))
        yield await _wire(self.dialect.result(self.task.result()), LAST_ID)

    async def error(self, error: ConvoyError) -> bytes:
        return await _wire(self.dialect.error(error), LAST_ID)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def _on_partial(self, partial: Partial) -> None:
        self._waiting[partial.index] = partial.text
        self.changed.set()


class _Events(Response):
    def __init__(self, request: Request, feed: _Feed) -> None:
        super().__init__()
        self._request, self._feed = request, feed
        self.raw_headers = list(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await while_connected(self._request, self._write(send))
        except Cancelled:  # the client has gone
            set_outcome(CANCELLED)
        finally:
            await self._feed.close()

    async def _write(self, send: Send) -> None:
        try:
            async for part in self._feed.read():
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except ConvoyError as error:
            state_of(self._request).metrics.rejections.labels(error.code).inc()
            set_outcome(FAILED)
            body = await self._feed.error(error)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        except Exception:  # too late for the gate to answer
            logger.exception("%s failed", self._request.url.path)
            set_outcome(FAILED)
            body = await self._feed.error(ConvoyError(INTERNAL))
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _wire(events: list[Event], number: str = "") -> bytes:
    """Events as they are sent.

    number: the id of events that have a name.
    """
    blocks: list[bytes] = []
    for name, data in events:
        lines = [f"event: {name}".encode()] if name else []
        lines.append(b"data: " + (data if isinstance(data, bytes) else await json_bytes(data)))
        lines += [f"id: {number}".encode()] if name and number else []
        blocks.append(b"\n".join(lines) + b"\n\n")
    return b"".join(blocks)
