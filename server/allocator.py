"""Memory of the process: glibc gives back what loading needed, and Python looks once at what stays."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

# mallopt(3). A fixed threshold: by default it grows with what has been freed, and large arrays then come
# from a heap that has no way back; their untouched pages would be resident too.
OPTIONS: Final = {
    "M_MMAP_THRESHOLD": (-3, 128 * 1024),
    "M_TRIM_THRESHOLD": (-1, 128 * 1024),
    "M_ARENA_MAX": (-8, 2),  # by default each thread gets a heap of its own, up to 8 for each core
}


def thrifty() -> None:
    """Set this up for the process: after its imports, before models are loaded (those may go again)."""
    gc.collect()
    gc.freeze()  # a full collection stops all threads for as long as it looks at every object
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # the C library is another
        return
    for option, value in OPTIONS.values():
        mallopt(option, value)
