"""The memory of a server's processes, from /proc."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FORKED: Final = ", forked"  # end of the name of a process that its parent has forked


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of a process in bytes: resident, and its share of it (pages divided by their users)."""

    rss: float
    pss: float


def processes_of(root: int) -> dict[int, str]:
    """Return the names of a process and of its descendants, by their ids; empty if it does not run.

    The name is the module that Python runs; a process that its parent has forked is marked.

    root: id of the first process.
    """
    parents, names = dict[int, int](), dict[int, str]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
            )
            names[int(folder.name)] = _name((folder / "cmdline").read_bytes().decode(errors="replace"))
    found, waiting = dict[int, str](), [root] if root in parents else []
    while waiting:
        process = waiting.pop()
        name = names.get(process, "")
        found[process] = f"{name}{FORKED}" if name == names.get(parents[process]) else name
        waiting += [child for child, parent in parents.items() if parent == process]
    return found


def _name(command: str) -> str:
    """Return the module of a Python command, or the name of its program."""
    arguments = command.split("\0")
    if "-m" in arguments[:-1]:
        return arguments[arguments.index("-m") + 1]
    return Path(arguments[0]).name


def memory_of(process: int) -> ProcessMemory | None:
    """Return the memory of a process, or None if it has ended.

    process: id of a process of this user.
    """
    sizes = {"Rss": 0, "Pss": 0}
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            if name in sizes:
                sizes[name] = int(value.split()[0]) << 10
    except OSError:
        return None
    return ProcessMemory(sizes["Rss"], sizes["Pss"]) if sizes["Rss"] else None
