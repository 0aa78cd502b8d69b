"""An engine that asks an upstream: one request for each source, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from engine.errors import (
    ConvoyError,
    DeadlineExceeded,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
)
from engine.repository.upstreams.asking import Asker
from engine.repository.upstreams.settings import Upstream
from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats
from engine.text.tokenizers.characters import read_source
from engine.types import Outcome, Request, Result, Timings

logger = logging.getLogger(__name__)

QUEUE_CHARACTERS: Final = 1 << 20


class UpstreamEngine:
    """Implements `engine.schedule.any_engine.AnyEngine`; tokens are code points."""

    def __init__(self, upstream: Upstream) -> None:
        self.settings = EngineSettings(QUEUE_CHARACTERS, QUEUE_CHARACTERS, f"upstream {upstream.name}")
        self.after_step: Callable[[], None] = _nothing
        self._upstream = upstream
        self._lock = threading.Lock()  # guards `_open`, `_waiting` and the counters
        self._open = False
        self._waiting: dict[Request, int] = {}  # accepted requests with their tokens
        self._active = self._answered = self._failed = self._tokens = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asker = Asker(upstream)
        self._free = asyncio.Semaphore(upstream.parallel)
        self._stopped = asyncio.Event()
        self._tasks: dict[Request, asyncio.Task[None]] = {}  # of the loop's thread
        self._thread = threading.Thread(target=self._serve, name=self.settings.name, daemon=True)

    @property
    def healthy(self) -> bool:
        return self._open and self._thread.is_alive()

    @property
    def device_lost(self) -> bool:
        return False

    @property
    def stall_seconds(self) -> float:
        return 0.0

    def start(self) -> None:
        self._loop, self._open = asyncio.new_event_loop(), True
        self._thread.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Accept no more requests. See `Engine.stop`."""
        with self._lock:
            self._open = False
            requests = [] if drain else list(self._waiting)
        for request in requests:
            self._settle(request, Stopping())
        if self._thread.is_alive():
            self._call(self._cancel_tasks, requests)
            self._call(self._stopped.set)
            self._thread.join(timeout)

    def release(self) -> None:
        """Free nothing: the engine has no model in memory."""

    def submit(self, group: Sequence[Request], *, follow_up: bool = False) -> None:
        """Accept a group of requests, or raise a ConvoyError. See `Engine.submit`."""
        name = self._upstream.name
        if any(request.options.prefix for request in group):
            raise InvalidRequest(f"the upstream {name!r} can't continue a prefix: leave it out")
        self._asker.check(min((request.deadline for request in group), default=math.inf))
        sizes = [len(request.source) for request in group]
        with self._lock:
            if not self._open:
                raise Stopping()
            queued = sum(self._waiting.values())
            if not follow_up and queued and queued + sum(sizes) > self.settings.queue_tokens:
                raise Overloaded(f"the queue of the upstream {name!r} is full")
            self._waiting.update(zip(group, sizes, strict=True))
            self._call(self._begin, list(group))

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel requests. They get no reply."""
        cancelled = list(requests)
        with self._lock:
            for request in cancelled:
                request.cancelled = True
                self._waiting.pop(request, None)
        self._call(self._cancel_tasks, cancelled)

    def stats(self) -> Stats:
        """Return a snapshot for metrics."""
        with self._lock:
            return Stats(
                waiting_requests=max(0, len(self._waiting) - self._active),
                waiting_tokens=sum(self._waiting.values()),
                active=(self._active,),
                slots=(self._upstream.parallel,),
                steps=0,
                step_seconds=0.0,
                encoded_requests=0,
                encode_seconds=0.0,
                tokens=self._tokens,
                answered=self._answered,
                failed=self._failed,
                upstream=self._asker.stats(),
            )

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop's thread, unless the loop has ended."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            logger.debug("%s had ended", self.settings.name)

    def _serve(self) -> None:
        """Run the event loop until `stop`; accepted requests are finished first."""
        loop = self._loop
        assert loop
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopped.wait()
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        await self._asker.close()

    def _begin(self, group: Sequence[Request]) -> None:
        for request in group:
            if not request.cancelled:
                task = self._tasks[request] = asyncio.ensure_future(self._run(request))
                task.add_done_callback(partial(self._forget, request))

    def _forget(self, request: Request, _: asyncio.Task[None]) -> None:
        del self._tasks[request]

    def _cancel_tasks(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if task := self._tasks.get(request):
                task.cancel()

    async def _run(self, request: Request) -> None:
        """Answer a request."""
        outcome: Outcome
        late = request.deadline - time.monotonic()
        try:
            async with asyncio.timeout(None if late == math.inf else late), self._free:
                self._active += 1
                try:
                    outcome = await self._answer(request)
                finally:
                    self._active -= 1
        except TimeoutError:
            outcome = DeadlineExceeded("the deadline passed before the upstream had answered")
        except ConvoyError as error:
            outcome = error
        except Exception:
            logger.exception("%s failed", self.settings.name)
            outcome = ExecutorFailed(f"the upstream {self._upstream.name!r} failed: see the server's log")
        self._settle(request, outcome)

    async def _answer(self, request: Request) -> Result:
        began, source = time.monotonic(), read_source(request.source)
        progress = partial(self._progress, request) if request.progress else None
        answer = await self._asker.answer(source, request.options, request.deadline, progress)
        return Result([answer], Timings(began - request.arrived, 0.0, time.monotonic() - began, 0))

    def _progress(self, request: Request, tokens: list[int]) -> None:
        """Pass the certain tokens of a request on."""
        if request.progress and not request.cancelled:
            request.progress(tokens)
            self.after_step()

    def _settle(self, request: Request, outcome: Outcome) -> None:
        """Reply to a request that has no reply yet and is not cancelled."""
        with self._lock:
            if self._waiting.pop(request, None) is None:
                return
            if isinstance(outcome, Result):
                self._answered += 1
                self._tokens += len(outcome.hypotheses[0].tokens)
            else:
                self._failed += 1
        request.reply(outcome)
        self.after_step()


def _nothing() -> None:
    pass
