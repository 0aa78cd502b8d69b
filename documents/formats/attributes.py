"""Prose in attributes of HTML: `alt`, `title`, `placeholder` and descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Final

from documents.formats.html import Page, read_html
from documents.formats.tags import HTML, Piece, pieces
from documents.spans import Segment

READ: Final = frozenset({"alt", "title", "placeholder", "aria-label", "aria-description"})
# names of <meta>
DESCRIPTIONS: Final = re.compile(r"(?:.*[:.])?(?:description|title|image:alt)", re.IGNORECASE)
NAME: Final = re.compile(r"<[a-zA-Z][^\s/>]*")
ATTRIBUTE: Final = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'=<>`]+)))?")


@dataclass(frozen=True, slots=True)
class AttributeValue:
    """The value of an attribute: characters [begin, end) of a page, and their segment."""

    begin: int
    end: int
    segment: Segment


@dataclass(frozen=True, slots=True)
class AttributedPage:
    """A page; its segments are its prose, followed by the prose in attributes.

    source: text of the page.
    page: prose of the page.
    values: prose in attributes.
    """

    source: str
    page: Page
    values: list[AttributeValue]

    @property
    def segments(self) -> list[Segment]:
        return [*self.page.segments, *(value.segment for value in self.values)]

    def join(self, segments: Sequence[Segment]) -> str:
        """Return the page with a new segment for each old one; the old segments give the same page."""
        count = len(self.page.segments)
        parts, position = list[str](), 0
        for value, segment in zip(self.values, segments[count:], strict=True):
            if segment is not value.segment:
                parts += [self.source[position : value.begin], escape(segment.text)]
                position = value.end
        page = read_html("".join([*parts, self.source[position:]])) if parts else self.page
        old = zip(page.segments, self.page.segments, segments[:count], strict=True)
        # `join` compares by identity: an unchanged segment must be the new page's own object
        return page.join([current if new is before else new for current, before, new in old])


def read_with_attributes(source: str) -> AttributedPage:
    """Return the prose of a page or fragment and of its attributes. Never raises; takes linear time."""
    return AttributedPage(source, read_html(source), list(_attribute_values(source)))


def _attribute_values(source: str) -> Iterator[AttributeValue]:
    """Yield the attribute values with prose of all opening tags, in order."""
    position = 0
    for piece in pieces(source, HTML):
        if piece.name and not piece.closing and not piece.kept:
            yield from _values(piece, position)
        position += len(piece.raw)


def _values(piece: Piece, position: int) -> Iterator[AttributeValue]:
    """Yield the values with prose of a tag that begins at `position`."""
    name = NAME.match(piece.raw)
    assert name
    # reversed: the first of several attributes with one name counts, as in HTML
    attributes = {m[1].lower(): m for m in reversed(list(ATTRIBUTE.finditer(piece.raw, name.end())))}
    keys = set(READ)
    if piece.name == "meta":
        kind = next((_value(attributes[key])[1] for key in ("name", "property") if key in attributes), "")
        keys = {"content"} if DESCRIPTIONS.fullmatch(kind) else set()
    for match in sorted((attributes[key] for key in keys & set(attributes)), key=re.Match.start):
        group, raw = _value(match)
        text = unescape(raw)
        quoted = group in (2, 3)
        if quoted and any(character.isalpha() for character in text):
            begin, end = match.span(group)
            yield AttributeValue(position + begin, position + end, Segment(text))


def _value(match: re.Match[str]) -> tuple[int, str]:
    """Return the value of a match of ATTRIBUTE, after the number of its group: 2 and 3 are quoted values,
    4 is an unquoted one, 1 means no value."""
    group = match.lastindex or 1
    return group, match[group] if group > 1 else ""
