"""Functions to decode from an event loop: they submit to an engine's thread and await its replies."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, TypeAlias

from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import Slices, each, in_slices, in_turns, one_slice
from engine.types import DecodeJob, DecodeOptions, Outcome, Request, Result

logger = logging.getLogger(__name__)

# called with the index of a job and its certain target tokens so far, or at the end its result
Watch = Callable[[int, list[int] | Result], None]
Update: TypeAlias = list[int] | Outcome  # certain tokens of a job, or its outcome
INLINE_JOBS: Final = 64  # largest number of jobs that the event loop submits itself


async def generate(
    engine: AnyEngine, source: list[int], options: DecodeOptions, deadline: float = math.inf
) -> Result:
    """Decode one source.

    engine: running engine.
    source: source tokens with end-of-sentence.
    options: decoding options.
    deadline: time.monotonic() after which the request fails.

    Raises a ConvoyError. Cancelling the awaiting task cancels the request.
    """
    return (await generate_group(engine, [DecodeJob(source, options)], deadline))[0]


async def generate_group(
    engine: AnyEngine,
    jobs: Sequence[DecodeJob],
    deadline: float = math.inf,
    watch: Watch | None = None,
    *,
    follow_up: bool = False,
) -> list[Result]:
    """Decode several sources as one group, all accepted or none; returns results in the order of the jobs.

    Equal jobs are decoded once, unless they draw samples. The first error is raised and cancels the other
    jobs; cancelling the awaiting task cancels all jobs.

    engine: running engine.
    jobs: sources with their options.
    deadline: time.monotonic() after which the jobs fail.
    watch: function that is called in the event loop with the index of a job and its certain tokens or its
        result. A slow event loop gets the newest tokens only. Must not raise; may be called after the end.
    follow_up: parameter of `Engine.submit`.
    """
    if not jobs:
        return []
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    results: dict[int, Result] = {}
    equal = await in_turns(_equal_jobs(jobs))

    def settle(index: int, update: Update) -> None:
        """Handle an update of the jobs `equal[index]`; the last result or the first error ends the future."""
        if watch and isinstance(update, list | Result):
            for number in equal[index]:
                watch(number, update)
        if future.done() or isinstance(update, list):
            return
        if not isinstance(update, Result):
            future.set_exception(update)
            return
        results.update(dict.fromkeys(equal[index], update))
        if len(results) == len(jobs):
            future.set_result(None)

    updates = UpdateQueue(loop, settle)

    def request_of(i: int) -> Request:
        """Return the request for the first of a group of equal jobs."""
        put = partial(updates.put, i)
        return Request(*jobs[equal[i][0]], put, deadline, put if watch else None)

    requests = await in_turns(each(one_slice(request_of, i) for i in range(len(equal))))
    try:
        submitted = one_slice(partial(engine.submit, requests, follow_up=follow_up))
        await in_slices(submitted, deadline, small=len(jobs) <= INLINE_JOBS)
        await future
    finally:
        if len(results) < len(jobs):
            engine.cancel(requests)
            if future.done() and not future.cancelled():
                future.exception()  # marks an error that came during the submission as retrieved
    return [results[i] for i in range(len(jobs))]


def _equal_jobs(jobs: Sequence[DecodeJob]) -> Slices[list[list[int]]]:
    """Group the indexes of jobs with equal answers, in the order of the first index of each group.

    In slices of a job.
    """
    equal: dict[Hashable, list[int]] = {}
    for number, job in enumerate(jobs):
        equal.setdefault(equality_key(*job) or number, []).append(number)
        yield
    return list(equal.values())


def equality_key(source: Sequence[int], options: DecodeOptions) -> Hashable | None:
    """Return a key that jobs with equal answers share; None for a job that draws samples.

    source: source tokens of the job.
    options: decoding options of the job.
    """
    return None if options.draws else (tuple(source), options)


class UpdateQueue:
    """Passes updates of jobs from any thread to a function in the event loop.

    The loop is woken once for all updates that wait. A newer update of a job replaces a waiting one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Callable[[int, Update], None]) -> None:
        self._loop, self._handle, self._thread = loop, handle, threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: dict[int, Update] = {}

    def put(self, index: int, update: Update) -> None:
        """Pass on certain tokens of a job, or its outcome; at once if called in the event loop's thread."""
        with self._lock:
            first = not self._waiting
            self._waiting[index] = update
        if threading.get_ident() == self._thread and not self._loop.is_closed():
            self._handle_all()
        elif first:
            _call_soon(self._loop, self._handle_all)

    def _handle_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for index, update in waiting.items():
            self._handle(index, update)


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed, so that nothing awaits the answer
        logger.debug("an answer came after its event loop was closed")
