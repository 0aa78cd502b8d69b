"""The document that every format's reader gives, and checks that readers share."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final

from lxml import etree

from documents.errors import OversizedDocument, Unreadable
from documents.spans import Segment

MAX_UNPACKED_BYTES: Final = 33_554_432  # bytes of all that an archive holds
MAX_RATIO: Final = 100  # bytes that one packed byte may become, above MIN_RATIO_BYTES
MIN_RATIO_BYTES: Final = 1_048_576
MAX_ENTRIES: Final = 4_096  # entries of an archive
MAX_NODES: Final = 400_000  # elements and attributes of all its XML: a tree takes some 300 bytes for each
BLOCK_BYTES: Final = 65_536
MAX_SEGMENTS: Final = 100_000
MAX_SEGMENT_CHARACTERS: Final = 100_000  # characters of a segment


@dataclass(frozen=True, slots=True)
class Document:
    """A file as prose in a structure that stays.

    segments: the prose, in order.
    write: makes the file with a new segment in the place of each old one; may be called once.
    """

    segments: list[Segment]
    write: Callable[[Sequence[Segment]], bytes]


def check_sizes(segments: Sequence[Segment]) -> None:
    """Raise OversizedDocument on more prose, or a longer stretch of it, than anybody reads at once."""
    if len(segments) > MAX_SEGMENTS:
        raise OversizedDocument(f"the file has more than {MAX_SEGMENTS} paragraphs or lines: split it")
    if any(len(segment.text) > MAX_SEGMENT_CHARACTERS for segment in segments):
        raise OversizedDocument(
            f"a paragraph or line of the file has more than {MAX_SEGMENT_CHARACTERS} characters: break it"
        )


def unreadable(kind: str) -> Unreadable:
    return Unreadable(f"the file can't be read as {kind}; is it complete?")


def open_archive(data: bytes, kind: str) -> zipfile.ZipFile:
    """Open the archive of an office document.

    The sizes of entries are checked before anything is unpacked; the nodes of all XML are counted in a stream
    before anybody makes a tree of it. Raises Unreadable, and OversizedDocument on an archive that grows too
    large.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise unreadable(kind) from None
    entries = archive.infolist()
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ENTRIES or size > MAX_UNPACKED_BYTES:
        raise OversizedDocument(f"unpacked, the file is larger than the limit of {MAX_UNPACKED_BYTES} bytes")
    if size > max(MIN_RATIO_BYTES, MAX_RATIO * len(data)):
        raise OversizedDocument(f"unpacked, the file is more than {MAX_RATIO} times as large: save it again")
    counter = _Counter()
    try:
        for entry in entries:
            with archive.open(entry) as stream:
                counter.read(stream)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, zlib.error):
        raise unreadable(kind) from None
    return archive


class _Counter:
    """Counts the elements and attributes of XML: the target of a parser that keeps no tree."""

    def __init__(self) -> None:
        self.nodes = 0

    def read(self, stream: IO[bytes]) -> None:
        """Count the nodes of an entry; an entry that is no XML has none. Raises OversizedDocument."""
        parser = etree.XMLParser(target=self, resolve_entities=False, no_network=True)
        try:
            while block := stream.read(BLOCK_BYTES):
                parser.feed(block)
            parser.close()
        except etree.XMLSyntaxError:
            return

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.nodes += 1 + len(attributes)
        if self.nodes > MAX_NODES:
            raise OversizedDocument(f"the document has more than {MAX_NODES} elements: split it")

    def close(self) -> None:
        pass
