"""Reads the text of a PDF as paragraphs, by pypdf. Formats, tables, pictures and links are lost."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pypdf
from pypdf.errors import DependencyError

from documents.document import Document, unreadable
from documents.errors import OversizedDocument, Unreadable
from documents.spans import Segment

KIND_NAME: Final = "a PDF"
NOTICE: Final = "the translation is plain text: layout, tables, pictures and links of the PDF are lost"
MAX_PAGES: Final = 2_000
END_OF_SENTENCE: Final = re.compile(r"[.!?:;…。！？][\"'”’»)\]]*$")
HYPHEN: Final = re.compile(r"\w[-\u00ad\u2010]$")
SHORT_LINE_SHARE: Final = 0.75  # share of the longest line; a shorter line may end a paragraph
LIST_ITEM: Final = re.compile(r"[•▪●◦–*-]\s|\(?\d{1,3}[.)]\s")


def read_pdf(data: bytes) -> Document:
    """Return the paragraphs of a PDF; its translation is plain text with a blank line after each.

    Raises OversizedDocument, and Unreadable also for an encrypted file or one without text, such as a scan.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of damage that it repairs
    with _refusing_damage():
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not _opens_without_password(reader):
            raise Unreadable("the PDF is encrypted: send one without a password")
        if len(reader.pages) > MAX_PAGES:
            raise OversizedDocument(f"the PDF has more than {MAX_PAGES} pages: split it")
        pages = [page.extract_text() for page in reader.pages]
    paragraphs = list(_paragraphs(pages))
    if not paragraphs:
        raise Unreadable("the PDF holds no text, only pictures of it: have its text recognised first")

    def write(segments: Sequence[Segment]) -> bytes:
        return "".join(f"{segment.text}\n\n" for segment in segments).encode()

    return Document([Segment(paragraph) for paragraph in paragraphs], write, (NOTICE,))


@contextmanager
def _refusing_damage() -> Iterator[None]:
    """Raise Unreadable instead of the errors of pypdf: a damaged file can raise any of Python's errors."""
    try:
        yield
    except (OversizedDocument, Unreadable, MemoryError):
        raise
    except Exception:
        raise unreadable(KIND_NAME) from None


def _opens_without_password(reader: pypdf.PdfReader) -> bool:
    """Return whether a PDF opens without a password and without further libraries."""
    try:
        return bool(reader.decrypt(""))
    except (DependencyError, NotImplementedError):
        return False


def _paragraphs(pages: Sequence[str]) -> Iterator[str]:
    """Yield the paragraphs of pages; an unfinished sentence continues on the next page."""
    open_lines: list[str] = []
    for page in pages:
        lines = [line.strip() for line in page.splitlines()]
        longest = max(map(len, lines), default=0)  # characters; about the width of the text
        for line in lines:
            if open_lines and (
                not line or LIST_ITEM.match(line) or _may_end_paragraph(open_lines[-1], longest)
            ):
                yield _join_lines(open_lines)
                open_lines = []
            if line:
                open_lines.append(line)
    if open_lines:
        yield _join_lines(open_lines)


def _may_end_paragraph(line: str, longest: int) -> bool:
    """Return whether a paragraph may end with this line: a short end of a sentence, or a heading."""
    short = len(line) < SHORT_LINE_SHARE * longest and not HYPHEN.search(line)
    return short and (END_OF_SENTENCE.search(line) is not None or len(line) < longest / 2)


def _join_lines(lines: Sequence[str]) -> str:
    """Return the lines as one line; words hyphenated at the end of a line are joined."""
    parts = list[str]()
    for line in lines:
        if not parts:
            pass
        elif not HYPHEN.search(parts[-1]):
            parts.append(" ")
        elif line[:1].islower():
            parts[-1] = parts[-1][:-1]  # the hyphen divides a word
        parts.append(line)
    return "".join(parts)
