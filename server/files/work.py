"""Bytes of the files that are translated at this time, of each owner and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from engine.api import Overloaded

OWNER_SHARES: Final = 4  # one owner has at most 1 / OWNER_SHARES of the bytes
LEAST_BYTES: Final = 65_536  # least size that a file counts as
RETRY_SECONDS: Final = 5.0


class FilesInWork:
    """Room for files that are received or translated. For one event loop."""

    def __init__(self, limit: int) -> None:
        """limit: bytes of all files; one file of an owner is accepted whatever its size."""
        self._limit = limit
        self._bytes = Counter[str]()  # by owner

    @contextmanager
    def place(self, owner: str, size: int) -> Iterator[None]:
        """Hold room for a file within the context.

        owner: name of the visitor who sends the file.
        size: number of its bytes.

        Raises Overloaded when the owner, or all owners together, have too many bytes in work.
        """
        size = max(LEAST_BYTES, size)
        share = self._limit // OWNER_SHARES
        if self._bytes[owner] and self._bytes[owner] + size > share:
            message = f"your files of {self._bytes[owner]} bytes are being translated, the most is {share}"
            raise Overloaded(f"{message}: try again later", RETRY_SECONDS)
        if self._bytes.total() and self._bytes.total() + size > self._limit:
            raise Overloaded("too many files are being translated: try again later", RETRY_SECONDS)
        self._bytes[owner] += size
        try:
            yield
        finally:
            self._bytes[owner] -= size
            if not self._bytes[owner]:
                del self._bytes[owner]
