"""What every format's reader gives, and what they share."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from documents.errors import Swollen, Unreadable
from documents.spans import Segment

UNPACKED: Final = 268_435_456  # bytes of all that an archive holds
PACKED: Final = 4_096  # entries of an archive


@dataclass(frozen=True, slots=True)
class Document:
    """segments: the prose, in order. write: the file with a segment in the place of each; for one call."""

    segments: list[Segment]
    write: Callable[[Sequence[Segment]], bytes]


def damaged(kind: str) -> Unreadable:
    return Unreadable(f"the file can't be read as {kind}; is it complete?")


def open_archive(data: bytes, kind: str) -> zipfile.ZipFile:
    """The archive of an office document. Raises Unreadable, and Swollen on one that grows too large."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise damaged(kind) from None
    entries = archive.infolist()
    if len(entries) > PACKED or sum(entry.file_size for entry in entries) > UNPACKED:
        raise Swollen(f"unpacked, the file is larger than the limit of {UNPACKED} bytes")
    return archive
