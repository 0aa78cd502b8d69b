"""Archives that hold a document, and XML: read within limits, and archives written anew."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lxml import etree

from documents.document import unreadable
from documents.errors import OversizedDocument

MAX_UNPACKED_BYTES: Final = 33_554_432  # bytes of all that an archive holds
MAX_RATIO: Final = 100  # bytes that one packed byte may become, above MIN_RATIO_BYTES
MIN_RATIO_BYTES: Final = 1_048_576
MAX_ENTRIES: Final = 4_096  # entries of an archive
MAX_NODES: Final = 400_000  # elements and attributes of all its XML: a tree takes some 300 bytes for each
BLOCK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that was read as a whole.

    kind: what it is, for messages.
    entries: the entries in their order, with their bytes.
    """

    kind: str
    entries: list[tuple[zipfile.ZipInfo, bytes]]

    @property
    def files(self) -> dict[str, bytes]:
        """The bytes of each entry, by its name."""
        return {entry.filename: raw for entry, raw in self.entries}

    def trees(self, names: Sequence[str]) -> dict[str, Any]:
        """Parse the entries of these names; those that are missing are left out. Raises Unreadable."""
        files = self.files
        return {name: _tree(files[name], self.kind) for name in names if name in files}

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with other bytes in some entries: in their order, packed as they were."""
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for entry, raw in self.entries:  # a first "mimetype" stays first, and not packed
                archive.writestr(entry, changed.get(entry.filename, raw), entry.compress_type)
        return written.getvalue()


def open_archive(data: bytes, kind: str) -> Archive:
    """Read the archive of a document.

    The sizes of entries are checked before anything is unpacked; the nodes of all XML are counted in a stream
    before anybody makes a tree of it. Raises Unreadable, and OversizedDocument on an archive that grows too
    large.
    """
    counter = _Counter()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_sizes(archive.infolist(), len(data))
            entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, zlib.error):
        raise unreadable(kind) from None
    for _, raw in entries:
        counter.read(raw)
    return Archive(kind, entries)


def _check_sizes(entries: Sequence[zipfile.ZipInfo], packed: int) -> None:
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ENTRIES or size > MAX_UNPACKED_BYTES:
        raise OversizedDocument(f"unpacked, the file is larger than the limit of {MAX_UNPACKED_BYTES} bytes")
    if size > max(MIN_RATIO_BYTES, MAX_RATIO * packed):
        raise OversizedDocument(f"unpacked, the file is more than {MAX_RATIO} times as large: save it again")


def parse_xml(raw: bytes, kind: str) -> Any:
    """Parse XML, with entities and the network left alone. Raises Unreadable, and OversizedDocument."""
    _Counter().read(raw)
    return _tree(raw, kind)


def _tree(raw: bytes, kind: str) -> Any:
    try:
        return etree.fromstring(raw, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        raise unreadable(kind) from None


def write_xml(root: Any) -> bytes:
    """Return the bytes of a file whose outermost element this is, with what stands before and after it."""
    raw: bytes = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True)
    return raw


def append_text(element: Any, text: str) -> None:
    """Write characters at the end of an element, behind its last child."""
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


class _Counter:
    """Counts the elements and attributes of XML: the target of a parser that keeps no tree."""

    def __init__(self) -> None:
        self.nodes = 0

    def read(self, raw: bytes) -> None:
        """Count the nodes of an entry; an entry that is no XML has none. Raises OversizedDocument."""
        parser = etree.XMLParser(target=self, resolve_entities=False, no_network=True)
        try:
            for begin in range(0, len(raw), BLOCK_BYTES):
                parser.feed(raw[begin : begin + BLOCK_BYTES])
            parser.close()
        except etree.XMLSyntaxError:
            return

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.nodes += 1 + len(attributes)
        if self.nodes > MAX_NODES:
            raise OversizedDocument(f"the document has more than {MAX_NODES} elements: split it")

    def close(self) -> None:
        pass
