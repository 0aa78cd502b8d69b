"""Facts about the processor that runs the tests."""

import platform
from pathlib import Path


def has_vnni() -> bool:
    """Return whether oneDNN and MKL multiply int8 exactly: on every processor except x86-64 without VNNI."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    info = Path("/proc/cpuinfo")
    flags = info.read_text("ascii").split() if info.is_file() else []
    return "avx512_vnni" in flags or "avx_vnni" in flags
