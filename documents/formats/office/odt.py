"""OpenDocument texts, by lxml: paragraphs and headings of body, notes, frames, headers and footers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from lxml import etree

from documents.archive import append_text, open_archive, write_xml
from documents.document import Document, unreadable
from documents.inline import Atom, Line, Paragraphs, lines_of, outputs
from documents.spans import Segment

TEXT_NAMESPACE: Final = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
KIND_NAME: Final = "an OpenDocument text"
PARTS: Final = ("content.xml", "styles.xml")


def _qualified_name(name: str) -> str:
    return f"{{{TEXT_NAMESPACE}}}{name}"


PARAGRAPHS: Final = (_qualified_name("p"), _qualified_name("h"))
AROUND: Final = frozenset(map(_qualified_name, ("span", "a", "meta")))
LINK: Final = _qualified_name("a")
# fields with prose: typed text, and references to a text of the document
INPUT: Final = _qualified_name("text-input")
REFERENCES: Final = frozenset(map(_qualified_name, ("bookmark-ref", "reference-ref")))
REFERENCE_FORMAT: Final = _qualified_name("reference-format")
LINE_BREAK: Final = _qualified_name("line-break")
BREAKS: Final = frozenset((_qualified_name("tab"), LINE_BREAK))
STYLE: Final = _qualified_name("style-name")
STYLES, NAME, PARENT = (
    f"{{urn:oasis:names:tc:opendocument:xmlns:style:1.0}}{name}"
    for name in ("style", "name", "parent-style-name")
)
# names of styles for code, which is not translated
CODE_STYLE: Final = re.compile(
    r"source text|preformatted|teletype|user entry|example|variable", re.IGNORECASE
)
MAX_STYLE_DEPTH: Final = 8  # length of a chain of styles
SPACES: Final = _qualified_name("s")
SPACE_COUNT: Final = _qualified_name("c")
DROPPED: Final = frozenset({_qualified_name("soft-page-break")})
WHITE_SPACE: Final = re.compile(r"\s+")
FURTHER_SPACES: Final = re.compile(r"(?<= ) +")
LEADING_SPACES: Final = re.compile(r"(?<= ) +|^ +")


def read_odt(data: bytes) -> Document:
    """Return the prose of an OpenDocument text, without paragraphs and spans in a style for code.

    Raises Unreadable and OversizedDocument.
    """
    archive = open_archive(data, KIND_NAME)
    roots = archive.trees(PARTS)
    if "content.xml" not in roots:
        raise unreadable(KIND_NAME)
    code = _code_styles(roots.values())
    elements = (paragraph for root in roots.values() for paragraph in root.iter(*PARAGRAPHS))
    try:
        paragraphs = Paragraphs(
            [(p, lines_of(_atoms(p, code))) for p in elements if not _is_code(p.get(STYLE), code)]
        )
    except ValueError:
        raise unreadable(KIND_NAME) from None

    def write(segments: Sequence[Segment]) -> bytes:
        paragraphs.fill(segments, _replace_content)
        return archive.write({name: write_xml(root) for name, root in roots.items()})

    return Document(paragraphs.segments, write)


def _code_styles(roots: Iterable[Any]) -> frozenset[str]:
    """Return the names of the styles for code and of all styles based on them."""
    parents: dict[str, str] = {}
    for root in roots:
        for style in root.iter(STYLES):
            parents[style.get(NAME) or ""] = style.get(PARENT) or ""
    names = {*parents, *parents.values()}
    code = {name for name in names if _is_code(name, frozenset())}
    for _ in range(MAX_STYLE_DEPTH):
        code |= {name for name, parent in parents.items() if parent in code}
    return frozenset(code)


def _is_code(name: str | None, code: frozenset[str]) -> bool:
    """Return whether a style is in `code`, or has a usual name of a style for code."""
    return name is not None and (name in code or bool(CODE_STYLE.search(name.replace("_20_", " "))))


def _atoms(paragraph: Any, code: frozenset[str]) -> list[Atom]:
    """Return the atoms of a paragraph; white space is collapsed, except elements for several spaces."""
    atoms: list[Atom] = []
    space = True  # white space was last; ODF collapses white space
    for atom in _content(paragraph, code):
        if atom.kind == "text" and atom.format_key == "":
            text = WHITE_SPACE.sub(" ", atom.text)
            text = text[1:] if space and text.startswith(" ") else text
            space = text.endswith(" ") if text else space
            atoms.append(Atom("text", None, text))
        else:
            # an element such as a bookmark has no text, so white space before and after it is one space
            space = atom.kind == "split" or (space and atom.kind != "text" and not atom.text)
            # the format "spaces" only marked spaces that are not collapsed
            atoms.append(Atom("text", None, atom.text) if atom.kind == "text" else atom)
    return atoms


def _content(parent: Any, code: frozenset[str]) -> Iterator[Atom]:
    """Yield the atoms of an element in order, white space as stored; text in a style of `code` is a node."""
    yield Atom("text", None, parent.text or "")
    for child in parent:
        if child.tag in AROUND and _is_code(child.get(STYLE), code) and "".join(child.itertext()).strip():
            yield Atom("node", [child], "".join(child.itertext()))
        elif child.tag in AROUND or _is_prose_field(child):
            yield Atom("open", child, link=child.tag == LINK)
            yield from _content(child, code)
            yield Atom("close", child)
        elif child.tag == SPACES:
            yield Atom("text", None, " " * min(int(child.get(SPACE_COUNT, "1")), 1_000), "spaces")
        elif child.tag in BREAKS:
            yield Atom("break" if child.tag == LINE_BREAK else "split", [child])
        elif child.tag not in DROPPED:
            yield Atom("node", [child], _field_text(child))
        yield Atom("text", None, child.tail or "")


def _field_text(element: Any) -> str:
    """Return the text of a field, "" for another element."""
    is_field = not len(element) and element.tag.startswith(f"{{{TEXT_NAMESPACE}}}")
    return (element.text or "") if is_field else ""


def _is_prose_field(element: Any) -> bool:
    """Return whether an element is an input field or a reference whose text has letters."""
    # other references are numbers, such as the number of a page
    if element.tag == INPUT or (element.tag in REFERENCES and element.get(REFERENCE_FORMAT) == "text"):
        return any(map(str.isalpha, "".join(element.itertext())))
    return False


def _replace_content(paragraph: Any, lines: Sequence[Line], segments: Sequence[Segment]) -> None:
    """Replace the content of a paragraph by new segments."""
    for child in list(paragraph):
        paragraph.remove(child)
    paragraph.text = None
    places = [paragraph]
    space = True  # at the beginning, or after a space, the next space must be an element
    for line, segment in zip(lines, segments, strict=True):
        for output in outputs(line, segment):
            if output.kind == "text":
                _append_text(places[-1], output.text, LEADING_SPACES if space else FURTHER_SPACES)
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


def _append_text(place: Any, text: str, spaces: re.Pattern[str]) -> None:
    """Append text to an element; the spaces that ODF would collapse become elements.

    place: last open element.
    text: new text.
    spaces: pattern of the spaces that become elements.
    """
    position = 0
    for match in spaces.finditer(text):
        append_text(place, text[position : match.start()])
        etree.SubElement(place, SPACES, {SPACE_COUNT: str(len(match[0]))})
        position = match.end()
    append_text(place, text[position:])
