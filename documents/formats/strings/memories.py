"""Translation memories (TMX), by lxml: units that have a text in one language get one in another.

lxml reads the units; a second pass over the text finds the positions of their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from lxml import etree

from documents.archive import parse_xml
from documents.document import Document, unreadable
from documents.formats.plain import decode
from documents.formats.strings.xliff import MARKUP, content_atoms, replace_content
from documents.inline import Paragraphs, lines_of
from documents.spans import Segment

KIND_NAME: Final = "a translation memory in TMX"
UNKNOWN: Final = "und"  # code of an undetermined language
LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(data: bytes) -> Document:
    """Return the texts of the units that have no translation. Raises Unreadable and OversizedDocument."""
    root = parse_xml(data, KIND_NAME)
    if root.tag != "tmx":
        raise unreadable(KIND_NAME)
    file = decode(data, root.getroottree().docinfo.encoding or "utf-8")
    units, places = [unit.findall("tuv") for unit in root.iter("tu")], list(_texts(file.text))
    if list(map(len, units)) != list(map(len, places)):
        raise unreadable(KIND_NAME)
    open_units = [found for pair in zip(units, places, strict=True) if (found := _open_unit(*pair))]
    paragraphs = Paragraphs([(seg, lines_of(list(content_atoms(seg)))) for seg, _, _ in open_units])
    newline = "\r\n" if "\r\n" in file.text else "\n"

    def write(segments: Sequence[Segment], language: str = "") -> bytes:
        old = [etree.tostring(seg) for seg, _, _ in open_units]
        paragraphs.fill(segments, replace_content)
        parts, position = list[str](), 0
        for (seg, name, (begin, end)), before in zip(open_units, old, strict=True):
            if etree.tostring(seg) == before:
                continue
            content = etree.tostring(seg, encoding="unicode", with_tail=False).replace("\n", newline)
            new = f"<tuv xml:lang={quoteattr(name or language or UNKNOWN)}>{content}</tuv>"
            parts += [file.text[position:begin], new]
            position = end
        return file.encode("".join([*parts, file.text[position:]]), "xmlcharrefreplace")

    return Document(paragraphs.segments, write, write_in=write)


def _texts(text: str) -> Iterator[list[tuple[int, int]]]:
    """Yield characters [begin, end) of each `tuv` of each unit, when the unit ends."""
    places, begin = list[tuple[int, int]](), 0
    for match in MARKUP.finditer(text):
        closing, name, empty = match.groups()
        if name == "tu" and (closing or empty):
            yield places
            places = []
        elif name == "tuv":
            begin = begin if closing else match.start()
            if closing or empty:
                places.append((begin, match.end()))


def _open_unit(
    texts: Sequence[Any], places: Sequence[tuple[int, int]]
) -> tuple[Any, str, tuple[int, int]] | None:
    """Return the source of a unit without a translation, and language and place of the translation; None: the
    unit has one.

    texts: texts of the unit, each with its language.
    places: characters [begin, end) of each text in the file.
    """
    segs = [text.find("seg") for text in texts]
    filled = [at for at, seg in enumerate(segs) if seg is not None and "".join(seg.itertext()).strip()]
    if len(filled) != 1 or len(texts) > 2:
        return None
    (source,) = filled
    if len(texts) == 1:
        return segs[source], "", (places[0][1], places[0][1])
    empty = texts[1 - source]
    return segs[source], empty.get(LANGUAGE) or empty.get("lang") or "", places[1 - source]
