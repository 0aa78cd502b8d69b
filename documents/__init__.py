"""Files as segments of prose in a structure that stays: one module for each format.

Nothing here knows of models or servers: `read_document` gives segments, the translator joins formats to the
answers by `projection.project`, and `Document.write` makes the file anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final

from documents.document import Document, check_sizes
from documents.errors import OversizedDocument, Unreadable
from documents.markdown import read_markdown
from documents.odt import read_odt
from documents.plain import read_page, read_text
from documents.subtitles import read_subtitles

__all__ = ["MEDIA", "READERS", "Document", "OversizedDocument", "Unreadable", "read_document"]


def _read_docx(data: bytes) -> Document:
    from documents.docx import read_docx  # its library takes long to import

    return read_docx(data)


READERS: Final[Mapping[str, Callable[[bytes], Document]]] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".html": read_page,
    ".htm": read_page,
    ".srt": read_subtitles,
    ".docx": _read_docx,
    ".odt": read_odt,
}
MEDIA: Final[Mapping[str, str]] = {
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".srt": "application/x-subrip",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
}


def read_document(name: str, data: bytes, *, attributes: bool = False) -> Document:
    """Read the document of a file. This may take long: call it in a thread.

    name: name of the file; its ending says the format.
    data: the file.
    attributes: whether descriptions in a page's attributes (`alt` and the like) are prose too.

    Raises Unreadable, on an unknown ending as well, and OversizedDocument.
    """
    kind = PurePath(name).suffix.lower()
    if kind not in READERS:
        raise Unreadable("file format not supported")
    document = read_page(data, attributes=attributes) if READERS[kind] is read_page else READERS[kind](data)
    check_sizes(document.segments)
    return document
