"""Leases: the right to write a shard, among processes on one or many machines that share a file system.

A lease is a file `SHARD.GENERATION`, created exclusively: if two processes try, one fails. Its holder
rewrites the file regularly. If the file has not changed for the duration of a lease, by the clock of the
process that watches it, that process takes the lease over by creating the next generation. The holder is the
creator of the latest generation. No clocks are compared, and a process that was suspended for too long finds
a later generation. The lease of a process that has ended on the same machine is taken over at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

BEATS: Final = 6  # the holder rewrites its lease this often within the duration of a lease
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write a shard.

    path: file of the lease.
    shard, generation: numbers in the file's name.
    owner: id of the process that holds the lease.
    lines, words: number of translated lines and words, written to the file with each beat.
    beats: number of rewrites of the file, so that its content always changes.
    """

    path: Path
    shard: int
    generation: int
    owner: str
    lines: int = 0
    words: int = 0
    beats: int = 0

    def is_held(self) -> bool:
        """Return whether no other process has taken the lease over."""
        after = self.path.with_name(_file_name(self.shard, self.generation + 1))
        return not after.exists() and self._content().get("owner") == self.owner

    def add(self, lines: int, words: int) -> None:
        """Count newly translated lines and words; the next beat writes the counts to the file."""
        self.lines += lines
        self.words += words

    def beat(self) -> None:
        """Rewrite the file, to show that the holder is at work. A removed file is not created again."""
        self.beats += 1
        with contextlib.suppress(FileNotFoundError):
            _write(self.path, "r+b", self)

    def release(self) -> None:
        """Remove the file, so that another process can claim the shard at once."""
        if self.is_held():
            self.path.unlink(missing_ok=True)

    def _content(self) -> dict[str, Any]:
        return _read(self.path)


@dataclass(slots=True)
class _Watched:
    """Another process's lease file: its content, and when this process first read that content."""

    content: bytes
    since: float


@dataclass(slots=True)
class Leases:
    """The leases of one process.

    folder: folder with the lease files of all processes.
    seconds: time without a beat after which another process may take a lease over.
    owner: id of this process.
    own: leases of this process by shard.
    """

    folder: Path
    seconds: float
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    own: dict[int, Lease] = field(default_factory=dict)
    _watched: dict[Path, _Watched] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def claim(self, shard: int) -> Lease | None:
        """Take the lease of a shard, or return None if another process holds it. Raises OSError."""
        latest = max(
            (path for path in self.folder.glob(_file_name(shard, None))), key=_generation, default=None
        )
        if latest is not None and self._alive(latest):
            return None
        generation = 0 if latest is None else _generation(latest) + 1
        lease = Lease(self.folder / _file_name(shard, generation), shard, generation, self.owner)
        self.own[shard] = lease  # before the file exists, so that an interrupt leaves no file
        try:
            _write(lease.path, "xb", lease)
        except OSError as error:
            del self.own[shard]
            if isinstance(error, FileExistsError):
                return None
            raise
        return lease

    def give_back(self, lease: Lease) -> None:
        """Release a lease that this process held."""
        self.own.pop(lease.shard, None)
        lease.release()

    def sweep(self, shard: int) -> None:
        """Remove all leases of a finished shard."""
        self.own.pop(shard, None)
        for path in self.folder.glob(_file_name(shard, None)):
            path.unlink(missing_ok=True)

    def __enter__(self) -> Leases:
        self._thread = threading.Thread(target=self._beat, name="convoy-leases", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread
        self._thread.join()
        for lease in list(self.own.values()):
            self.give_back(lease)

    def progress(self) -> Iterator[tuple[int, int]]:
        """Yield the lines and words of each unfinished shard of all processes."""
        for path in self.folder.glob("*.*"):
            content = _read(path)
            if content:
                yield int(content["lines"]), int(content["words"])

    def _beat(self) -> None:
        """Rewrite the files of this process's leases at intervals, until `__exit__`."""
        while not self._over.wait(self.seconds / BEATS):
            for lease in list(self.own.values()):
                # the next beat may succeed; a lost lease is detected by `is_held`
                with contextlib.suppress(OSError):
                    lease.beat()

    def _alive(self, path: Path) -> bool:
        """Return whether a lease changed recently, and its holder has not ended on this machine."""
        content, now = _read_bytes(path), time.monotonic()
        watched = self._watched.get(path)
        if watched is None or watched.content != content:
            watched = self._watched[path] = _Watched(content, now)
        return now - watched.since < self.seconds and not _holder_has_ended(_parse(content))


def _file_name(shard: int, generation: int | None) -> str:
    return f"{shard:08d}.{'*' if generation is None else generation}"


def _generation(path: Path) -> int:
    return int(path.suffix[1:])


def _write(path: Path, mode: str, lease: Lease) -> None:
    """Write a lease to a file; mode "xb" raises FileExistsError if the file exists."""
    content = {
        "owner": lease.owner,
        "machine": _machine(),
        "process": os.getpid(),
        "started": _start_time(os.getpid()),
        "lines": lease.lines,
        "words": lease.words,
        "beats": lease.beats,
    }
    # constant length, written at once: no reader finds the end of older content
    data = json.dumps(content).encode().ljust(400)
    with path.open(mode, buffering=0) as file:
        try:
            file.write(data)
        except OSError:  # a full disk: an empty file would block the shard
            if mode == "xb":
                path.unlink(missing_ok=True)
            raise


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _parse(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a lease; {}: it is damaged."""
    try:
        parsed = json.loads(content)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    return _parse(_read_bytes(path))


def _holder_has_ended(content: dict[str, Any]) -> bool:
    """Return whether the holder of a lease was a process of this machine and has ended."""
    if content.get("machine") != _machine():
        return False
    return bool(_start_time(int(content["process"])) != content["started"])


def _machine() -> str:
    """Identify this machine since its last boot, and the container where it has its own process ids."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return f"{socket.gethostname()} {boot} {processes}"


def _start_time(process: int) -> str:
    """Return the start time of a process in ticks of the system; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]  # Z, X: ended, not yet removed by its parent
