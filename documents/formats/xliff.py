"""XLIFF 1.2 and 2.0, by lxml: a unit without a translation gets one; inline elements go along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

from lxml import etree

from documents.archive import append_text, parse_xml, write_xml
from documents.document import Document, unreadable
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

KIND_NAME: Final = "XLIFF 1.2 or 2.0"
VERSION_1, VERSION_2 = "urn:oasis:names:tc:xliff:document:1.2", "urn:oasis:names:tc:xliff:document:2.0"
UNITS: Final = {VERSION_1: "trans-unit", VERSION_2: "segment"}
AROUND: Final = frozenset(
    {"g", "mrk", "pc"}
)  # inline elements with text in them; all others stay as they are
XML_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"


def read_xliff(data: bytes) -> Document:
    """Read the sources of units that have no target yet and may be translated.

    Raises Unreadable on a file that is no XLIFF, OversizedDocument on one with too many elements.
    """
    root = parse_xml(data, KIND_NAME)
    name = etree.QName(root)
    if name.localname != "xliff" or name.namespace not in UNITS:
        raise unreadable(KIND_NAME)
    units = [unit for unit in root.iter(f"{{{name.namespace}}}{UNITS[name.namespace]}") if _is_open(unit)]
    targets = [(unit, _target(unit)) for unit in units]
    paragraphs = Paragraphs(
        [(place, lines_of(list(_atoms(place)))) for _, target in targets for place in _places(target)]
    )

    def write(segments: Sequence[Segment]) -> bytes:
        for unit, target in targets:
            _attach(unit, target)
        paragraphs.fill(segments, _fill)
        return write_xml(root)

    return Document(paragraphs.segments, write)


def _is_open(unit: Any) -> bool:
    """Whether a unit waits for a translation, and may have one by what stands around it."""
    target = unit.find("{*}target")
    if unit.find("{*}source") is None or (
        target is not None and (len(target) or (target.text or "").strip())
    ):
        return False
    around = (each.get("translate") for each in (unit, *unit.iterancestors()))
    return next((word for word in around if word), "yes") != "no"


def _target(unit: Any) -> Any:
    """A copy of the source, cut into sentences where the unit has it so."""
    cut = unit.find("{*}seg-source")
    source = unit.find("{*}source")
    target = deepcopy(source if cut is None else cut)
    target.tag = etree.QName(etree.QName(source).namespace, "target")
    target.tail = source.tail
    target.attrib.clear()
    if (space := source.get(XML_SPACE)) is not None:
        target.set(XML_SPACE, space)
    return target


def _places(target: Any) -> list[Any]:
    """The elements that are translated as one: the sentences that a target is cut into, or the whole."""
    return [mark for mark in target.iter("{*}mrk") if mark.get("mtype") == "seg"] or [target]


def _attach(unit: Any, target: Any) -> None:
    """Put a target behind the source; an empty one goes, its attributes but for the state stay."""
    old = unit.find("{*}target")
    if old is not None:
        for name, value in old.items():
            if name not in ("state", "state-qualifier"):
                target.set(name, value)
        unit.replace(old, target)
    else:
        before = unit.find("{*}seg-source")
        (unit.find("{*}source") if before is None else before).addnext(target)
    if etree.QName(unit).namespace == VERSION_2:
        unit.set("state", "translated")
    else:
        target.set("state", "needs-review-translation")


def _atoms(place: Any) -> Iterator[Atom]:
    yield Atom("text", None, place.text or "")
    for child in place:
        if _is_around(child):
            yield Atom("open", child)
            yield from _atoms(child)
            yield Atom("close", child)
        else:
            yield Atom("node", [child], "".join(child.itertext()) if _stays(child) else "")
        yield Atom("text", None, child.tail or "")


def _is_around(element: Any) -> bool:
    return isinstance(element.tag, str) and etree.QName(element).localname in AROUND and not _stays(element)


def _stays(element: Any) -> bool:
    """Whether an element holds text for a reader that no translator touches."""
    return bool(element.get("mtype") == "protected" or element.get("translate") == "no")


def _fill(place: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Put new segments in the place of an element's content."""
    for child in list(place):
        place.remove(child)
    place.text = None
    open_elements = [place]
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            if output.kind == "text":
                append_text(open_elements[-1], output.text)
            elif output.kind == "open":
                element = output.element
                shell = etree.SubElement(open_elements[-1], element.tag, dict(element.attrib))
                open_elements.append(shell)
            elif output.kind == "close":
                open_elements.pop()
            else:
                for element in output.element:
                    element.tail = None
                    open_elements[-1].append(element)
