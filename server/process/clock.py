"""A clock for stored records that ignores changes of the machine's clock."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def steady(folder: Path | None) -> Callable[[], float]:
    """Return a clock in seconds as of time.time(), set once and then counted by the monotonic clock.

    folder: folder shared by processes whose clocks must agree. The first process since the machine started
        sets the clock of all.
    """
    offset = time.time() - time.monotonic()
    if folder is not None:
        offset = _shared_offset(folder, offset)
    return lambda: offset + time.monotonic()


def _shared_offset(folder: Path, offset: float) -> float:
    """Return the clock's offset in seconds, which the first process since the boot writes to the folder."""
    boot_id = BOOT_ID.read_text("utf-8").strip() if BOOT_ID.exists() else "one"
    path, fresh = folder / f"clock.{boot_id}", folder / f"clock.{secrets.token_hex(8)}"
    if not path.exists():
        fresh.write_text(repr(offset), "utf-8")
        try:
            os.link(fresh, path)  # atomic; fails for all processes but the first
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return float(path.read_text("utf-8"))
