"""OpenDocument texts, by lxml: paragraphs and headings of the body, notes, frames, headers and footers."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lxml import etree

from documents.document import Document, damaged, open_archive
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

SPACE_OF: Final = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
KIND: Final = "an OpenDocument text"
PARTS: Final = ("content.xml", "styles.xml")


def _named(name: str) -> str:
    return f"{{{SPACE_OF}}}{name}"


PARAGRAPHS: Final = (_named("p"), _named("h"))
AROUND: Final = frozenset(map(_named, ("span", "a", "meta")))
BREAKS: Final = frozenset(map(_named, ("tab", "line-break")))
SPACES: Final = _named("s")
COUNT: Final = _named("c")
DROPPED: Final = frozenset({_named("soft-page-break")})
SPACE: Final = re.compile(r"\s+")
SEVERAL: Final = re.compile(r"(?<= ) +")
FIRST: Final = re.compile(r"(?<= ) +|^ +")


def read_odt(data: bytes) -> Document:
    """Raises Unreadable on a file that is no .odt, Swollen on one that grows too large."""
    try:
        with open_archive(data, KIND) as archive:
            entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
        roots = {entry.filename: _parse(raw) for entry, raw in entries if entry.filename in PARTS}
        if "content.xml" not in roots:
            raise damaged(KIND)
        found = [paragraph for root in roots.values() for paragraph in root.iter(*PARAGRAPHS)]
        paragraphs = Paragraphs([(paragraph, lines_of(_atoms(paragraph))) for paragraph in found])
    except (ValueError, zipfile.BadZipFile, etree.XMLSyntaxError, RuntimeError, OSError, NotImplementedError):
        raise damaged(KIND) from None

    def write(segments: Sequence[Segment]) -> bytes:
        paragraphs.fill(segments, _fill)
        found = io.BytesIO()
        with zipfile.ZipFile(found, "w") as archive:
            for entry, raw in entries:  # in their order: the first, "mimetype", stays first and not packed
                root = roots.get(entry.filename)
                new_raw = (
                    raw if root is None else etree.tostring(root, xml_declaration=True, encoding="UTF-8")
                )
                archive.writestr(entry, new_raw, entry.compress_type)
        return found.getvalue()

    return Document(paragraphs.segments, write)


def _parse(raw: bytes) -> Any:
    return etree.fromstring(raw, etree.XMLParser(resolve_entities=False, no_network=True))


def _atoms(paragraph: Any) -> list[Atom]:
    found: list[Atom] = []
    space = True  # white space was last; several are one, as ODF has it
    for atom in _content(paragraph):
        if atom.kind == "text" and atom.look == "":
            text = SPACE.sub(" ", atom.text)
            text = text[1:] if space and text.startswith(" ") else text
            space = text.endswith(" ") if text else space
            found.append(Atom("text", None, text))
        else:
            space = atom.kind == "split" or (space and atom.kind != "text")
            found.append(Atom("text", None, atom.text) if atom.kind == "text" else atom)
    return found


def _content(parent: Any) -> Iterator[Atom]:
    yield Atom("text", None, parent.text or "")
    for child in parent:
        if child.tag in AROUND:
            yield Atom("open", child)
            yield from _content(child)
            yield Atom("close", child)
        elif child.tag == SPACES:
            yield Atom("text", None, " " * min(int(child.get(COUNT, "1")), 1_000), "spaces")
        elif child.tag in BREAKS:
            yield Atom("split", [child])
        elif child.tag not in DROPPED:
            yield Atom("node", [child])
        yield Atom("text", None, child.tail or "")


def _fill(paragraph: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Put new segments in the place of a paragraph's content."""
    for child in list(paragraph):
        paragraph.remove(child)
    paragraph.text = None
    places = [paragraph]
    space = True  # at the beginning, or after a space, the next one counts only as an element
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            if output.kind == "text":
                _append(places[-1], output.text, FIRST if space else SEVERAL)
                space = output.text.endswith(" ")
            elif output.kind == "open":
                element = output.element
                places.append(etree.SubElement(places[-1], element.tag, dict(element.attrib), element.nsmap))
            elif output.kind == "close":
                places.pop()
            else:
                for element in output.element:
                    element.tail = None
                    places[-1].append(element)


def _append(place: Any, text: str, spaces: re.Pattern[str]) -> None:
    """Text at the end of an element, with the spaces that ODF writes as elements."""
    position = 0
    for found in spaces.finditer(text):
        _characters(place, text[position : found.start()])
        etree.SubElement(place, SPACES, {COUNT: str(len(found[0]))})
        position = found.end()
    _characters(place, text[position:])


def _characters(place: Any, text: str) -> None:
    if len(place):
        place[-1].tail = (place[-1].tail or "") + text
    else:
        place.text = (place.text or "") + text
