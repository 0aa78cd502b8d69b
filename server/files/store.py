"""Files that can be downloaded for some time, under names that can't be guessed."""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from documents import written_ending
from engine.api import Overloaded, TooLarge
from server.callers.keys import digest_of
from server.errors import Refusal
from server.files.journal import Journal
from server.files.room import MIN_BYTES, Room, StoredFile
from server.files.shared_records import Records, storage_full
from server.process.clock import steady
from server.process.temporary import OwnFolder

UNSAFE: Final = re.compile(r"[^\w.-]+")
MAX_NAME_CHARACTERS: Final = 100  # characters of a file's own name
OWNER_SHARES: Final = 4  # one owner holds at most 1 / OWNER_SHARES of the room
DATA_ENDING: Final = ".data"
SWEEP_SECONDS: Final = 60.0  # least time between two sweeps for expired files


class Store:
    """Files by public name, in a folder that processes can share.

    Public names are no paths: names on disk are made by the store. The list of files is cached, and only
    changes of other processes are read again.
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
        limit: greatest number of bytes of all files.
        clock: function that returns seconds; None: a clock that all processes of the folder share.
        folder: folder that may be shared by several processes, and stays; None: a temporary folder.
        """
        self._own = OwnFolder("convoy-files-") if folder is None else None
        # `Path()` is never used: it is for the type checker
        self.folder = self._own.path if self._own else folder or Path()
        self._records = Records(self.folder)
        self._lifetime, self._limit, self._clock = lifetime, limit, clock or steady(self.folder)
        self._room, self._journal = Room(), Journal(self.folder)
        self._swept = self._clock()

    def put(self, name: str, data: bytes, owner: str = "") -> str:
        """Store a file; return its public name, "<random>.<name>". May block, so call it in a thread.

        name: the file's own name.
        data: content of the file.
        owner: name of the visitor whose share of the room is used; "": the whole room.

        Raises Overloaded when there is no room now, TooLarge when the file exceeds the share, and Refusal
        when the disk is full.
        """
        share = self._share(owner)
        if max(MIN_BYTES, len(data)) > share:
            raise TooLarge(f"the translated file has {len(data)} bytes; this server keeps {share}")
        token, until = str(uuid.uuid4()), self._clock() + self._lifetime
        file = StoredFile(self._path(token), safe(name), len(data), until, digest_of(owner))
        try:
            self._make_folder()
            with self._changing():
                self._check_room(file, share)
                self._journal.record(token)
                file.path.write_bytes(data)
                self._records.put(token, {"name": file.name, "until": until, "owner": file.owner})
                self._room.add(token, file)
        except OSError as error:
            self._unlink(token)
            raise storage_full(error) from error
        except Refusal:
            self._unlink(token)
            raise
        return f"{token}.{file.name}"

    def check_room(self, owner: str) -> None:
        """Raise Overloaded when there is no room for even an empty file. May block, so call it in a thread.

        owner: name of the visitor whose share of the room is used.
        """
        with suppress(OSError), self._changing():
            self._check_room(StoredFile(self.folder, "", 0, 0.0, digest_of(owner)), self._share(owner))

    def get(self, public: str) -> StoredFile | None:
        """Return a file by its public name; None when it does not exist or has expired."""
        token, _, name = public.partition(".")
        file = self._stored_file(token)
        if file is None or file.name != name:
            return None
        if file.until <= self._clock():
            self._remove(token)
            return None
        return file

    def sweep(self) -> None:
        """Remove expired files. May block, so call it in a thread."""
        with suppress(OSError), self._changing():
            self._sweep()

    @property
    def size(self) -> int:
        """Number of bytes of all files."""
        with self._changing():
            return sum(file.size for file in self._room.files.values())

    @property
    def usable(self) -> bool:
        """Whether files can be stored: the folder exists or can be made, and is writable."""
        try:
            self._make_folder()
        except OSError:
            return False
        return os.access(self.folder, os.W_OK | os.X_OK)

    def close(self) -> None:
        if self._own:
            self._own.close()

    def _share(self, owner: str) -> int:
        """Return the greatest number of bytes of an owner's files."""
        return self._limit // OWNER_SHARES if owner else self._limit

    def _check_room(self, file: StoredFile, share: int) -> None:
        """Raise Overloaded when there is no room for a new file, also without expired ones. Needs the lock.

        file: new file.
        share: greatest number of bytes of its owner.
        """
        if self._clock() - self._swept > SWEEP_SECONDS or self._room.lacks(file, share, self._limit):
            self._sweep()
        if self._room.lacks(file, share, self._limit):
            message = "no room for another file until one expires: try again later"
            raise Overloaded(message, max(1.0, self._room.soonest - self._clock()))

    def _make_folder(self) -> None:
        """Make the folder again if the system has removed it, and forget its files."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._room = Room()

    def _sweep(self) -> None:
        """Remove expired files. Needs the lock."""
        now = self._swept = self._clock()
        for token in self._room.expired(now):
            self._journal.record(token)
            self._room.drop(token)
            self._remove(token)

    def _stored_file(self, token: str) -> StoredFile | None:
        """Return a file of the folder; None when it does not exist."""
        record = self._records.get(token)
        if record is None:
            return None
        try:
            size = self._path(token).stat().st_size
        except FileNotFoundError:  # another process has just removed it
            return None
        return StoredFile(self._path(token), record["name"], size, record["until"], record.get("owner", ""))

    def _remove(self, token: str) -> None:
        self._records.drop(token)
        self._unlink(token)

    def _unlink(self, token: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._path(token).unlink()

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}{DATA_ENDING}"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the folder for this process, and read the changes of other processes."""
        with self._journal.locked() as changed_ids:
            if changed_ids is None:
                self._room, changed_ids = Room(), self._records.ids()
            for token in changed_ids:
                self._room.drop(token)
                if (file := self._stored_file(token)) is not None:
                    self._room.add(token, file)
            yield


def safe(name: str) -> str:
    """Return a file's own name without folders and special characters, in at most MAX_NAME_CHARACTERS."""
    plain = unicodedata.normalize("NFKC", name).replace("\\", "/").rpartition("/")[2]
    plain = UNSAFE.sub("_", plain).strip("._") or "file"
    path = PurePosixPath(plain)
    suffix = path.suffix[: MAX_NAME_CHARACTERS // 2]
    return path.stem[: MAX_NAME_CHARACTERS - len(suffix)] + suffix


def translated_name(name: str, target: str, ending: str | None = None) -> str:
    """Return the name of a translated file, like LibreTranslate: report_en.docx for report.docx.

    name: name of the source.
    target: code of the language.
    ending: ending of the translation; None: that of its format.
    """
    path = PurePosixPath(safe(name))
    return f"{path.stem}_{target}{ending or written_ending(path.name)}"
