"""What processes change in a folder that they share: one locks the journal at a time, and learns of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from server.process import locks

JOURNAL_FILE: Final = "journal"
MAX_JOURNAL_BYTES: Final = 1 << 20  # after which it begins anew


class Journal:
    """Ids of what was changed, a line each, behind a line that is new whenever the journal begins anew."""

    def __init__(self, folder: Path) -> None:
        """folder: whose changes these are; it need not exist yet."""
        self._path = folder / JOURNAL_FILE
        self._head, self._read = b"", 0  # of the journal as it was read last, and the bytes of it
        self._file: BinaryIO | None = None

    @contextmanager
    def locked(self) -> Iterator[list[str] | None]:
        """Hold the journal: no other process does.

        Yields the ids that others have changed since; None where everything may have changed.
        """
        with self._path.open("a+b") as file:
            locks.lock(file.fileno())
            news, self._file = self._news(file), file
            try:
                yield news
            finally:
                self._file = None
                file.flush()
                self._read = file.seek(0, 2)

    def note(self, id: str) -> None:
        """Note that what has an id is about to change. For who holds the journal."""
        assert self._file is not None
        self._file.write(f"{id}\n".encode())
        self._file.flush()  # a full disk is told before the change

    def _news(self, file: BinaryIO) -> list[str] | None:
        file.seek(0)
        head = file.readline()
        if head and head == self._head:
            file.seek(self._read)
            if self._read <= MAX_JOURNAL_BYTES:
                return file.read().decode().split()
        self._head = head
        if not head or file.seek(0, 2) > MAX_JOURNAL_BYTES:
            file.truncate(0)
            self._head = f"{secrets.token_hex(8)}\n".encode()
            file.write(self._head)
        return None
