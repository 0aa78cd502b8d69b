"""Sums of the sizes of stored files, of each owner and of all, without reading the folder."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_OWNER_FILES: Final = 1_000
MIN_BYTES: Final = 4_096  # disk space that even an empty file takes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on disk.

    path: path on disk.
    name: name of the downloaded file.
    size: number of bytes.
    until: time of expiry, by the store's clock.
    owner: digest of its owner's name.
    """

    path: Path
    name: str
    size: int
    until: float
    owner: str = ""

    @property
    def room(self) -> int:
        """Number of bytes that the file takes on disk."""
        return max(MIN_BYTES, self.size)


class Room:
    """Files by token, with the sums of their sizes."""

    def __init__(self) -> None:
        self.files: dict[str, StoredFile] = {}
        self._ends: list[tuple[float, str]] = []  # a heap by time of expiry; dropped files are removed later
        self._bytes, self._counts = Counter[str](), Counter[str]()  # by owner
        self._all_bytes = 0

    def add(self, token: str, file: StoredFile) -> None:
        self.drop(token)
        self.files[token] = file
        heapq.heappush(self._ends, (file.until, token))
        self._count(file, 1)

    def drop(self, token: str) -> None:
        if (file := self.files.pop(token, None)) is not None:
            self._count(file, -1)

    def lacks(self, file: StoredFile, share: int, limit: int) -> bool:
        """Return whether there is no room for a new file.

        file: new file.
        share: greatest number of bytes of its owner.
        limit: greatest number of bytes of all owners.
        """
        return (
            self._counts[file.owner] >= MAX_OWNER_FILES
            or self._bytes[file.owner] + file.room > share
            or self._all_bytes + file.room > limit
        )

    def expired(self, now: float) -> Iterator[str]:
        """Yield the tokens of expired files. The caller must drop each."""
        while self.soonest <= now:
            yield heapq.heappop(self._ends)[1]

    @property
    def soonest(self) -> float:
        """Earliest time of expiry; infinity without files."""
        while self._ends and self._ends[0][1] not in self.files:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def _count(self, file: StoredFile, change: int) -> None:
        """Add a file to the sums (`change` 1), or take it from them (-1)."""
        self._all_bytes += change * file.room
        self._bytes[file.owner] += change * file.room
        self._counts[file.owner] += change
        if not self._counts[file.owner]:
            del self._counts[file.owner], self._bytes[file.owner]  # forget owners without files
