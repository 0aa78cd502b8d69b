"""PDF, only read, by pypdf: its text as paragraphs. Looks, tables, pictures and links are lost."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pypdf
from pypdf.errors import DependencyError, PyPdfError

from documents.document import Document, unreadable
from documents.errors import OversizedDocument, Unreadable
from documents.spans import Segment

KIND_NAME: Final = "a PDF"
MAX_PAGES: Final = 2_000
END_OF_SENTENCE: Final = re.compile(r"[.!?:;…。！？][\"'”’»)\]]*$")
HYPHEN: Final = re.compile(r"\w[-\u00ad\u2010]$")
SHORT_LINE_SHARE: Final = 0.75  # of the longest line's length: a shorter one may end a paragraph
LIST_ITEM: Final = re.compile(r"[•▪●◦–*-]\s|\(?\d{1,3}[.)]\s")


def read_pdf(data: bytes) -> Document:
    """Read the paragraphs of a PDF; its translation is a text, with a blank line after each.

    Raises Unreadable on a file that is none, is encrypted or holds no text, such as a scan, and
    OversizedDocument.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it mends in a file is nobody's concern here
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not _opens(reader):
            raise Unreadable("the PDF is encrypted: send one without a password")
        if len(reader.pages) > MAX_PAGES:
            raise OversizedDocument(f"the PDF has more than {MAX_PAGES} pages: split it")
        pages = [page.extract_text() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OSError):
        raise unreadable(KIND_NAME) from None
    paragraphs = list(_paragraphs(pages))
    if not paragraphs:
        raise Unreadable("the PDF holds no text, only pictures of it: have its text recognised first")

    def write(segments: Sequence[Segment]) -> bytes:
        return "".join(f"{segment.text}\n\n" for segment in segments).encode()

    return Document([Segment(paragraph) for paragraph in paragraphs], write)


def _opens(reader: pypdf.PdfReader) -> bool:
    """Whether a PDF is open to everybody, in an encryption that needs no more libraries."""
    try:
        return bool(reader.decrypt(""))
    except (DependencyError, NotImplementedError):
        return False


def _paragraphs(pages: Sequence[str]) -> Iterator[str]:
    """The paragraphs of pages; a sentence that is not done goes on across the end of a page."""
    open_lines: list[str] = []
    for page in pages:
        lines = [line.strip() for line in page.splitlines()]
        longest = max(map(len, lines), default=0)
        for line in lines:
            if open_lines and (not line or LIST_ITEM.match(line) or _ends(open_lines[-1], longest)):
                yield _joined(open_lines)
                open_lines = []
            if line:
                open_lines.append(line)
    if open_lines:
        yield _joined(open_lines)


def _ends(line: str, longest: int) -> bool:
    """Whether a paragraph may end with this line: a short one at the end of a sentence, or a heading."""
    short = len(line) < SHORT_LINE_SHARE * longest and not HYPHEN.search(line)
    return short and (END_OF_SENTENCE.search(line) is not None or len(line) < longest / 2)


def _joined(lines: Sequence[str]) -> str:
    """One line; a word that was hyphenated at the end of a line is whole again."""
    parts = list[str]()
    for line in lines:
        if not parts:
            pass
        elif not HYPHEN.search(parts[-1]):
            parts.append(" ")
        elif line[:1].islower():
            parts[-1] = parts[-1][:-1]
        parts.append(line)
    return "".join(parts)
