"""For tests that compare times. A shared machine stands still now and then, which proves nothing: its own
lateness is measured beside, processor time is compared where that will do, and what is found fails a test
only when three attempts in a row find it, or time without a processor is taken off."""

from __future__ import annotations

import gc
import math
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

ATTEMPTS: Final = 3
PULSE: Final = 0.002  # seconds that an idle thread sleeps
LITTLE: Final = 0.05  # seconds of which nothing is concluded


def thrice(attempt: Callable[[], str]) -> None:
    """Fail when each of three attempts finds a fault. attempt: returns what it has found, "" for nothing."""
    faults = []
    for _ in range(ATTEMPTS):
        fault = attempt()
        if not fault:
            return
        faults.append(fault)
    raise AssertionError(f"three times in a row: {'; '.join(faults)}")


class MachineLag:
    """How late this machine wakes a thread that has nothing to do, while the context lasts.

    longest: seconds.
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
    """Time that the host of this machine gave to others, of each processor by its name, until now.

    stat: the text of /proc/stat, whose eighth number of a processor it is; none on old kernels.
    """
    rows = [line.split() for line in stat.splitlines() if re.match(r"cpu\d", line)]
    return {row[0]: int(row[8]) / os.sysconf("SC_CLK_TCK") for row in rows if len(row) > 8}


class Starved:
    """How long the thread that asks, and those of a server's process, were ready to run and had to wait for a
    processor, and how long the host of this machine took a processor away: neither is a fault of theirs.
    Nothing where the system does not tell."""

    def __init__(self, *pids: int) -> None:
        """pids: of the server's processes; the main thread of each runs an event loop."""
        self._pids = pids

    def read(self) -> dict[str, float]:
        """Read the seconds of each thread and processor until now."""
        paths = [Path("/proc/thread-self/schedstat")]
        paths += [path for pid in self._pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        seconds = {}
        for path in paths:
            with suppress(OSError):  # a thread that has ended
                seconds[path.parent.name] = int(path.read_text("ascii").split()[1]) / 1e9
        with suppress(OSError):
            seconds |= stolen_seconds(Path("/proc/stat").read_text("ascii"))
        return seconds

    def since(self, before: dict[str, float]) -> float:
        """Sum up what the one that asks, the event loop, and one that it may have waited for have lost, and
        what one processor has.

        before: what `read` has returned then.
        """
        return self.between(before, self.read())

    def between(self, before: dict[str, float], after: dict[str, float]) -> float:
        """The same between two readings."""
        lost = {name: now - before.get(name, now) for name, now in after.items()}
        chain = sum(lost.pop(name, 0.0) for name in ("thread-self", *map(str, self._pids)))
        stolen = [lost.pop(name) for name in list(lost) if name.startswith("cpu")]
        return chain + max(lost.values(), default=0.0) + max(stolen, default=0.0)


def busy_seconds(*pids: int) -> float:
    """Return the processor time of all running threads of some processes so far; infinity without schedstat.

    pids: processes of this machine.
    """
    seconds = []
    for path in (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")):
        with suppress(OSError):  # the thread has ended
            seconds.append(int(path.read_text("ascii").split()[0]) / 1e9)
    return sum(seconds) if seconds else math.inf


def processor_seconds(work: Callable[..., object], *arguments: Any) -> float:
    """Of this thread, which is nearly the same on a busy machine.

    The collector of garbage stands still: a full look at all that other tests have left takes a third of a
    second. (To unfreeze what `tests/conftest.py` has frozen would make every later look as slow.)
    """
    gc.disable()
    try:
        began = time.thread_time()
        work(*arguments)
        return time.thread_time() - began
    finally:
        gc.enable()


def assert_slower_at_most(times: float, quick: Callable[[], object], slow: Callable[[], object]) -> None:
    """Whether `slow` takes at most so many times the processor time of `quick`."""

    def attempt() -> str:
        one, other = (min(processor_seconds(work) for _ in range(2)) for work in (quick, slow))
        return f"{other:.3f} s after {one:.3f} s" if other > times * one + LITTLE else ""

    thrice(attempt)


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Whether four times the size takes about four times the time; a quadratic one takes sixteen."""
    assert_slower_at_most(8.0, partial(work, size), partial(work, 4 * size))
