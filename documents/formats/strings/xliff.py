"""XLIFF 1 and 2, by lxml: translates units without a target, with their inline elements.

lxml parses the units; a second pass over the text finds the positions of their targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from lxml import etree

from documents.archive import append_text, parse_xml
from documents.document import Document, unreadable
from documents.formats.plain import decode
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

KIND_NAME: Final = "XLIFF 1.2 or 2"
NAMESPACE: Final = "urn:oasis:names:tc:xliff:document:"  # missing in files of old tools
UNITS: Final = {"1": "trans-unit", "2": "segment"}  # name of a unit by the first digit of the version
AROUND: Final = frozenset({"g", "mrk", "pc", "hi"})  # inline elements around text; others are not changed
XML_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
# markup of a well-formed file: comments and the like, or a tag with the groups closing, name and empty
MARKUP: Final = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE[^\[>]*+(?:\[.*?\]\s*+)?>"
    r"|<(/?)([^\s/>\"'=!?]++)(?:[^>\"'/]++|\"[^\"]*+\"|'[^']*+'|/(?!>))*+(/?)>",
    re.DOTALL,
)
LINE_BREAK: Final = re.compile(r"(?<![ \t])[ \t]*+\n\s*+")
END_MARKS: Final = ".!?…:;"
# codes that begin and end a format, with the attributes that have the same value in both
OPENING_CODES: Final = {"bpt": ("rid", "id", "i"), "sc": ("id",)}
CLOSING_CODES: Final = {"ept": ("bpt", ("rid", "id", "i")), "ec": ("sc", ("startRef",))}
CODE_OF_TAG: Final = re.compile(r"\s*<(/?)([a-zA-Z][\w:-]*+)[^<>]*(?<!/)>\s*")  # text of a paired `ph`
STATE: Final = re.compile(r"\sstate\s*=\s*(?:\"[^\"]*\"|'[^']*')")


@dataclass(slots=True)
class _Place:
    """The position of a unit in a file.

    head: characters [begin, end) of its opening tag.
    target: characters [begin, end) of an empty target, or the empty range where a target belongs.
    """

    head: tuple[int, int]
    target: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two codes around text, such as `bpt` and `ept`, or two `ph` with an opening and a closing tag."""

    head: Any
    tail: Any


def read_xliff(data: bytes) -> Document:
    """Return the sources of units that have no target and may be translated.

    Raises Unreadable and OversizedDocument.
    """
    root = parse_xml(data, KIND_NAME)
    name = etree.QName(root)
    version = name.namespace.removeprefix(NAMESPACE) if name.namespace else root.get("version", "")
    kind = UNITS.get(version[:1])
    if name.localname != "xliff" or kind is None:
        raise unreadable(KIND_NAME)
    file = decode(data, root.getroottree().docinfo.encoding or "utf-8")
    units, places = list(root.iter(f"{{*}}{kind}")), list(_unit_places(file.text, kind))
    if len(units) != len(places):
        raise unreadable(KIND_NAME)
    open_units = [
        (unit, place, _target(unit)) for unit, place in zip(units, places, strict=True) if _is_open(unit)
    ]
    newline = "\r\n" if "\r\n" in file.text else "\n"
    paragraphs = Paragraphs(
        [(part, lines_of(list(content_atoms(part)))) for *_, target in open_units for part in _parts(target)]
    )

    def write(segments: Sequence[Segment]) -> bytes:
        paragraphs.fill(segments, replace_content)
        parts, position = list[str](), 0
        for unit, place, target in open_units:
            begin, end = place.head
            head = file.text[begin:end] if kind == UNITS["1"] else _translated_head(file.text[begin:end])
            parts += [
                file.text[position:begin],
                head,
                file.text[end : place.target[0]],
                _target_xml(unit, target).replace("\n", newline),
            ]
            position = place.target[1]
        return file.encode("".join([*parts, file.text[position:]]), "xmlcharrefreplace")

    return Document(paragraphs.segments, write)


