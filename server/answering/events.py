"""Answers as server-sent events: final beginnings while the answer grows, then the plain answer.

    event: partial    data: {"index": 0, "text": "..."}    the beginning of the answer to text `index`
    event: result     data: the plain answer
    event: error      data: {"error": "..."}               an error after the first event

(HTML standard, section 9.2.) An error within PLAIN_ERROR_SECONDS is a plain response with its own status.
Other contracts have other events: a subclass of Dialect.
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
from server.observing.access_log import shown_path
from server.observing.context import CANCELLED, FAILED, set_outcome
from server.state import state_of

logger = logging.getLogger(__name__)

Event = tuple[str, Any]  # name of an event, or "", and its data: bytes, or a value to write as JSON
# returns the plain answer; passes final beginnings to a listener
Answering = Callable[[OnPartial | None], Coroutine[Any, Any, dict[str, Any]]]

PLAIN_ERROR_SECONDS: Final = 1.0  # the response starts after this time, or with the first partial
# after this silence a comment keeps proxies from closing the connection
COMMENT_SECONDS: Final = 15.0
LAST_ID: Final = "end"  # id of the last event; an EventSource that reconnects with it gets status 204
STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
LINES_HEADER: Final = (b"content-type", b"application/x-ndjson")


class Dialect:
    """The events of one stream, in the format of a contract."""

    json_lines = False  # whether each event is a line of JSON, instead of a server-sent event

    def partial(self, partial: Partial) -> list[Event]:
        return [("partial", {"index": partial.index, "text": partial.text})]

    def result(self, answer: dict[str, Any]) -> list[Event]:
        return [("result", answer)]

    def error(self, error: ConvoyError) -> list[Event]:
        return [("error", {"error": str(error)})]


class Deltas:
    """The new part of each answer as it grows, for streams that send every word once."""

    def __init__(self) -> None:
        self._sent: dict[int, str] = {}

    def next(self, index: int, text: str) -> str:
        """Return the part of an answer that was not returned before.

        index: number of the answer's text.
        text: beginning of the answer; it begins with the text of the last call.
        """
        sent, self._sent[index] = self._sent.get(index, ""), text
        assert text.startswith(sent)
        return text[len(sent) :]


async def events(request: Request, work: Answering, dialect: Dialect | None = None) -> Response:
    """Return the response that streams an answer.

    request: request of the client; it gets status 204 if it has received the last event before.
    work: coroutine function that makes the answer; cancelled when the client disconnects.
    dialect: format of the events; None: Convoy's own.

    Raises errors of `work` within PLAIN_ERROR_SECONDS, before any event.
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
    """The running work, and the newest beginning of each answer that has not been sent."""

    def __init__(self, work: Answering, dialect: Dialect) -> None:
        self.dialect = dialect
        self.changed = asyncio.Event()
        self._waiting: dict[int, str] = {}
        self.task = asyncio.create_task(work(self._on_partial))
        self.task.add_done_callback(lambda _: self.changed.set())

    async def first(self) -> None:
        """Wait up to PLAIN_ERROR_SECONDS for the first partial. Raises errors of the work."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PLAIN_ERROR_SECONDS):
                await self.changed.wait()
        if self.task.done():
            self.task.result()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the events as bytes. Raises what `work` raises."""
        while not self.task.done() or self._waiting:
            try:
                # wait_for of Python 3.11 may swallow a cancellation
                async with asyncio.timeout(COMMENT_SECONDS):
                    await self.changed.wait()
            except TimeoutError:
                yield b"" if self.dialect.json_lines else b": still at work\n\n"
                continue
            # once the work is done, `changed` stays set and the loop does not wait again
            if not self.task.done():
                self.changed.clear()
            while self._waiting:
                index = next(iter(self._waiting))
                yield await self._wire(self.dialect.partial(Partial(index, self._waiting.pop(index))))
        yield await self._wire(self.dialect.result(self.task.result()), LAST_ID)

    async def error(self, error: ConvoyError) -> bytes:
        return await self._wire(self.dialect.error(error), LAST_ID)

    async def _wire(self, events: list[Event], number: str = "") -> bytes:
        """Return events in the format of the stream; events with a name get the number as id."""
        if self.dialect.json_lines:
            return b"".join([await json_bytes(data) + b"\n" for _, data in events])
        return await _wire(events, number)

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
        lines = feed.dialect.json_lines
        self.raw_headers = [LINES_HEADER, *STREAM_HEADERS[1:]] if lines else list(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole stream, and cancel the answer when the client disconnects."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await while_connected(self._request, self._write(send))
        except Cancelled:  # the client has disconnected
            set_outcome(CANCELLED)
        finally:
            await self._feed.close()

    async def _write(self, send: Send) -> None:
        """Send the events; an error is the last event, because the status has been sent."""
        try:
            async for chunk in self._feed.read():
                if chunk:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ConvoyError as error:
            state_of(self._request).metrics.record_rejection(error.code, self._request.scope)
            set_outcome(FAILED)
            body = await self._feed.error(error)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        except Exception:  # the response has started, so no middleware can answer
            logger.exception("%s failed", shown_path(self._request.url.path))
            set_outcome(FAILED)
            body = await self._feed.error(ConvoyError(INTERNAL))
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _wire(events: list[Event], number: str = "") -> bytes:
    """Return events in the text format of server-sent events.

    events: names and data of the events.
    number: id of the events that have a name; "": none.
    """
    blocks: list[bytes] = []
    for name, data in events:
        lines = [f"event: {name}".encode()] if name else []
        lines.append(b"data: " + (data if isinstance(data, bytes) else await json_bytes(data)))
        lines += [f"id: {number}".encode()] if name and number else []
        blocks.append(b"\n".join(lines) + b"\n\n")
    return b"".join(blocks)
