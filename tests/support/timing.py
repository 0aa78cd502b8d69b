"""Helpers of tests that compare times on a shared machine, which may pause at any moment.

Tests compare processor time where possible, measure the lateness of the machine itself, subtract time without
a processor, or fail only if three attempts in a row find the fault. Bounds in seconds are `SLACK` times
as long except in thorough runs.
"""

from __future__ import annotations

import gc
import math
import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from tests.support.thorough import THOROUGH

ATTEMPTS: Final = 3
SLACK: Final = 1.0 if THOROUGH else 4.0  # the faults that the bounds are for took 16 to 160 times as long
PULSE: Final = 0.002  # seconds that an idle thread sleeps
# columns of schedstat: nanoseconds on a processor, and ready without a processor
RUNNING, WAITING = 0, 1
LITTLE: Final = 0.05  # seconds of difference that are ignored


def thrice(attempt: Callable[[], str]) -> None:
    """Raise AssertionError if each of three attempts finds a fault.

    attempt: function that returns a description of the fault, "" for none.
    """
    faults = []
    for _ in range(ATTEMPTS):
        fault = attempt()
        if not fault:
            return
        faults.append(fault)
    raise AssertionError(f"three times in a row: {'; '.join(faults)}")


class MachineLag:
    """A context that measures how late this machine wakes an idle thread.

    longest: seconds of the worst delay.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            due = time.monotonic() + PULSE
            time.sleep(PULSE)
            self.longest = max(self.longest, time.monotonic() - due)


def stolen_seconds(stat: str) -> dict[str, float]:
    """Return the seconds that the host of this virtual machine gave to others so far, by processor.

    stat: text of /proc/stat. The eighth number of a processor is its stolen time; old kernels lack it.
    """
    rows = [line.split() for line in stat.splitlines() if re.match(r"cpu\d", line)]
    return {row[0]: int(row[8]) / os.sysconf("SC_CLK_TCK") for row in rows if len(row) > 8}


def _threads(pids: Iterable[int]) -> list[Path]:
    """Return the folder of each thread of some processes."""
    return [thread for pid in pids for thread in Path(f"/proc/{pid}/task").glob("*")]


def _schedstat(threads: Iterable[Path], column: int) -> dict[str, float]:
    """Return the seconds of a column of schedstat for each thread that still runs, by thread id."""
    seconds = {}
    for thread in threads:
        with suppress(OSError):  # the thread has ended, or the system has no schedstat
            seconds[thread.name] = int((thread / "schedstat").read_text("ascii").split()[column]) / 1e9
    return seconds


class Starved:
    """Measures time that a request lost without a fault of the server: the calling thread and the server's
    threads were ready to run and had no processor, or the host took a processor away. 0 if the system lacks
    the figures."""

    def __init__(self, *pids: int) -> None:
        """pids: the server's processes; the main thread of each runs an event loop."""
        self._pids = pids

    def read(self) -> dict[str, float]:
        """Return the lost seconds of each thread and processor so far."""
        seconds = _schedstat([Path("/proc/thread-self"), *_threads(self._pids)], WAITING)
        with suppress(OSError):
            seconds |= stolen_seconds(Path("/proc/stat").read_text("ascii"))
        return seconds

    def since(self, before: dict[str, float]) -> float:
        """Return the seconds lost since a reading: those of the calling thread, of the event loops, of the
        one other thread that lost most, and of the one processor that lost most.

        before: an earlier result of `read`.
        """
        return self.between(before, self.read())

    def between(self, before: dict[str, float], after: dict[str, float]) -> float:
        """Return the seconds lost between two results of `read`; see `since`."""
        lost = {name: now - before.get(name, now) for name, now in after.items()}
        chain = sum(lost.pop(name, 0.0) for name in ("thread-self", *map(str, self._pids)))
        stolen = [lost.pop(name) for name in list(lost) if name.startswith("cpu")]
        return chain + max(lost.values(), default=0.0) + max(stolen, default=0.0)


def thread_seconds(*pids: int) -> dict[str, float]:
    """Return the processor time of each running thread of some processes so far, by thread id.

    pids: processes of this machine.
    """
    return _schedstat(_threads(pids), RUNNING)


def busiest_seconds(before: dict[str, float], after: dict[str, float]) -> float:
    """Return the processor time of the busiest thread between two results of `thread_seconds`.

    before: the earlier result.
    after: the later result. Infinity is returned if it is empty, on systems without schedstat.
    """
    return max((now - before.get(name, 0.0) for name, now in after.items()), default=math.inf)


def slowness() -> float:
    """Return the factor of bounds in seconds: the time of `host_work.yardstick` over its time on a Zen 4, but
    at least 1, times `SLACK`."""
    from loadtest.engine.host_work import USUAL_SECONDS, yardstick

    return SLACK * max(1.0, statistics.median(yardstick() for _ in range(100)) / USUAL_SECONDS)


def processor_seconds(work: Callable[..., object], *arguments: Any) -> float:
    """Return the processor time of a call in this thread. It is nearly the same on a busy machine.

    The garbage collector is off: a full collection of the objects of other tests takes a third of a second.
    (Unfreezing the objects that `tests/conftest.py` has frozen would make every later collection as slow.)
    """
    gc.disable()
    try:
        began = time.thread_time()
        work(*arguments)
        return time.thread_time() - began
    finally:
        gc.enable()


def assert_takes_at_most(seconds: float, work: Callable[[], object]) -> None:
    """Raise AssertionError if three calls take more processor time.

    seconds: allowed time on a processor as fast as a Zen 4, about ten times the usual time.
    work: function to call.
    """

    def attempt() -> str:
        used, allowed = processor_seconds(work), seconds * slowness()
        return f"{used:.3f} s, {allowed:.3f} s are allowed" if used > allowed else ""

    thrice(attempt)


def assert_slower_at_most(times: float, quick: Callable[[], object], slow: Callable[[], object]) -> None:
    """Raise AssertionError if `slow` takes more than `times` the processor time of `quick`."""

    if processor_seconds(slow) <= times * processor_seconds(quick) + LITTLE:
        return

    def attempt() -> str:
        one, other = (min(processor_seconds(work) for _ in range(2)) for work in (quick, slow))
        return f"{other:.3f} s after {one:.3f} s" if other > times * one + LITTLE else ""

    thrice(attempt)


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Raise AssertionError if eight times the size takes 24 times the time; quadratic work takes 64."""
    assert_slower_at_most(24.0, partial(work, size), partial(work, 8 * size))
