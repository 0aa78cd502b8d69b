"""Return of freed memory to the operating system."""

from __future__ import annotations

import ctypes
import sys


def trim_heap() -> None:
    """Return freed memory that malloc keeps to the operating system, if the C library can do so."""
    trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
