"""Files to be downloaded: in a folder, under names nobody can guess, for a while."""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from engine.api import Overloaded, TooLarge
from server.callers.keys import digest_of
from server.errors import Refusal
from server.files.shared_records import Records, storage_full
from server.process import locks
from server.process.clock import steady
from server.process.temporary import OwnFolder

UNSAFE: Final = re.compile(r"[^\w.-]+")
MAX_NAME_CHARACTERS: Final = 100  # of a file's own name
OWNER_SHARES: Final = 4  # an owner has at most one of so many parts of the room
DATA_ENDING: Final = ".data"
LOCK_FILE: Final = "lock"
MAX_OWNER_FILES: Final = 1_000
MIN_BYTES: Final = 4_096  # that a file counts as
SWEEP_SECONDS: Final = 60.0  # between two looks for files that have expired


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

    What lies in the folder is kept in memory, and read anew only when another process has changed the folder:
    a file costs the same whatever their number.
    """

    def __init__(
        self,
        lifetime: float,
        limit: int,
        clock: Callable[[], float] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Open a store.

        lifetime: seconds that a file is kept.
        limit: bytes of all files together.
        clock: gives seconds; None: one that all processes of the folder share.
        folder: may be shared by several processes, and stays; None: a temporary one.
        """
        self._own = OwnFolder("convoy-files-") if folder is None else None
        self.folder = self._own.path if self._own else folder or Path()
        self._records = Records(self.folder)
        self._lifetime, self._limit, self._clock = lifetime, limit, clock or steady(self.folder)
        self._files: dict[str, StoredFile] = {}  # by token
        self._changes = -1  # number of changes to the folder that are known of
        self._swept = self._clock()

    def put(self, name: str, data: bytes, owner: str = "") -> str:
        """Keep a file; returns its public name, "<random>.<name>".

        name: the file's own name.
        data: the file's bytes.
        owner: name of the visitor whose share of the room is used; "" has all of it.

        Raises Overloaded when there is no room, TooLarge when there never will be, and Refusal when the disk
        is full. For a thread.
        """
        share = self._limit // OWNER_SHARES if owner else self._limit
        if max(MIN_BYTES, len(data)) > share:
            raise TooLarge(f"the translated file has {len(data)} bytes; this server keeps {share}")
        token, whose = str(uuid.uuid4()), digest_of(owner)
        try:
            self._make_folder()
            with self._changing():
                if self._clock() - self._swept > SWEEP_SECONDS or self._lacks_room(len(data), whose, share):
                    self._sweep()
                if self._lacks_room(len(data), whose, share):
                    soonest = min(file.until for file in self._files.values()) - self._clock()
                    message = "no room for another file until one expires: try again later"
                    raise Overloaded(message, max(1.0, soonest))
                until = self._clock() + self._lifetime
                self._path(token).write_bytes(data)
                self._records.put(token, {"name": safe(name), "until": until, "owner": whose})
                self._files[token] = StoredFile(self._path(token), safe(name), len(data), until, whose)
        except OSError as error:
            self._unlink(token)
            raise storage_full(error) from error
        except Refusal:
            self._unlink(token)
            raise
        return f"{token}.{safe(name)}"

    def get(self, public: str) -> StoredFile | None:
        """Find a file by its public name; None when there is none, or no more."""
        token, _, name = public.partition(".")
        file = self._stored_file(token)
        if file is None or file.name != name:
            return None
        if file.until <= self._clock():
            self._drop(token)
            return None
        return file

    def sweep(self) -> None:
        """Remove what has expired. For a thread."""
        with suppress(OSError), self._changing():
            self._sweep()

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        with self._changing():
            return sum(file.size for file in self._files.values())

    @property
    def usable(self) -> bool:
        """Whether files can be kept: the folder is there, or could be made anew."""
        try:
            self._make_folder()
        except OSError:
            return False
        return os.access(self.folder, os.W_OK | os.X_OK)

    def close(self) -> None:
        if self._own:
            self._own.close()

    def _make_folder(self) -> None:
        """Systems tidy up: what was in the folder has gone with it."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._files.clear()

    def _lacks_room(self, size: int, owner: str, share: int) -> bool:
        own = [file for file in self._files.values() if file.owner == owner]
        return (
            len(own) >= MAX_OWNER_FILES
            or _room(own) + max(MIN_BYTES, size) > share
            or _room(self._files.values()) + max(MIN_BYTES, size) > self._limit
        )

    def _sweep(self) -> None:
        now = self._swept = self._clock()
        for token, file in list(self._files.items()):
            if file.until <= now:
                self._drop(token)

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
        self._files.pop(token, None)
        self._records.drop(token)
        self._unlink(token)

    def _unlink(self, token: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._path(token).unlink()

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}{DATA_ENDING}"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time looks for room and takes it, and learns what others have changed since."""
        with (self.folder / LOCK_FILE).open("a+b") as lock:
            locks.lock(lock.fileno())
            lock.seek(0)
            changes = int(lock.read() or b"0")
            if changes != self._changes:
                self._look()
            self._changes = changes + 1
            lock.truncate(0)
            lock.write(b"%d" % self._changes)
            lock.flush()
            yield

    def _look(self) -> None:
        tokens = set(self._records.ids())
        self._files = {token: file for token, file in self._files.items() if token in tokens}
        for token in tokens - set(self._files):
            if (file := self._stored_file(token)) is not None:
                self._files[token] = file


def _room(files: Iterable[StoredFile]) -> int:
    """Bytes that files take of a disk, about: of an empty one too."""
    return sum(max(MIN_BYTES, file.size) for file in files)


def safe(name: str) -> str:
    """Return a file's own name without folders and odd characters, and not too long."""
    plain = unicodedata.normalize("NFKC", name).replace("\\", "/").rpartition("/")[2]
    plain = UNSAFE.sub("_", plain).strip("._") or "file"
    path = PurePosixPath(plain)
    suffix = path.suffix[: MAX_NAME_CHARACTERS // 2]
    return path.stem[: MAX_NAME_CHARACTERS - len(suffix)] + suffix


def translated_name(name: str, target: str) -> str:
    """Name a translated file as LibreTranslate does: report.docx to report_en.docx."""
    path = PurePosixPath(safe(name))
    return f"{path.stem}_{target}{path.suffix}"
