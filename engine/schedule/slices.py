"""Runs work that would block an event loop in another thread: in slices, in turns, and until a deadline.

Work is a generator that yields now and then. One thread runs all generators for a few milliseconds each, so
that long work does not delay other work until its end, and drops work that was cancelled. There is one thread
for the process, because Python runs one thread at a time: more threads would only delay the engines' threads.
It is one of the two mutable objects at module level (CONTRIBUTING.md).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from engine.errors import DeadlineExceeded

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]

TURN_SECONDS: Final = 0.002  # duration of a turn; it has at least one slice
# sleep between two turns. C code that releases the interpreter lock and takes it back at once, as numpy does,
# gets it before a waiting thread has woken up: only a sleep gives other threads their turn
PAUSE_SECONDS: Final = 0.000_05


@dataclass(eq=False, slots=True)
class _Work:
    """Work to run: a generator, the future of its value, and the context of its caller."""

    slices: Slices[Any]
    future: Future[Any] = field(default_factory=Future)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """Figures of the thread for metrics.

    waiting: number of works that wait for their turn.
    longest: longest processor time of a turn, in seconds.
    stalled: seconds since the start of the current turn; 0 if no work is running.
    """

    waiting: int
    longest: float
    stalled: float


class _Thread:
    """A thread that runs work in turns. It starts with the first work."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[_Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False
        self._turn_began: float | None = None
        self._longest = 0.0

    def figures(self) -> SliceFigures:
        """Return the figures of this thread."""
        began = self._turn_began
        stalled = time.monotonic() - began if began is not None else 0.0
        return SliceFigures(self._waiting.qsize(), self._longest, stalled)

    def put(self, work: _Work) -> None:
        """Run work in turns with other work. The first call starts the thread."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="convoy-slices", daemon=True).start()
        self._waiting.put(work)

    def _run(self) -> None:
        """Run all work, one turn of each after the other, forever."""
        while True:
            work = self._waiting.get()
            used, self._turn_began = time.thread_time(), time.monotonic()
            if work.future.cancelled():
                work.slices.close()
                ended = True
            else:
                ended = work.context.run(_turn, work)
            self._turn_began = None
            self._longest = max(self._longest, time.thread_time() - used)
            if not ended:
                self._waiting.put(work)
                time.sleep(PAUSE_SECONDS)


def _turn(work: _Work) -> bool:
    """Run slices of work for one turn; returns whether the work has ended."""
    end = time.monotonic() + TURN_SECONDS
    try:
        while time.monotonic() < end:
            next(work.slices)
    except StopIteration as done:
        if not work.future.cancelled():
            work.future.set_result(done.value)
        return True
    except BaseException as error:  # noqa: BLE001 - raised in the awaiting task
        if not work.future.cancelled():
            work.future.set_exception(error)
        return True
    return False


_THREAD: Final = _Thread()


def slice_figures() -> SliceFigures:
    """Return the figures of the thread that runs slices."""
    return _THREAD.figures()


async def in_slices(slices: Slices[T], deadline: float = math.inf, *, small: bool = False) -> T:
    """Run a generator outside of the event loop, and return its value.

    slices: generator; each `next` runs one slice.
    deadline: time.monotonic() at which the work is cancelled.
    small: the work is shorter than two switches of threads, and runs here at once.

    Raises DeadlineExceeded, and the errors of the generator. After the deadline, or when the awaiting task is
    cancelled, the work ends at its next yield.
    """
    if small:
        return at_once(slices)
    work = _Work(slices)
    _THREAD.put(work)
    limit = asyncio.timeout(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    try:
        async with limit:
            return await asyncio.wrap_future(work.future)
    except TimeoutError:
        if not limit.expired():
            raise  # the generator raised it, not the deadline
        raise DeadlineExceeded("the deadline passed while the request was being prepared") from None


async def in_turns(slices: Slices[T]) -> T:
    """Run a generator of ours in the event loop, which serves other tasks after each turn."""
    try:
        while True:
            end = time.monotonic() + TURN_SECONDS
            while time.monotonic() < end:
                next(slices)
            await asyncio.sleep(0)
    except StopIteration as done:
        value: T = done.value
        return value


def each(items: Iterable[Slices[T]]) -> Slices[list[T]]:
    """Run several generators, one after the other, and return their values."""
    values: list[T] = []
    for slices in items:
        values.append((yield from slices))
        yield
    return values


def at_once(slices: Slices[T]) -> T:
    """Run a generator in this thread, and return its value."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            value: T = done.value
            return value


def one_slice(function: Callable[..., T], *arguments: Any) -> Slices[T]:
    """Return a generator that calls a function as one slice."""
    yield
    return function(*arguments)
