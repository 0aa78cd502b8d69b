"""The memory that a process may use: the machine's, or less in a container."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/")
SHARE: Final = 0.6  # share of the memory for models; the rest is for requests, front ends and the system


def memory_bytes(root: Path = ROOT) -> int | None:
    """Return the memory that this process may use, in bytes; None: unknown.

    root: root of the file system with /proc and /sys.
    """
    limits = [limit for path in _limit_files(root) if (limit := _number(path)) is not None]
    with suppress(OSError, ValueError, IndexError, AttributeError):
        meminfo = (root / "proc" / "meminfo").read_text(encoding="utf-8")
        limits.append(int(meminfo.partition("MemTotal:")[2].split()[0]) << 10)
    if not limits:
        with suppress(OSError, ValueError, AttributeError):
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(limits, default=None)


def usual_budget(processes: int, root: Path = ROOT) -> int | None:
    """Return the memory for the models of each engine process, in bytes; None: unknown.

    processes: number of engine processes.
    root: root of the file system with /proc and /sys.
    """
    memory = memory_bytes(root)
    return None if memory is None else int(memory * SHARE / processes)


def _limit_files(root: Path) -> list[Path]:
    """Return the files with limits of the groups of this process (cgroup 2 or 1) and those above."""
    groups, files = root / "sys" / "fs" / "cgroup", []
    with suppress(OSError):
        for line in (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if not path or (controllers and "memory" not in controllers.split(",")):
                continue
            base, name = (
                (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
            )
            parts = [part for part in path.split("/") if part not in ("", "..")]
            # in a container the path may belong to the host; the limit is then at the top
            files += [base.joinpath(*parts[:depth], name) for depth in range(len(parts) + 1)]
    return files


def _number(path: Path) -> int | None:
    """Return the number in a file; None: there is none, as in "max"."""
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