def _unit_places(text: str, kind: str) -> Iterator[_Place]:
    """Yield the position of each unit. Its `target` is set later, when the whole text has been read.

    text: the file.
    kind: name of a unit.

    A new target belongs after the `source`, or after the `seg-source`, which has its sentences.
    """
    depth, places = 0, dict[int, _Place]()  # open units by depth
    for match in MARKUP.finditer(text):
        closing, tag, empty = match.groups()
        if tag is None:
            continue
        name = tag.rpartition(":")[2]
        depth -= bool(closing)
        place = places.get(depth - 1)  # the unit, if this tag is directly in one
        if name == kind and not closing:
            places[depth] = _Place(match.span())
            yield places[depth]
        elif place and name in ("source", "seg-source") and (closing or empty):
            place.target = (match.end(), match.end())
        elif place and name == "target":
            place.target = (place.target[0] if closing else match.start(), match.end())
        if closing or empty:  # the element has ended
            places.pop(depth, None)
        depth += not (closing or empty)


def _is_open(unit: Any) -> bool:
    """Return whether a unit has no translation, and `translate` of it and its ancestors allows one."""
    target = unit.find("{*}target")
    if unit.find("{*}source") is None or (target is not None and _has_content(target)):
        return False
    flags = (element.get("translate") for element in (unit, *unit.iterancestors()))
    return next((flag for flag in flags if flag), "yes") != "no"


def _has_content(target: Any) -> bool:
    """Return whether a target has text or codes; tools write empty sentences (`mrk`) into new targets."""
    codes = (child for child in target.iter("*") if child is not target and not _is_sentence(child))
    return bool("".join(target.itertext()).strip()) or next(codes, None) is not None


def _is_sentence(element: Any) -> bool:
    is_mark: bool = etree.QName(element).localname == "mrk"
    return is_mark and element.get("mtype") == "seg"


def _target(unit: Any) -> Any:
    """Return a target with the content of `seg-source`, or of `source`."""
    cut = unit.find("{*}seg-source")
    source = unit.find("{*}source")
    content = deepcopy(source if cut is None else cut)
    # with the namespace prefixes of the file
    target = etree.Element(etree.QName(etree.QName(source).namespace, "target"), nsmap=unit.nsmap)
    target.text = content.text
    target.extend(content)
    if (space := source.get(XML_SPACE)) is not None:
        target.set(XML_SPACE, space)
    return target


def _parts(target: Any) -> list[Any]:
    """Return the elements with one text each: the sentences of a target, or the target."""
    return [mark for mark in target.iter("{*}mrk") if mark.get("mtype") == "seg"] or [target]


def _target_xml(unit: Any, target: Any) -> str:
    """Return the XML of a target. An existing empty target keeps its attributes except the state."""
    old = unit.find("{*}target")
    for name, value in () if old is None else old.items():
        if name not in ("state", "state-qualifier"):
            target.set(name, value)
    if etree.QName(unit).localname == UNITS["1"]:
        target.set("state", "needs-review-translation")
    raw: str = etree.tostring(target, encoding="unicode", with_tail=False)
    # lxml repeats namespace declarations that an element around the target already has
    for prefix, address in unit.nsmap.items():
        raw = raw.replace(f' xmlns{f":{prefix}" if prefix else ""}="{address}"', "", 1)
    # a new target gets the white space that is before the source, as an indent
    before = unit.find("{*}source").getprevious()
    space = (unit.text if before is None else before.tail) or ""
    return space + raw if old is None and space.isspace() else raw


def _translated_head(head: str) -> str:
    """Return the opening tag of a segment with the state "translated"."""
    head = STATE.sub("", head)
    end = len(head) - (2 if head.endswith("/>") else 1)
    return f'{head[:end]} state="translated"{head[end:]}'


