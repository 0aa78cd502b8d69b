"""Memory of the process: glibc gives back what loading and large requests needed, and Python looks once at
what stays."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from engine.api import trim_heap

# mallopt(3). A fixed threshold: by default it grows with what has been freed, and large arrays then come
# from a heap that has no way back; their untouched pages would be resident too.
MALLOC_OPTIONS: Final = {
    "M_MMAP_THRESHOLD": (-3, 128 * 1024),
    "M_TRIM_THRESHOLD": (-1, 128 * 1024),
    "M_ARENA_MAX": (-8, 2),  # by default each thread gets a heap of its own, up to 8 for each core
}
STATM: Final = Path("/proc/self/statm")
TRIM_SECONDS: Final = 10.0  # between two looks at how much memory there is
TRIM_BYTES: Final = 32 << 20  # above the least so far that are worth looking for


@asynccontextmanager
async def trimming() -> AsyncIterator[None]:
    """Give the system back what large requests have left in the heap between small pieces that are in use; by
    itself the C library does so at the heap's end only."""
    task = asyncio.create_task(_trim(resident())) if STATM.exists() else None
    try:
        yield
    finally:
        if task:
            task.cancel()


async def _trim(least: int) -> None:
    """least: bytes that there were at the start."""
    seen = least
    while True:
        await asyncio.sleep(TRIM_SECONDS)
        now = resident()
        if now > least + TRIM_BYTES and now != seen:  # something has happened since the last time
            await asyncio.to_thread(trim_heap)
        seen = resident()
        least = min(least, seen)


def resident() -> int:
    """Count the bytes of this process that are in memory."""
    return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def spare_collector() -> None:
    """Have full collections, which stop all threads, look at nothing that is there by now. What goes again
    without a cycle, as models do, is freed all the same."""
    gc.collect()
    gc.freeze()


def thrifty() -> None:
    """Set this up for the process: after its imports, before models are loaded."""
    spare_collector()
    mallopt = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # the C library is another
        return
    for option, value in MALLOC_OPTIONS.values():
        mallopt(option, value)
