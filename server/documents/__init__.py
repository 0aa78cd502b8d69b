"""Files as segments of prose in a structure that stays: one module for each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final

from engine.api import InvalidRequest
from server.documents.document import Document
from server.documents.docx import read_docx
from server.documents.markdown import read_markdown
from server.documents.odt import read_odt
from server.documents.plain import read_page, read_text
from server.documents.subtitles import read_subtitles

__all__ = ["MEDIA", "READERS", "Document", "read_document"]

READERS: Final[Mapping[str, Callable[[bytes], Document]]] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".html": read_page,
    ".htm": read_page,
    ".srt": read_subtitles,
    ".docx": read_docx,
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


def read_document(name: str, data: bytes) -> Document:
    """The document of a file; its name's ending says what it is. May take long: for a thread.

    Raises InvalidRequest, in LibreTranslate's words for an unknown ending, on a file that can't be read.
    """
    kind = PurePath(name).suffix.lower()
    if kind not in READERS:
        raise InvalidRequest("Invalid request: file format not supported")
    return READERS[kind](data)
