"""Word documents (Office Open XML), opened and saved by python-docx.

Translates paragraphs of the body, tables, text boxes, headers, footers, notes and comments; runs, links and
insertions keep their formats. Prose in fields and content controls is translated: the text of a link or a
reference, and text typed into a form. Numbers, dates and pictures are not changed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from docx import Document as open_docx
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import qn
from lxml import etree

from documents.archive import open_archive
from documents.document import Document, unreadable
from documents.inline import Atom, Line, Output, Paragraphs, lines_of, outputs
from documents.spans import Segment

PARTS: Final = re.compile(r"/word/(document|(header|footer)\d*|footnotes|endnotes|comments)\.xml")
LINK: Final = qn("w:hyperlink")
AROUND: Final = frozenset(map(qn, ("w:hyperlink", "w:ins", "w:smartTag", "w:moveTo")))
BREAKS: Final = frozenset(map(qn, ("w:br", "w:cr", "w:tab", "w:ptab")))
LINE_BREAKS: Final = frozenset(map(qn, ("w:br", "w:cr")))
BREAK_TYPE: Final = qn("w:type")
SOFT: Final = "textWrapping"  # other breaks begin a page or a column
SIGNS: Final = {qn("w:noBreakHyphen"): "\u2011", qn("w:softHyphen"): "\u00ad"}
DROPPED: Final = frozenset(map(qn, ("w:lastRenderedPageBreak", "w:proofErr", "w:rPr")))
NO_RUN: Final = object()  # format of an element that is not part of a run
SIMPLE_FIELD, CONTROL, CONTROL_CONTENT = qn("w:fldSimple"), qn("w:sdt"), qn("w:sdtContent")
# fields with prose, by the first word of the instruction
PROSE_FIELDS: Final = frozenset({"HYPERLINK", "REF", "STYLEREF", "QUOTE"})
# content controls with a value that a program chooses or updates
KEPT_CONTROLS: Final = frozenset(
    (
        *map(qn, ("w:date", "w:dropDownList", "w:comboBox", "w:citation", "w:bibliography", "w:dataBinding")),
        "{http://schemas.microsoft.com/office/word/2010/wordml}checkbox",
    )
)
PARAGRAPH, RUN, TEXT = qn("w:p"), qn("w:r"), qn("w:t")
PSTYLE, RSTYLE = qn("w:pStyle"), qn("w:rStyle")
# names of styles for code, which is not translated
CODE_STYLE: Final = re.compile(
    r"\b(?:source|html) ?(?:code|text|preformatted|keyboard|sample|variable)\b|\bcode\b|verbatim|\bmacro\b"
    r"|preformatted|teletype|monospace|quelltext|listing",
    re.IGNORECASE,
)
MAX_STYLE_DEPTH: Final = 8  # length of a chain of styles


def read_docx(data: bytes) -> Document:
    """Return the prose of a Word document, without paragraphs and runs in a style for code.

    Raises Unreadable and OversizedDocument.
    """
    open_archive(data, "a Word document")
    try:
        file = open_docx(io.BytesIO(data))
        roots = [
            (part, _root(part)) for part in file.part.package.iter_parts() if PARTS.fullmatch(part.partname)
        ]
    except (KeyError, ValueError, OSError, AttributeError, etree.XMLSyntaxError):
        raise unreadable("a Word document") from None
    code = _code_styles(file.styles.element)
    elements = (paragraph for _, root in roots for paragraph in root.iter(PARAGRAPH))
    paragraphs = Paragraphs(
        [
            (p, lines_of(_atoms(p, code)))
            for p in elements
            if not _has_style(p.find(qn("w:pPr")), PSTYLE, code)
        ]
    )

    def write(segments: Sequence[Segment]) -> bytes:
        paragraphs.fill(segments, _replace_content)
        for part, root in roots:
            if not hasattr(part, "element"):
                part._blob = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
        written = io.BytesIO()
        file.save(written)
        return written.getvalue()

    return Document(paragraphs.segments, write)


def _root(part: Any) -> Any:
    """Return the root element of a part; python-docx parses only some parts."""
    return part.element if hasattr(part, "element") else parse_xml(part.blob)


def _code_styles(styles: Any) -> frozenset[str]:
    """Return the ids of the styles for code and of all styles based on them."""
    names, parents = dict[str, str](), dict[str, str]()
    for style in styles.iter(qn("w:style")):
        number, name, based = (
            style.get(qn("w:styleId")),
            style.find(qn("w:name")),
            style.find(qn("w:basedOn")),
        )
        if number is not None and name is not None:
            names[number] = name.get(qn("w:val")) or ""
            parents[number] = "" if based is None else based.get(qn("w:val")) or ""
    code = {number for number, name in names.items() if CODE_STYLE.search(name)}
    for _ in range(MAX_STYLE_DEPTH):
        code |= {number for number, parent in parents.items() if parent in code}
    return frozenset(code)


def _has_style(properties: Any, tag: str, styles: frozenset[str]) -> bool:
    """Return whether the element `tag` of the properties names one of the styles."""
    style = None if properties is None else properties.find(tag)
    return style is not None and style.get(qn("w:val")) in styles


def _atoms(paragraph: Any, code: frozenset[str]) -> list[Atom]:
    """Return the atoms of a paragraph, with the runs of code and of fields joined."""
    return list(_fields(list(_join_code_runs(_content(paragraph, code)))))


def _join_code_runs(atoms: Iterator[Atom]) -> Iterator[Atom]:
    """Yield the atoms; consecutive runs of code become one atom."""
    last: Atom | None = None
    for atom in atoms:
        if last and last.text and atom.text and last.kind == atom.kind == "node":
            last = Atom("node", [*last.element, *atom.element], last.text + atom.text)
            continue
        if last:
            yield last
        last = atom
    if last:
        yield last


def _content(parent: Any, code: frozenset[str]) -> Iterator[Atom]:
    """Yield the atoms of the children of an element."""
    for child in parent:
        if child.tag == RUN:
            yield from _run_atoms(child, code)
        elif (content := _content_of(child)) is not None:
            yield Atom("open", child, link=child.tag == LINK)
            yield from _content(content, code)
            yield Atom("close", child)
        elif child.tag in (SIMPLE_FIELD, CONTROL):
            yield Atom("node", [(NO_RUN, child)], "".join(child.itertext(TEXT)))
        elif child.tag not in DROPPED and child.tag != qn("w:pPr"):
            yield Atom("node", [(NO_RUN, child)])


def _content_of(element: Any) -> Any:
    """Return the parent of the runs in an element; None: the element is not translated."""
    if element.tag in AROUND:
        return element
    if element.tag == SIMPLE_FIELD and _is_prose(element.get(qn("w:instr")), element.itertext(TEXT)):
        return element
    if element.tag == CONTROL:
        properties = element.find(qn("w:sdtPr"))
        kept = properties is not None and any(child.tag in KEPT_CONTROLS for child in properties)
        return None if kept else element.find(CONTROL_CONTENT)
    return None


def _is_prose(instruction: str | None, result: Iterable[str]) -> bool:
    """Return whether the result of a field is prose.

    instruction: code of the field, such as "REF chapter1".
    result: texts that the field displays.
    """
    words = (instruction or "").split(maxsplit=1)
    return bool(words) and words[0].upper() in PROSE_FIELDS and any(map(str.isalpha, "".join(result)))


def _run_atoms(run: Any, code: frozenset[str]) -> Iterator[Atom]:
    """Yield the atoms of a run: its texts in one format, breaks and other elements."""
    properties = run.find(qn("w:rPr"))
    format_key, stays = _format_key(properties), _has_style(properties, RSTYLE, code)
    for child in run:
        if child.tag == TEXT and stays and child.text:
            yield Atom("node", [(properties, child)], child.text)
        elif child.tag == TEXT:
            yield Atom("text", properties, child.text or "", format_key)
        elif child.tag in SIGNS:
            yield Atom("text", properties, SIGNS[child.tag], format_key)
        elif child.tag in LINE_BREAKS and child.get(BREAK_TYPE, SOFT) == SOFT:
            yield Atom("break", [(properties, child)])
        elif child.tag in BREAKS:
            yield Atom("split", [(properties, child)])
        elif child.tag not in DROPPED:
            yield Atom("node", [(properties, child)])


@dataclass(frozen=True, slots=True)
class _Field:
    """The elements before and after the result of a field, with the properties of their runs.

    head: elements of the instruction.
    tail: elements of the end.
    """

    head: list[tuple[Any, Any]]
    tail: list[tuple[Any, Any]]


def _fields(atoms: Sequence[Atom], *, prose: bool = True) -> Iterator[Atom]:
    """Yield the atoms; each field, such as a page number or a date, becomes one node.

    atoms: content of a paragraph, or of the result of a field.
    prose: translate results that are prose: such a field becomes an "open" and a "close" around its result.
    """
    ends = _field_ends(atoms)
    position = 0
    while position < len(atoms):
        end = ends.get(position)
        if end is None:
            yield atoms[position]
            position += 1
            continue
        field = atoms[position : end + 1]
        first = _result_place(field) if prose else None
        if first is None:
            nodes = [node for atom in field for node in _nodes(atom)]
            yield Atom("node", nodes, "".join(_texts(field)))
        else:
            shell = _Field([node for atom in field[:first] for node in _nodes(atom)], _nodes(field[-1]))
            yield Atom("open", shell, link=True)
            yield from _fields(field[first:-1], prose=False)
            yield Atom("close", shell)
        position = end + 1


def _result_place(field: Sequence[Atom]) -> int | None:
    """Return the index of the first atom of the result of a field, or None if the result is no prose.

    field: atoms from the mark "begin" to the mark "end"; between "begin" and "separate" is its instruction.
    """
    depth, instruction = 0, list[str]()
    for position, atom in enumerate(field):
        kind = _field_kind(atom)
        depth += (kind == "begin") - (kind == "end")
        if kind == "separate" and depth == 1:
            is_prose = _is_prose("".join(instruction), _texts(field[position:]))
            return position + 1 if is_prose else None
        if atom.kind == "node":
            instruction += [node.text or "" for _, node in atom.element if node.tag == qn("w:instrText")]
    return None


def _texts(atoms: Sequence[Atom]) -> Iterator[str]:
    return (atom.text for atom in atoms if atom.kind == "text")


def _field_ends(atoms: Sequence[Atom]) -> dict[int, int]:
    """Return the index of the last atom by index of the first, for outermost fields that begin and end in
    the same element."""
    ends: dict[int, int] = {}
    begun: list[int] = []
    for position, atom in enumerate(atoms):
        if atom.kind in ("open", "close"):
            begun.clear()  # a field across the edge of an element is no unit
        kind = _field_kind(atom)
        if kind == "begin":
            begun.append(position)
        elif kind == "end" and begun:
            first = begun.pop()
            if not begun:
                ends[first] = position
    return ends


def _field_kind(atom: Atom) -> str | None:
    """Return "begin", "separate" or "end" for the mark of a field; None: the atom is no such mark."""
    if atom.kind != "node" or atom.element[0][1].tag != qn("w:fldChar"):
        return None
    kind: str | None = atom.element[0][1].get(qn("w:fldCharType"))
    return kind


def _nodes(atom: Atom) -> list[tuple[Any, Any]]:
    """Return the elements of an atom, each with the properties of its run."""
    if atom.kind == "text":
        return [(atom.element, _text_element(atom.text))]
    return list(atom.element)


def _text_element(text: str) -> Any:
    element = OxmlElement("w:t")
    element.text = text
    element.set(qn("xml:space"), "preserve")
    return element


def _format_key(properties: Any) -> str:
    """Return a format as a string for comparisons, without the language, which a translation changes."""
    if properties is None:
        return ""
    properties = deepcopy(properties)
    for child in list(properties):
        if child.tag in (qn("w:lang"), qn("w:noProof")):
            properties.remove(child)
    return "".join(etree.tostring(child, encoding="unicode") for child in properties)


def _replace_content(paragraph: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Replace the content of a paragraph by new segments."""
    for child in list(paragraph):
        if child.tag != qn("w:pPr"):
            paragraph.remove(child)
    places = [paragraph]
    for line, segment in zip(lines, segments, strict=True):
        for output in _stacked(line, segment):
            if output.kind == "text":
                places[-1].append(_run_of(output.element, _text_element(output.text)))
            elif output.kind == "open":
                places.append(_append_copy(places[-1], output.element))
            elif output.kind == "close":
                places.pop()
                if isinstance(output.element, _Field):
                    _append_elements(places[-1], output.element.tail)
            else:
                _append_elements(places[-1], output.element)