def content_atoms(element: Any) -> Iterator[Atom]:
    """Yield the atoms of an element: its text, elements around text, and codes as nodes."""
    yield from _text_atoms(element, element.text)
    pairs = _pairs(element)
    for child in element:
        if pair := pairs.get(child):
            yield Atom("open" if child is pair.head else "close", pair)
        elif _is_around(child):
            yield Atom("open", child)
            yield from content_atoms(child)
            yield Atom("close", child)
        else:
            yield Atom("node", [child], "".join(child.itertext()) if _is_protected(child) else "")
        yield from _text_atoms(element, child.tail)


def _text_atoms(element: Any, text: str | None) -> Iterator[Atom]:
    """Yield the atoms of a text in an element: without `xml:space`, a line break is white space."""
    spaces = (parent.get(XML_SPACE) for parent in (element, *element.iterancestors()))
    if not text or "\n" not in text or next((space for space in spaces if space), "") == "preserve":
        yield Atom("text", None, text or "")
        return
    position = 0
    for match in LINE_BREAK.finditer(text):
        before = text[position : match.start()]
        yield Atom("text", None, before)
        ends = not before or before[-1] in END_MARKS or match.end() == len(text)
        yield Atom("split" if ends else "space", [match[0]])
        position = match.end()
    yield Atom("text", None, text[position:])


def _pairs(parent: Any) -> dict[Any, _Pair]:
    """Return the pair of each child of an element that begins or ends a format; pairs don't cross."""
    pairs, opened = dict[Any, _Pair](), list[tuple[tuple[str, ...], Any]]()
    for child in parent:
        if _is_around(child):
            opened.clear()  # a pair across the edge of an element is no unit
            continue
        key, opens = _pair_key(child)
        if key and opens:
            opened.append((key, child))
        elif key and opened and opened[-1][0] == key:
            pair = _Pair(opened.pop()[1], child)
            pairs[pair.head] = pairs[pair.tail] = pair
    return pairs


def _pair_key(code: Any) -> tuple[tuple[str, ...], bool]:
    """Return the key that both codes of a pair have, () for another code, and whether the code begins it."""
    if not isinstance(code.tag, str):
        return (), False
    name = etree.QName(code).localname
    if name in OPENING_CODES:
        return (name, _first(code, OPENING_CODES[name])), True
    if name in CLOSING_CODES:
        head, attributes = CLOSING_CODES[name]
        return (head, _first(code, attributes)), False
    tag = CODE_OF_TAG.fullmatch("".join(code.itertext())) if name in ("ph", "it") else None
    return (("", tag[2]), not tag[1]) if tag else ((), False)


def _first(element: Any, attributes: Sequence[str]) -> str:
    """Return the value of the first attribute that an element has."""
    return next((element.get(name) for name in attributes if element.get(name)), "")


def _is_around(element: Any) -> bool:
    return (
        isinstance(element.tag, str)
        and etree.QName(element).localname in AROUND
        and not _is_protected(element)
    )


def _is_protected(element: Any) -> bool:
    """Return whether the text of an element must not be translated."""
    return bool(element.get("mtype") == "protected" or element.get("translate") == "no")


def replace_content(place: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Replace the content of an element by new segments.

    place: a target, or a sentence in it.
    lines: old lines of the element.
    segments: new segment of each line.
    """
    for child in list(place):
        place.remove(child)
    place.text = None
    open_elements = [place]
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            if output.kind == "text":
                append_text(open_elements[-1], output.text)
            elif output.kind == "open" and isinstance(output.element, _Pair):
                open_elements[-1].append(_without_tail(output.element.head))
            elif output.kind == "close" and isinstance(output.element, _Pair):
                open_elements[-1].append(_without_tail(output.element.tail))
            elif output.kind == "open":
                element = output.element
                shell = etree.SubElement(open_elements[-1], element.tag, dict(element.attrib))
                open_elements.append(shell)
            elif output.kind == "close":
                open_elements.pop()
            else:
                for element in output.element:
                    if isinstance(element, str):  # a line break
                        append_text(open_elements[-1], element)
                        continue
                    open_elements[-1].append(_without_tail(element))


def _without_tail(element: Any) -> Any:
    element.tail = None
    return element
