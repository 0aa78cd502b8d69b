"""Files to be downloaded: in a folder, under names nobody can guess, for a while."""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from engine.api import Overloaded, TooLarge
from server import locks
from server.clock import steady
from server.errors import Refusal
from server.keys import digest_of
from server.shared_records import Records, storage_full
from server.temporary import OwnFolder

UNSAFE: Final = re.compile(r"[^\w.-]+")
LONGEST: Final = 100  # characters of a file's own name
SHARES: Final = 4  # an owner has at most one of so many parts of the room
DATA: Final = ".data"
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on disk.

    name: what it is called when it is saved.
    until: by the store's clock.
    owner: a digest of whose it is.
    """

    path: Path
    name: str
    size: int
    until: float
    owner: str = ""


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
        self._own = OwnFolder("convoy-files-") if folder is None else None
        self.folder = self._own.path if self._own else folder or Path()
        self._records = Records(self.folder)
        self._lifetime, self._limit, self._clock = lifetime, limit, clock or steady(self.folder)

    def put(self, name: str, data: bytes, owner: str = "") -> str:
        """Keep a file; returns its public name, "<random>.<name>".

        owner: whose it is; each has a share of the room.

        Raises Overloaded when there is no room, TooLarge when there never will be, and Refusal when the disk
        is full. For a thread.
        """
        share = self._limit // SHARES if owner else self._limit
        if len(data) > share:
            raise TooLarge(f"the translated file has {len(data)} bytes; this server keeps {share}")
        token, whose = str(uuid.uuid4()), digest_of(owner)
        try:
            with self._lock():
                self.sweep()
                self._check_room(len(data), self._all(), self._limit)
                self._check_room(len(data), [file for file in self._all() if file.owner == whose], share)
                record = {"name": safe(name), "until": self._clock() + self._lifetime, "owner": whose}
                self._path(token).write_bytes(data)
                self._records.put(token, record)
        except OSError as error:
            self._path(token).unlink(missing_ok=True)
            raise storage_full(error) from error
        except Refusal:
            self._path(token).unlink(missing_ok=True)
            raise
        return f"{token}.{safe(name)}"

    def _check_room(self, size: int, files: Sequence[StoredFile], limit: int) -> None:
        if sum(file.size for file in files) + size > limit:
            soonest = min(file.until for file in files) - self._clock()
            message = "no room for another file until one expires: try again later"
            raise Overloaded(message, max(1.0, soonest))

    def get(self, public: str) -> StoredFile | None:
        token, _, name = public.partition(".")
        file = self._stored_file(token)
        if file is None or file.name != name:
            return None
        if file.until <= self._clock():
            self._drop(token)
            return None
        return file

    def sweep(self) -> None:
        """Remove what has expired."""
        now = self._clock()
        for token in self._records.ids():
            file = self._stored_file(token)
            if file is not None and file.until <= now:
                self._drop(token)

    @property
    def size(self) -> int:
        return sum(file.size for file in self._all())

    def close(self) -> None:
        if self._own:
            self._own.close()

    def _all(self) -> list[StoredFile]:
        return [file for token in self._records.ids() if (file := self._stored_file(token))]

    def _stored_file(self, token: str) -> StoredFile | None:
        record = self._records.get(token)
        if record is None:
            return None
        try:
            size = self._path(token).stat().st_size
        except FileNotFoundError:  # another process has just removed it
            return None
        return StoredFile(self._path(token), record["name"], size, record["until"], record.get("owner", ""))

    def _drop(self, token: str) -> None:
        self._records.drop(token)
        self._path(token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}{DATA}"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One process at a time looks for room and takes it."""
        with (self.folder / LOCK).open("w") as lock:
            locks.lock(lock.fileno())
            yield


def safe(name: str) -> str:
    """Return a file's own name without folders and odd characters, and not too long."""
    plain = unicodedata.normalize("NFKC", name).replace("\\", "/").rpartition("/")[2]
    plain = UNSAFE.sub("_", plain).strip("._") or "file"
    path = PurePosixPath(plain)
    suffix = path.suffix[: LONGEST // 2]
    return path.stem[: LONGEST - len(suffix)] + suffix


def translated_name(name: str, target: str) -> str:
    """Name a translated file as LibreTranslate does: report.docx to report_en.docx."""
    path = PurePosixPath(safe(name))
    return f"{path.stem}_{target}{path.suffix}"