def _stacked(line: Line, segment: Segment) -> Iterator[Output]:
    """Yield the parts of a line with a new segment, and those of the original above or below it."""
    parts = list(outputs(line, segment))
    if segment.original is None:
        yield from parts
        return
    last = [parts.pop()] if line.broken is not None else []
    line_break = Output("node", [(None, OxmlElement("w:br"))])
    original = [part for part in outputs(line, segment.original) if part.kind == "text"]
    first, second = (parts, original) if segment.below else (original, parts)
    yield from (*first, line_break, *second, *last)


def _append_copy(place: Any, around: Any) -> Any:
    """Append a copy of an element around runs, and return the parent of its runs."""
    if isinstance(around, _Field):
        _append_elements(place, around.head)
        return place
    shell = etree.SubElement(place, around.tag, dict(around.attrib))
    if around.tag != CONTROL:
        return shell
    for child in around:
        shell.append(etree.Element(CONTROL_CONTENT) if child.tag == CONTROL_CONTENT else deepcopy(child))
    return shell.find(CONTROL_CONTENT)


def _append_elements(place: Any, nodes: Iterable[tuple[Any, Any]]) -> None:
    """Append elements; an element of a run gets a new run."""
    for properties, child in nodes:
        place.append(child if properties is NO_RUN else _run_of(properties, child))


def _run_of(properties: Any, child: Any) -> Any:
    """Return a new run with one child and a copy of the properties, without the language of the source."""
    run = OxmlElement("w:r")
    if properties is not None:
        properties = deepcopy(properties)
        for language in properties.findall(qn("w:lang")):
            properties.remove(language)
        run.append(properties)
    run.append(child)
    return run
