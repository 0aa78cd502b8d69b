"""Files to be downloaded: in a folder, under names nobody can guess, for a while."""

from __future__ import annotations

import fcntl
import re
import tempfile
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from engine.api import Overloaded, TooLarge
from server.records import Records
from server.steady import steady

UNSAFE: Final = re.compile(r"[^\w.-]+")
LONGEST: Final = 100  # characters of a file's own name
DATA: Final = ".data"
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Kept:
    """A file on disk; `name` is what it is called when it is saved. until: by the store's clock."""

    path: Path
    name: str
    size: int
    until: float


class Store:
    """Files by their public names. The names on disk are our own, so no public name leads anywhere else.

    folder: one that several processes may share, and that stays; else there is a temporary one.
    """

    def __init__(
        self,
        lifetime: float,
        limit: int,
        clock: Callable[[], float] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="convoy-files-") if folder is None else None
        self.folder = Path(self._own.name) if self._own else folder or Path()
        self._records = Records(self.folder)
        self._lifetime, self._limit, self._clock = lifetime, limit, clock or steady(self.folder)

    def put(self, name: str, data: bytes) -> str:
        """The public name, "<random>.<name>". Raises Overloaded when there is no room, TooLarge when there
        never will be."""
        if len(data) > self._limit:
            raise TooLarge(f"the translated file has {len(data)} bytes; this server keeps {self._limit}")
        with self._locked():
            self.sweep()
            if self.size + len(data) > self._limit:
                soonest = min(kept.until for kept in self._all()) - self._clock()
                message = "no room for another file until one expires: try again later"
                raise Overloaded(message, max(1.0, soonest))
            token = str(uuid.uuid4())
            self._path(token).write_bytes(data)
            self._records.put(token, {"name": safe(name), "until": self._clock() + self._lifetime})
        return f"{token}.{safe(name)}"

    def get(self, public: str) -> Kept | None:
        token, _, name = public.partition(".")
        kept = self._kept(token)
        if kept is None or kept.name != name:
            return None
        if kept.until <= self._clock():
            self._drop(token)
            return None
        return kept

    def sweep(self) -> None:
        """Remove what has expired."""
        now = self._clock()
        for token in self._records.ids():
            kept = self._kept(token)
            if kept is not None and kept.until <= now:
                self._drop(token)

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self._all())

    def close(self) -> None:
        if self._own:
            self._own.cleanup()

    def _all(self) -> list[Kept]:
        return [kept for token in self._records.ids() if (kept := self._kept(token))]

    def _kept(self, token: str) -> Kept | None:
        record = self._records.get(token)
        if record is None:
            return None
        try:
            size = self._path(token).stat().st_size
        except FileNotFoundError:  # another process has just removed it
            return None
        return Kept(self._path(token), record["name"], size, record["until"])

    def _drop(self, token: str) -> None:
        self._records.drop(token)
        self._path(token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}{DATA}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time looks for room and takes it."""
        with (self.folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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
