"""Memory of the process that nobody uses, and the C library keeps."""

from __future__ import annotations

import ctypes
import sys


def trim_heap() -> None:
    """Give the system back what malloc keeps of freed memory for later; some C libraries keep none."""
    trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
