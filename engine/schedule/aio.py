"""The bridge between the engine's thread and an event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import in_slices, one_slice
from engine.types import DecodeJob, DecodeOptions, Outcome, Request, Result

logger = logging.getLogger(__name__)

# called with the number of a job and its target tokens that are certain by now, or in the end its result
Watch = Callable[[int, list[int] | Result], None]
INLINE_JOBS: Final = 64  # that the event loop itself hands over


async def generate(
    engine: AnyEngine, source: list[int], options: DecodeOptions, deadline: float = math.inf
) -> Result:
    """Decode one source.

    engine: a running one.
    source: tokens, the last of which is end-of-sentence.
    options: how it is decoded.
    deadline: a time.monotonic().

    Raises what `submit` raises and any ConvoyError.

    Cancelling the awaiting task cancels the request.
    """
    return (await generate_group(engine, [DecodeJob(source, options)], deadline))[0]


async def generate_group(
    engine: AnyEngine,
    jobs: Sequence[DecodeJob],
    deadline: float = math.inf,
    watch: Watch | None = None,
    *,
    again: bool = False,
) -> list[Result]:
    """Decode several sources as one group, all accepted or none; results in the order of the jobs.

    Equal jobs are decoded once, but for those that draw samples. The first failure is raised and cancels the
    others, and so does cancelling the awaiting task.

    engine: a running one.
    jobs: the sources, each with its options.
    deadline: a time.monotonic().
    watch: is called in the event loop with the number of a job and its certain tokens or its result. An event
        loop that is slower than the engine hears of the newest tokens only. Must not raise, and may be called
        after the end.
    again: as of `Engine.submit`.
    """
    if not jobs:
        return []
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    results: dict[int, Result] = {}
    equal = _equal_jobs(jobs)

    def settle(index: int, news: list[int] | Outcome) -> None:
        if watch and isinstance(news, list | Result):
            for number in equal[index]:
                watch(number, news)
        if future.done() or isinstance(news, list):
            return
        if not isinstance(news, Result):
            future.set_exception(news)
            return
        results.update(dict.fromkeys(equal[index], news))
        if len(results) == len(jobs):
            future.set_result(None)

    inbox = Inbox(loop, settle)
    requests = list[Request]()
    for i, (number, *_) in enumerate(equal):
        put = partial(inbox.put, i)
        requests.append(Request(*jobs[number], put, deadline, put if watch else None))
    try:
        submitted = one_slice(partial(engine.submit, requests, again=again))
        await in_slices(submitted, deadline, small=len(jobs) <= INLINE_JOBS)
        await future
    finally:
        if len(results) < len(jobs):
            engine.cancel(requests)
            if future.done() and not future.cancelled():
                future.exception()  # a failure that came while the others were handed over
    return [results[i] for i in range(len(jobs))]


def _equal_jobs(jobs: Sequence[DecodeJob]) -> list[list[int]]:
    """Numbers of jobs, those together whose answers are equal; in the order of the first of each."""
    equal: dict[Hashable, list[int]] = {}
    for number, job in enumerate(jobs):
        equal.setdefault(equality_key(*job) or number, []).append(number)
    return list(equal.values())


def equality_key(source: Sequence[int], options: DecodeOptions) -> Hashable | None:
    """Return what jobs with equal answers have in common; None where samples are drawn, which differ.

    source: tokens of the job.
    options: how it is decoded.
    """
    return None if options.draws else (tuple(source), options)


class Inbox:
    """Passes news of jobs on to a function in the event loop, woken once for what comes together from another
    thread.

    Newer news of a job replace what the loop has not taken yet.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tell: Callable[[int, list[int] | Outcome], None]
    ) -> None:
        self._loop, self._tell, self._thread = loop, tell, threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: dict[int, list[int] | Outcome] = {}

    def put(self, index: int, news: list[int] | Outcome) -> None:
        """Pass on certain tokens of a job, or its outcome. For any thread."""
        with self._lock:
            first = not self._waiting
            self._waiting[index] = news
        if threading.get_ident() == self._thread and not self._loop.is_closed():
            self._take()
        elif first:
            _soon(self._loop, self._take)

    def _take(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for index, news in waiting.items():
            self._tell(index, news)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed: nobody waits any more
        logger.debug("an answer came after its event loop was closed")
