"""Reads archives and XML of documents within limits, and writes archives."""

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

MAX_UNPACKED_BYTES: Final = 33_554_432  # unpacked bytes of an archive
MAX_RATIO: Final = 100  # unpacked bytes for each packed byte, above MIN_RATIO_BYTES
MIN_RATIO_BYTES: Final = 1_048_576
MAX_ENTRIES: Final = 4_096  # entries of an archive
MAX_NODES: Final = 400_000  # elements and attributes of all XML; a tree takes about 300 bytes for each
BLOCK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Archive:
    """The entries of an archive.

    kind: description of the document, for messages.
    entries: metadata and decompressed bytes of each file in the archive, in order.
    """

    kind: str
    entries: list[tuple[zipfile.ZipInfo, bytes]]

    @property
    def files(self) -> dict[str, bytes]:
        """Return the bytes of each entry by name."""
        return {entry.filename: raw for entry, raw in self.entries}

    def trees(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the parsed XML of existing entries by name. Raises Unreadable."""
        files = self.files
        return {name: _tree(files[name], self.kind) for name in names if name in files}

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with new bytes for some entries; order and compression stay."""
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for entry, raw in self.entries:  # "mimetype" stays first and not packed
                archive.writestr(entry, changed.get(entry.filename, raw), entry.compress_type)
        return written.getvalue()


def open_archive(data: bytes, kind: str) -> Archive:
    """Return the archive of a document.

    Sizes are checked before unpacking, and the nodes of XML are counted before a tree is made. Raises
    Unreadable and OversizedDocument.
    """
    counter = _Counter()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_sizes(archive.infolist(), len(data))
            entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError, zlib.error):
        raise unreadable(kind) from None
    for _, raw in entries:
        counter.read(raw)
    return Archive(kind, entries)


def _check_sizes(entries: Sequence[zipfile.ZipInfo], packed: int) -> None:
    """Raise OversizedDocument if an archive of `packed` bytes unpacks to too many files or bytes."""
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ENTRIES or size > MAX_UNPACKED_BYTES:
        raise OversizedDocument(f"unpacked, the file is larger than the limit of {MAX_UNPACKED_BYTES} bytes")
    if size > max(MIN_RATIO_BYTES, MAX_RATIO * packed):
        raise OversizedDocument(f"unpacked, the file is more than {MAX_RATIO} times as large: save it again")


def parse_xml(raw: bytes, kind: str) -> Any:
    """Return parsed XML; entities are not expanded and no address is opened.

    Raises Unreadable and OversizedDocument.
    """
    _Counter().read(raw)
    return _tree(raw, kind)


def _tree(raw: bytes, kind: str) -> Any:
    try:
        return etree.fromstring(raw, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        raise unreadable(kind) from None


def write_xml(root: Any) -> bytes:
    """Return the bytes of the file with this root element."""
    raw: bytes = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True)
    return raw


def append_text(element: Any, text: str) -> None:
    """Append characters to the content of an element."""
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


class _Counter:
    """Counts the elements and attributes of XML, as the target of a parser without a tree."""

    def __init__(self) -> None:
        self.nodes = 0

    def read(self, raw: bytes) -> None:
        """Add the number of nodes of an entry; an entry that is no XML has none. Raises OversizedDocument."""
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
