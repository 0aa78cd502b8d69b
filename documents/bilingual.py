"""Translations together with their source: in the same file, as a table, or as a translation memory (TMX)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import PurePath
from typing import Final, get_args
from xml.sax.saxutils import quoteattr

from documents.document import Document
from documents.errors import Unreadable
from documents.options import Bilingual
from documents.spans import Segment

ENDINGS: Final = {"side": ".html", "tmx": ".tmx"}  # of the file that the pairs are written to
# endings of the files that can hold both texts
IN_PLACE: Final = frozenset(
    {".txt", ".md", ".srt", ".vtt", ".sbv", ".ass", ".ssa", ".html", ".htm", ".epub", ".docx"}
)
PAGE: Final = """<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><title>{source} {target}</title></head>
<body><table>
{rows}
</table></body>
</html>
"""
ROW: Final = "<tr><td lang={}>{}</td><td lang={}>{}</td></tr>"
MEMORY: Final = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="Convoy" creationtoolversion="1" segtype="paragraph" o-tmf="Convoy" adminlang="en" \
srclang={source} datatype="plaintext"/>
<body>
{rows}
</body>
</tmx>
"""
UNIT: Final = "<tu><tuv xml:lang={}><seg>{}</seg></tuv><tuv xml:lang={}><seg>{}</seg></tuv></tu>"
NOT_XML: Final = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF])


def check_bilingual(name: str, how: Bilingual) -> None:
    """Raise Unreadable if a file can't hold source and translation in this way, or there is no such way.

    name: name of the file.
    how: place of the source.
    """
    if how not in get_args(Bilingual):
        raise Unreadable(f"bilingual is {', '.join(filter(None, get_args(Bilingual)))}, not {how!r:.80}")
    if how in ("above", "below") and PurePath(name).suffix.lower() not in IN_PLACE:
        raise Unreadable(
            f"this file can't hold both texts; choose side or tmx ({', '.join(sorted(IN_PLACE))} can)"
        )


def write_bilingual(
    document: Document, segments: Sequence[Segment], how: Bilingual, languages: tuple[str, str]
) -> bytes:
    """Return the translated file, with the source in it if asked for.

    document: the source.
    segments: translated segments of the document.
    how: place of the source: none (""), "above" or "below" each translation, "side" by side in a table of
        HTML, or "tmx", a translation memory.
    languages: codes of source and target.
    """
    if document.complete:
        document, segments = document.complete(segments)
    pairs = list(zip(document.segments, segments, strict=True))
    if how in ENDINGS:
        row, frame = (ROW, PAGE) if how == "side" else (UNIT, MEMORY)
        source, target = map(quoteattr, languages)
        rows = "\n".join(
            row.format(source, _escaped(old.text), target, _escaped(new.text)) for old, new in pairs
        )
        return frame.format(rows=rows, source=source, target=target).encode("utf-8", "replace")
    if how:
        segments = [
            replace(new, original=old, below=how == "below") if new.text != old.text else new
            for old, new in pairs
        ]
    elif document.write_in and languages[1]:
        return document.write_in(segments, languages[1])
    return document.write(segments)


def _escaped(text: str) -> str:
    """Return a text in XML, without the characters that XML lacks."""
    return escape(text.translate(NOT_XML), quote=False)
