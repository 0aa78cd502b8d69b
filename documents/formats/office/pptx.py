"""PowerPoint presentations (Office Open XML), by lxml: slides, their tables, notes and diagrams.

Runs keep their formats and links; fields, such as the number of a slide, are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

from lxml import etree

from documents.archive import open_archive, write_xml
from documents.document import Document, unreadable
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

KIND_NAME: Final = "a PowerPoint presentation"
PARTS: Final = re.compile(
    r"ppt/(?:slides/slide|notesSlides/notesSlide|diagrams/data|diagrams/drawing)\d{1,6}\.xml"
)
PRESENTATION: Final = "ppt/presentation.xml"
DIGITS: Final = re.compile(r"\d+")
# properties of a run without an effect on its format_key
NOT_FORMATS: Final = ("lang", "altLang", "dirty", "err", "noProof", "smtClean")


def _drawing(name: str) -> str:
    return f"{{http://schemas.openxmlformats.org/drawingml/2006/main}}{name}"


PARAGRAPH, RUN, TEXT, FIELD, BREAK = map(_drawing, ("p", "r", "t", "fld", "br"))
LINK: Final = _drawing("hlinkClick")
RUN_FORMAT, PARAGRAPH_FORMAT, END_FORMAT = map(_drawing, ("rPr", "pPr", "endParaRPr"))


def read_pptx(data: bytes) -> Document:
    """Return the prose of a presentation. Raises Unreadable and OversizedDocument."""
    archive = open_archive(data, KIND_NAME)
    if PRESENTATION not in archive.files:
        raise unreadable(KIND_NAME)
    roots = archive.trees(sorted(filter(PARTS.fullmatch, archive.files), key=_part_order))
    elements = (paragraph for root in roots.values() for paragraph in root.iter(PARAGRAPH))
    paragraphs = Paragraphs([(p, lines_of(list(atoms(p)))) for p in elements])

    def write(segments: Sequence[Segment]) -> bytes:
        paragraphs.fill(segments, replace_content)
        return archive.write({name: write_xml(root) for name, root in roots.items()})

    return Document(paragraphs.segments, write)


def _part_order(name: str) -> tuple[int, bool, str]:
    """Return the sort key of a part: by number of the slide, with notes and diagrams after the slide."""
    number = DIGITS.search(name)
    return int(number[0]) if number else 0, not name.startswith("ppt/slides/"), name


def atoms(paragraph: Any) -> Iterator[Atom]:
    """Yield the atoms of a paragraph: runs, breaks and fields."""
    for child in paragraph:
        if child.tag == RUN:
            properties = child.find(RUN_FORMAT)
            link = properties is not None and properties.find(LINK) is not None
            yield Atom("text", properties, child.findtext(TEXT) or "", _format_key(properties), link)
        elif child.tag == BREAK:
            yield Atom("break", [child])
        elif child.tag == FIELD:
            yield Atom("node", [child], child.findtext(TEXT) or "")
        elif child.tag not in (PARAGRAPH_FORMAT, END_FORMAT):
            yield Atom("node", [child])


def _format_key(properties: Any) -> str:
    """Return a format as a string for comparisons, without the language, which a translation changes."""
    if properties is None:
        return ""
    attributes = sorted((name, value) for name, value in properties.items() if name not in NOT_FORMATS)
    children = (etree.tostring(child, encoding="unicode", with_tail=False) for child in properties)
    return "".join((*(f"{name}={value} " for name, value in attributes), *children))


def replace_content(paragraph: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Replace the content of a paragraph by new segments.

    paragraph: element of the paragraph.
    lines: lines of the paragraph.
    segments: new segment of each line.
    """
    end = paragraph.find(END_FORMAT)
    for child in list(paragraph):
        if child.tag != PARAGRAPH_FORMAT:
            paragraph.remove(child)
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            if output.kind == "text":
                paragraph.append(_new_run(output.element, output.text))
            else:
                paragraph.extend(output.element)
    if end is not None:
        paragraph.append(end)


def _new_run(properties: Any, text: str) -> Any:
    run = etree.Element(RUN)
    if properties is not None:
        properties = deepcopy(properties)
        for name in ("lang", "altLang"):
            properties.attrib.pop(name, None)
        run.append(properties)
    etree.SubElement(run, TEXT).text = text
    return run
