"""Excel workbooks (Office Open XML), by lxml: texts of cells, comments and text boxes.

Formulas, numbers and dates are not changed, and names of sheets neither: formulas refer to them. Headings of
tables and fields of pivot tables stay too, since Excel repairs a file whose headings differ from their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

from lxml import etree

from documents.archive import Archive, open_archive, write_xml
from documents.document import Document, unreadable
from documents.formats.office import pptx
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

KIND_NAME: Final = "an Excel workbook"
WORKBOOK: Final = "xl/workbook.xml"
PARTS: Final = re.compile(
    r"xl/(?:sharedStrings|worksheets/sheet\d{1,6}|comments/?(?:comment)?\d{1,6}|drawings/drawing\d{1,6})\.xml"
)
HEADINGS_FILES: Final = re.compile(r"xl/(?:tables/table|pivotCache/pivotCacheDefinition)\d{1,6}\.xml")
LINE_FEED: Final = re.compile(r"_x000[aA]_")  # as names of columns have it
SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"


def _cell(name: str) -> str:
    return f"{{http://schemas.openxmlformats.org/spreadsheetml/2006/main}}{name}"


# a shared string, a string in a cell, the text of a comment
TEXTS: Final = (_cell("si"), _cell("is"), _cell("text"))
RUN, TEXT, RUN_FORMAT = map(_cell, ("r", "t", "rPr"))
NAMED: Final = (_cell("tableColumn"), _cell("cacheField"))


def read_xlsx(data: bytes) -> Document:
    """Return the texts of a workbook. Raises Unreadable and OversizedDocument."""
    archive = open_archive(data, KIND_NAME)
    if WORKBOOK not in archive.files:
        raise unreadable(KIND_NAME)
    roots = archive.trees(sorted(filter(PARTS.fullmatch, archive.files)))
    names = _names(archive)
    texts = (text for root in roots.values() for text in root.iter(*TEXTS))
    shapes = (shape for root in roots.values() for shape in root.iter(pptx.PARAGRAPH))
    cells = Paragraphs(
        [(text, lines_of(list(_atoms(text)))) for text in texts if _is_prose("".join(_strings(text)), names)]
    )
    boxes = Paragraphs([(shape, lines_of(list(pptx.atoms(shape)))) for shape in shapes])
    count = len(cells.segments)

    def write(segments: Sequence[Segment]) -> bytes:
        cells.fill(segments[:count], _replace_content)
        boxes.fill(segments[count:], pptx.replace_content)
        return archive.write({name: write_xml(root) for name, root in roots.items()})

    return Document([*cells.segments, *boxes.segments], write)


def _names(archive: Archive) -> frozenset[str]:
    """Return the headings of tables and pivot tables."""
    roots = archive.trees(sorted(filter(HEADINGS_FILES.fullmatch, archive.files))).values()
    named = (element.get("name", "") for root in roots for element in root.iter(*NAMED))
    return frozenset(LINE_FEED.sub("\n", name) for name in named)


def _is_prose(text: str, names: frozenset[str]) -> bool:
    """Return whether a text has letters and is no heading of a table."""
    return any(map(str.isalpha, text)) and text not in names


def _strings(text: Any) -> Iterator[str]:
    """Yield the strings of a text, without phonetic hints."""
    for child in text:
        if child.tag == TEXT:
            yield child.text or ""
        elif child.tag == RUN:
            yield child.findtext(TEXT) or ""


def _atoms(text: Any) -> Iterator[Atom]:
    """Yield the runs of a text."""
    for child in text:
        if child.tag == TEXT:
            yield Atom("text", None, child.text or "")
        elif child.tag == RUN:
            properties = child.find(RUN_FORMAT)
            key = (
                "" if properties is None else etree.tostring(properties, encoding="unicode", with_tail=False)
            )
            yield Atom("text", properties, child.findtext(TEXT) or "", key)


def _replace_content(text: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Replace the runs of a text by those of new segments."""
    for child in list(text):
        text.remove(child)
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            run = etree.SubElement(text, RUN)
            if output.element is not None:
                run.append(deepcopy(output.element))
            element = etree.SubElement(run, TEXT, {SPACE: "preserve"})
            element.text = output.text
    if len(text) == 1 and len(text[0]) == 1:  # one run without a format is a plain string
        text[:] = [text[0][0]]
