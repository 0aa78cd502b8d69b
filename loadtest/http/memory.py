"""The memory of a server's processes, from /proc.

    python -m loadtest.http.memory --engines 2

starts `convoy serve` with the shipped models, translates by each of them, and prints a line for each process.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from loadtest.http.serving import serving_convoy

ROUNDS: Final = 8  # texts for each model before the measurement
TEXT: Final = "Am Montag war das Wetter noch schön, danach hat es eine Woche lang geregnet."
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


def table(root: int) -> str:
    """Return a line for each process with its RSS and PSS in MiB, and a last line with the sum of PSS.

    root: id of the first process.
    """
    found = {f"{name} ({process})": memory_of(process) for process, name in processes_of(root).items()}
    sizes = {name: memory for name, memory in sorted(found.items()) if memory}
    lines = [
        f"{name:40}{memory.rss / (1 << 20):8.1f}{memory.pss / (1 << 20):8.1f}"
        for name, memory in sizes.items()
    ]
    return "\n".join([*lines, f"{'all':48}{sum(memory.pss for memory in sizes.values()) / (1 << 20):8.1f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frontends", type=int, default=1)
    parser.add_argument("--engines", type=int, default=2)
    options = parser.parse_args()
    settings = {"FRONTENDS": options.frontends, "ENGINES": options.engines, "LOG_LEVEL": "error"}
    with serving_convoy(settings) as (url, process), httpx.Client(base_url=url, timeout=60.0) as client:
        for name in [info["name"] for info in client.get("/models").json()] * ROUNDS:
            client.post(f"/v2/models/{name}/generate", json={"text_input": TEXT}).raise_for_status()
        print(table(process.pid))


if __name__ == "__main__":
    main()
