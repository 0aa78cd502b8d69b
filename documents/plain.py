"""Text files line by line, and HTML pages."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from documents.document import Document
from documents.errors import Unreadable
from documents.html import read_html
from documents.spans import Segment

MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CHARSET: Final = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
HEAD: Final = 1_024  # bytes of a page that may say its encoding


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    encoding: str

    def encode(self, text: str) -> bytes:
        return text.encode(self.encoding, "replace")


def decode(data: bytes, encoding: str = "utf-8") -> Decoded:
    """Text by its byte order mark, or else in the encoding. Raises Unreadable."""
    name = next((name for mark, name in MARKS if data.startswith(mark)), encoding)
    try:
        return Decoded(data.decode(name), name)
    except (UnicodeDecodeError, LookupError):
        raise Unreadable(f"the file is not in {name}; save it as UTF-8") from None


def read_text(data: bytes) -> Document:
    """Each line is a segment; ends of lines and blank lines stay."""
    file = decode(data)
    lines = file.text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.strip()]
    bodies = {number: lines[number].rstrip() for number in numbers}

    def write(segments: Sequence[Segment]) -> bytes:
        for number, segment in zip(numbers, segments, strict=True):
            lines[number] = segment.text + lines[number][len(bodies[number]) :]
        return file.encode("".join(lines))

    return Document([Segment(body) for body in bodies.values()], write)


def read_page(data: bytes) -> Document:
    found = CHARSET.search(data[:HEAD])
    file = decode(data, found[1].decode() if found else "utf-8")
    page = read_html(file.text)

    def write(segments: Sequence[Segment]) -> bytes:
        return page.join(segments).encode(file.encoding, "xmlcharrefreplace")

    return Document(page.segments, write)
