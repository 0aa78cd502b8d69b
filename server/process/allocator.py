"""Memory of the process: glibc returns free memory to the system, and Python's collector skips objects that
stay."""

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

# mallopt(3). The thresholds are fixed: by default they grow with freed blocks, and large arrays then come
# from a heap that does not shrink; their untouched pages would be resident too.
MALLOC_OPTIONS: Final = {
    "M_MMAP_THRESHOLD": (-3, 128 * 1024),
    "M_TRIM_THRESHOLD": (-1, 128 * 1024),
    "M_ARENA_MAX": (-8, 2),  # by default each thread gets a heap of its own, up to 8 for each core
}
STATM: Final = Path("/proc/self/statm")
TRIM_SECONDS: Final = 10.0  # seconds between two checks of the memory in use
TRIM_BYTES: Final = 32 << 20  # growth above the least memory so far that starts a trim


@asynccontextmanager
async def trimming() -> AsyncIterator[None]:
    """Return free memory inside the heap to the system now and then. The C library itself only returns the
    end of the heap."""
    task = asyncio.create_task(_trim(resident())) if STATM.exists() else None
    try:
        yield
    finally:
        if task:
            task.cancel()


async def _trim(least: int) -> None:
    """Trim the heap each time the process has grown by TRIM_BYTES above its least size in bytes."""
    seen = least
    while True:
        await asyncio.sleep(TRIM_SECONDS)
        now = resident()
        if now > least + TRIM_BYTES and now != seen:  # an equal size: the process was idle
            await asyncio.to_thread(trim_heap)
        seen = resident()
        least = min(least, seen)


def resident() -> int:
    """Return the number of bytes of this process that are in memory."""
    return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def spare_collector() -> None:
    """Exclude all present objects from full collections, which stop all threads. Objects without reference
    cycles, such as models, are still freed."""
    gc.collect()
    gc.freeze()


def thrifty() -> None:
    """Set up collector and allocator. Call it after the imports and before models are loaded."""
    spare_collector()
    mallopt = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # the C library is not glibc
        return
    for option, value in MALLOC_OPTIONS.values():
        mallopt(option, value)
