"""Work that would hold an event loop for long, done beside it: in slices, by turns, and no longer than asked.

Work is a generator that yields now and then. One thread drives all of them for a few milliseconds each, so
that a long piece of work makes none of the others wait for its end, and leaves what nobody awaits any more.
There is one thread for the process, because Python runs one at a time: more would only make the engines'
threads wait longer. It is one of the two things of the house at module level that change (CONTRIBUTING.md).
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

TURN_SECONDS: Final = 0.002  # that one piece of work has the thread; at least one slice
# between two turns. Who gives the interpreter up in C and wants it back at once, as numpy does, gets it
# before a thread that waits has woken, whose own time-out then never comes: only sleep lets others have it
PAUSE_SECONDS: Final = 0.000_05


@dataclass(eq=False, slots=True)
class _Work:
    slices: Slices[Any]
    future: Future[Any] = field(default_factory=Future)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


class _Thread:
    """Drives work by turns, from when there is some."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[_Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def put(self, work: _Work) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="convoy-slices", daemon=True).start()
        self._waiting.put(work)

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            if work.future.cancelled():
                work.slices.close()
            elif not work.context.run(_turn, work):
                self._waiting.put(work)
                time.sleep(PAUSE_SECONDS)


def _turn(work: _Work) -> bool:
    """Whether the work is over, well or not."""
    end = time.monotonic() + TURN_SECONDS
    try:
        while time.monotonic() < end:
            next(work.slices)
    except StopIteration as done:
        if not work.future.cancelled():
            work.future.set_result(done.value)
        return True
    except BaseException as error:  # noqa: BLE001 - the awaiting task gets it
        if not work.future.cancelled():
            work.future.set_exception(error)
        return True
    return False


_THREAD: Final = _Thread()


async def in_slices(slices: Slices[T], deadline: float = math.inf, *, small: bool = False) -> T:
    """Run a generator outside of this event loop, and return its value.

    slices: the work; each `next` of it is one slice.
    deadline: a time.monotonic().
    small: whether the work takes no longer than a thread's switch and back: it is then done here, at once.

    Raises DeadlineExceeded when it passes, and what the generator raises. Then, and when the awaiting task is
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
            raise  # the generator's own
        raise DeadlineExceeded("the deadline passed while the request was being prepared") from None


def each(items: Iterable[Slices[T]]) -> Slices[list[T]]:
    """Do several pieces of work, one after the other, and return their values."""
    values: list[T] = []
    for slices in items:
        values.append((yield from slices))
        yield
    return values


def at_once(slices: Slices[T]) -> T:
    """Run a generator here and now, and return its value."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            value: T = done.value
            return value


def one_slice(function: Callable[..., T], *arguments: Any) -> Slices[T]:
    """Call a function as a slice of its own."""
    yield
    return function(*arguments)
