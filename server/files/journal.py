"""A journal of changes in a folder that processes share. One process at a time locks it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from server.process import locks

JOURNAL_FILE: Final = "journal"
MAX_JOURNAL_BYTES: Final = 1 << 20  # a longer journal is emptied


class Journal:
    """A file of changed ids, one a line. Its random first line changes when the journal is emptied."""

    def __init__(self, folder: Path) -> None:
        """folder: folder of the journal; it need not exist yet."""
        self._path = folder / JOURNAL_FILE
        self._head, self._read = b"", 0  # first line, and number of bytes read so far
        self._file: BinaryIO | None = None

    @contextmanager
    def locked(self) -> Iterator[list[str] | None]:
        """Lock the journal for this process.

        Yields the ids that other processes have changed since the last lock; None: any may have changed.
        """
        with self._path.open("a+b") as file:
            locks.lock(file.fileno())
            changed_ids, self._file = self._read_changes(file), file
            try:
                yield changed_ids
            finally:
                self._file = None
                file.flush()
                self._read = file.seek(0, 2)

    def record(self, id: str) -> None:
        """Write the id of a record that is about to change. Needs the lock."""
        assert self._file is not None
        self._file.write(f"{id}\n".encode())
        self._file.flush()  # a full disk raises before the change

    def _read_changes(self, file: BinaryIO) -> list[str] | None:
        """Return the ids written since the last lock; None if the journal is new, emptied or too long."""
        file.seek(0)
        head = file.readline()
        if head and head == self._head:
            file.seek(self._read)
            # a longer journal is emptied below
            if self._read <= MAX_JOURNAL_BYTES:
                return file.read().decode().split()
        self._head = head
        if not head or file.seek(0, 2) > MAX_JOURNAL_BYTES:
            file.truncate(0)
            self._head = f"{secrets.token_hex(8)}\n".encode()
            file.write(self._head)
        return None
