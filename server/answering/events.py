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
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.api import (
    Cancelled,
    ConvoyError,
    MarkedText,
    Partial,
    Service,
    TextOptions,
    TextResult,
    in_slices,
)
from server.cache import keys_of, repeatable
from server.context import CANCELLED, FAILED, set_outcome
from server.errors import INTERNAL
from server.parameters import while_connected
from server.responses import json_bytes
from server.state import AppState, state_of

logger = logging.getLogger(__name__)

OnPartial = Callable[[Partial], None]
Event = tuple[str, Any]  # an event's name, "" for none, and its data
Answering = Callable[
    [OnPartial | None], Coroutine[Any, Any, dict[str, Any]]
]  # the plain answer; tells of it, if asked

INLINE: Final = 20  # texts and phrases whose digests are made in the event loop itself
MOMENT: Final = 1.0  # seconds in which a failure still gets its status
ALIVE: Final = 15.0  # seconds of silence after which a comment keeps proxies from closing the connection
LAST: Final = "end"  # id of the last event: an EventSource that comes back with it is told to stay away
HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Dialect:
    """What is sent of a stream, in order. One for each stream."""

    def partial(self, partial: Partial) -> Event | None:
        return "partial", {"index": partial.index, "text": partial.text}

    def result(self, answer: dict[str, Any]) -> Event | None:
        return "result", answer

    def error_event(self, message: str) -> Event:
        return "error", {"error": message}


async def answer_json(work: Answering) -> bytes:
    """Return the plain answer, as JSON."""
    return await json_bytes(await work(None))


async def results_of(
    state: AppState,
    model: str,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None = None,
) -> list[TextResult]:
    """Do as `Service.run`, or with `on_partial` the same by `Service.stream`.

    What the cache has is not computed again, and of it nothing is told before the end.
    """
    cache, infos = state.cache, state.service.behind(model) if state.cache else []
    if cache is None or not repeatable(infos, options):
        return await _run_or_stream(state.service, model, texts, options, deadline, on_partial)
    small = len(texts) * (1 + len(options.glossary) + len(options.ignore)) <= INLINE
    keys = await in_slices(keys_of(model, infos, texts, options), deadline, small=small)
    results = [cache.get(key) for key in keys]
    missing = [number for number, result in enumerate(results) if result is None]
    state.metrics.hits.labels(model).inc(len(texts) - len(missing))
    state.metrics.misses.labels(model).inc(len(missing))
    if missing:
        misses, listener = (
            [texts[n] for n in missing],
            renumber(on_partial, missing) if on_partial else None,
        )
        new = await _run_or_stream(state.service, model, misses, options, deadline, listener)
        same = state.service.behind(model) == infos  # else a reload came between: whose answer is it?
        for number, result in zip(missing, new, strict=True):
            results[number] = result
            if same:
                cache.put(keys[number], result)
    return [result for result in results if result is not None]


def renumber(on_partial: OnPartial, numbers: Sequence[int]) -> OnPartial:
    """Make a listener for texts that are some of others: it tells of them by their numbers among those."""
    return lambda partial: on_partial(Partial(numbers[partial.index], partial.text))


async def _run_or_stream(
    service: Service,
    model: str,
    texts: Sequence[str | MarkedText],
    options: TextOptions,
    deadline: float,
    on_partial: OnPartial | None,
) -> list[TextResult]:
    if on_partial is None:
        return await service.run(model, texts, options, deadline)
    answers: list[TextResult] = []
    async with aclosing(service.stream(model, texts, options, deadline)) as results:
        async for event in results:
            if isinstance(event, Partial):
                on_partial(event)
            else:
                answers = event
    return answers


async def events(request: Request, work: Answering, dialect: Dialect | None = None) -> Response:
    """Make the response that streams `work`; it is cancelled when the client goes.

    A request that says it has read the last event before gets no content. Raises what `work` raises within a
    moment, when it has told nothing yet.
    """
    if request.headers.get("last-event-id") == LAST:
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
            async with asyncio.timeout(MOMENT):
                await self.changed.wait()
        if self.task.done():
            self.task.result()

    async def read(self) -> AsyncIterator[bytes]:
        """Events on the wire. Raises what `work` raises."""
        while not self.task.done() or self._waiting:
            try:
                async with asyncio.timeout(ALIVE):  # Python 3.11's wait_for may swallow a cancellation
                    await self.changed.wait()
            except TimeoutError:
                yield b": still at work\n\n"
                continue
            if not self.task.done():
                self.changed.clear()
            while self._waiting:
                index = next(iter(self._waiting))
                yield await _event(self.dialect.partial(Partial(index, self._waiting.pop(index))))
        yield await _event(self.dialect.result(self.task.result()), LAST)

    async def error_event(self, message: str) -> bytes:
        return await _event(self.dialect.error_event(message), LAST)

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
        self.raw_headers = list(HEADERS)

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
            await send(
                {
                    "type": "http.response.body",
                    "body": await self._feed.error_event(str(error)),
                    "more_body": True,
                }
            )
        except Exception:  # too late for the gate to answer
            logger.exception("%s failed", self._request.url.path)
            set_outcome(FAILED)
            body = await self._feed.error_event(INTERNAL)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _event(event: Event | None, number: str = "") -> bytes:
    """number: the id of an event that has a name."""
    if event is None:
        return b""
    name, data = event
    line = b"data: " + await json_bytes(data)
    lines = [f"event: {name}".encode(), line] if name else [line]
    return b"\n".join([*lines, *([f"id: {number}".encode()] if name and number else []), b"", b""])
