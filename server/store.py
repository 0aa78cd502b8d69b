"""Files to be downloaded: in a temporary folder, under names nobody can guess, for a while."""

from __future__ import annotations

import re
import tempfile
import time
import unicodedata
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from engine.api import Overloaded, TooLarge

UNSAFE: Final = re.compile(r"[^\w.-]+")
LONGEST: Final = 100  # characters of a file's own name


@dataclass(frozen=True, slots=True)
class Kept:
    """A file on disk; `name` is what it is called when it is saved. until: a time.monotonic()."""

    path: Path
    name: str
    size: int
    until: float


class Store:
    """Files by their public names. The names on disk are our own, so no public name leads anywhere else."""

    def __init__(self, lifetime: float, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="convoy-files-")
        self._lifetime, self._limit, self._clock = lifetime, limit, clock
        self._kept: dict[str, Kept] = {}

    def put(self, name: str, data: bytes) -> str:
        """The public name, "<random>.<name>". Raises Overloaded when there is no room, TooLarge when there
        never will be."""
        self.sweep()
        if len(data) > self._limit:
            raise TooLarge(f"the translated file has {len(data)} bytes; this server keeps {self._limit}")
        if self.size + len(data) > self._limit:
            soonest = min(kept.until for kept in self._kept.values()) - self._clock()
            raise Overloaded("no room for another file until one expires: try again later", max(1.0, soonest))
        token = str(uuid.uuid4())
        path = Path(self._folder.name) / token
        path.write_bytes(data)
        public = f"{token}.{safe(name)}"
        self._kept[public] = Kept(path, safe(name), len(data), self._clock() + self._lifetime)
        return public

    def get(self, public: str) -> Kept | None:
        self.sweep()
        return self._kept.get(public)

    def drop(self, public: str) -> None:
        kept = self._kept.pop(public, None)
        if kept is not None:
            kept.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what has expired."""
        now = self._clock()
        for public in [public for public, kept in self._kept.items() if kept.until <= now]:
            self.drop(public)

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def close(self) -> None:
        self._kept.clear()
        self._folder.cleanup()


def safe(name: str) -> str:
    """A file's own name without folders and odd characters, and not too long."""
    plain = unicodedata.normalize("NFKC", name).replace("\\", "/").rpartition("/")[2]
    plain = UNSAFE.sub("_", plain).strip("._") or "file"
    path = PurePosixPath(plain)
    return path.stem[: LONGEST - len(path.suffix)] + path.suffix[:LONGEST]


def translated_name(name: str, target: str) -> str:
    """As LibreTranslate names a file: report.docx to report_en.docx."""
    path = PurePosixPath(safe(name))
    return f"{path.stem}_{target}{path.suffix}"
