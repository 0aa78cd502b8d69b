"""Measures the callbacks of an event loop in another process by their processor time.

The time of a callback is the least time that all other requests wait for it. It is nearly the same on a busy
machine, while the wait itself depends on other processes.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import threading
import time
from pathlib import Path
from typing import Final

SIZE: Final = struct.calcsize("d")


class LongestCallback:
    """Seconds of processor time of the longest callback, in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        """path: file to create, or to share with another process."""
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)

    @property
    def seconds(self) -> float:
        """Longest time since the last reset."""
        found: float = struct.unpack_from("d", self._memory)[0]
        return found

    @seconds.setter
    def seconds(self, value: float) -> None:
        struct.pack_into("d", self._memory, 0, value)

    def record(self) -> None:
        """Measure all callbacks of the main thread's event loop in this process."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            used = time.thread_time() - began
            if used > self.seconds and threading.current_thread() is threading.main_thread():
                self.seconds = used

        asyncio.Handle._run = timed  # type: ignore[method-assign]
