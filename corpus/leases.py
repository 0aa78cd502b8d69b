"""Leases: the right to write a shard, among processes on one or many machines that share a file system.

A lease is a file `SHARD.GENERATION`, made so that of two makers one fails. Its holder writes it anew now and
then. A lease that has not changed for as long as leases last, by the watcher's own clock, is taken over by
making the next generation: the holder is the maker of the latest one, no clocks are compared, and a process
that was stopped for too long finds a later generation beside its own. On one machine the lease of a process
that is gone is taken over at once.
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

BEATS: Final = 6  # of a holder, while a lease lasts
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(eq=False, slots=True)
class Lease:
    """The right to write a shard.

    lines, words: done of it so far, for others to see.
    """

    path: Path
    shard: int
    generation: int
    owner: str
    lines: int = 0
    words: int = 0
    beats: int = 0

    def held(self) -> bool:
        """Tell whether nobody has taken it over."""
        after = self.path.with_name(_name(self.shard, self.generation + 1))
        return not after.exists() and self._content().get("owner") == self.owner

    def beat(self) -> None:
        """Say that the holder is at work. A lease that is gone stays gone."""
        self.beats += 1
        with contextlib.suppress(FileNotFoundError):
            _write(self.path, "r+b", self)

    def release(self) -> None:
        """Let others have it at once."""
        if self.held():
            self.path.unlink(missing_ok=True)

    def _content(self) -> dict[str, Any]:
        return _read(self.path)


@dataclass(slots=True)
class _Watched:
    """A lease of somebody else, and since when it looks like this."""

    content: bytes
    since: float


@dataclass(slots=True)
class Leases:
    """The leases of one process.

    folder: of all leases.
    seconds: how long one lasts without a beat.
    """

    folder: Path
    seconds: float
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    held: dict[int, Lease] = field(default_factory=dict)
    _watched: dict[Path, _Watched] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def claim(self, shard: int) -> Lease | None:
        """Take a shard's lease, where nobody holds it. Raises OSError."""
        latest = max((path for path in self.folder.glob(_name(shard, None))), key=_generation, default=None)
        if latest is not None and self._alive(latest):
            return None
        generation = 0 if latest is None else _generation(latest) + 1
        lease = Lease(self.folder / _name(shard, generation), shard, generation, self.owner)
        self.held[shard] = lease  # before there is a file, so that an interrupt leaves none
        try:
            _write(lease.path, "xb", lease)
        except OSError as error:
            del self.held[shard]
            if isinstance(error, FileExistsError):
                return None
            raise
        return lease

    def give_back(self, lease: Lease) -> None:
        """Release a lease that this process held."""
        self.held.pop(lease.shard, None)
        lease.release()

    def sweep(self, lease: Lease) -> None:
        """Remove the leases of a shard that is done."""
        self.held.pop(lease.shard, None)
        for path in self.folder.glob(_name(lease.shard, None)):
            path.unlink(missing_ok=True)

    def __enter__(self) -> Leases:
        self._thread = threading.Thread(target=self._beat, name="convoy-leases", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread
        self._thread.join()
        for lease in list(self.held.values()):
            self.give_back(lease)

    def progress(self) -> Iterator[tuple[int, int]]:
        """Yield lines and words of each shard under way, of all processes."""
        for path in self.folder.glob("*.*"):
            content = _read(path)
            if content:
                yield int(content["lines"]), int(content["words"])

    def _beat(self) -> None:
        while not self._over.wait(self.seconds / BEATS):
            for lease in list(self.held.values()):
                with contextlib.suppress(
                    OSError
                ):  # the next beat may be heard; who is lost finds out by `held`
                    lease.beat()

    def _alive(self, path: Path) -> bool:
        content, now = _bytes(path), time.monotonic()
        watched = self._watched.get(path)
        if watched is None or watched.content != content:
            watched = self._watched[path] = _Watched(content, now)
        return now - watched.since < self.seconds and not _has_ended(_parse(content))


def _name(shard: int, generation: int | None) -> str:
    return f"{shard:08d}.{'*' if generation is None else generation}"


def _generation(path: Path) -> int:
    return int(path.suffix[1:])


def _write(path: Path, mode: str, lease: Lease) -> None:
    content = {
        "owner": lease.owner,
        "machine": _machine(),
        "process": os.getpid(),
        "started": _started(os.getpid()),
        "lines": lease.lines,
        "words": lease.words,
        "beats": lease.beats,
    }
    # of one length whatever the figures, and written at once: no reader sees the end of an older one
    data = json.dumps(content).encode().ljust(400)
    with path.open(mode, buffering=0) as file:
        try:
            file.write(data)
        except OSError:  # a full disk: an empty lease would keep others out
            if mode == "xb":
                path.unlink(missing_ok=True)
            raise


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _parse(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    return _parse(_bytes(path))


def _has_ended(content: dict[str, Any]) -> bool:
    """Whether a lease's holder was a process of this machine that is gone."""
    if content.get("machine") != _machine():
        return False
    return bool(_started(int(content["process"])) != content["started"])


def _machine() -> str:
    """This machine since it was started; of containers each with processes of its own."""
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    try:
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        processes = ""
    return f"{socket.gethostname()} {boot} {processes}"


def _started(process: int) -> str:
    """When a process was started, in its system's own ticks; empty where it is not there."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
