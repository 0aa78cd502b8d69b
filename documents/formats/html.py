"""HTML and XML as segments of prose with unchanged markup between them.

A segment includes inline tags and ends at the next tag of a block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from itertools import zip_longest
from typing import Final

from documents.formats.gaps import lead_of, settle, tail_of
from documents.formats.tags import HTML, MarkupRules, Piece, pieces, text_of
from documents.menus import Menu, menu_of
from documents.spans import MAX_SPANS, Builder, Gaps, Segment, goes_on, write_marked

LAST_PARTS: Final = 8  # of a text before a line break, in which a sentence has at least two words
STAND_IN: Final = "X{}"  # word that the model reads for an empty element, with the number of its span
WHITE_SPACE: Final = re.compile("[ \t\n\r\f]+")  # characters that are displayed as one space
BLANK_ENTITY: Final = "&(?:nbsp|ensp|emsp|thinsp|#160|#8239|#[xX](?:[aA]0|202[fF]));"
LONGEST_BLANK: Final = len("&thinsp;")
LEADING: Final = re.compile(rf"(?:\s|{BLANK_ENTITY})*+")
ID: Final = re.compile(r"\sid\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>]+)")
ENTITY: Final = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[a-zA-Z][a-zA-Z0-9]{1,31};")
LANGUAGE: Final = re.compile(r"(\s(?:xml:)?lang\s*=\s*)(?:\"[^\"]*\"|'[^']*'|[^\s>\"']+)", re.IGNORECASE)
TRAILING: Final = re.compile(rf"{BLANK_ENTITY}$")


@dataclass(frozen=True, slots=True)
class Prose:
    """A segment, and its characters in the page.

    segment: text with spans.
    raw: characters of the page, with markup.
    marks: markup before and after each span.
    gaps: white space of the page next to marks, if it is no single space.
    menu: the segment item by item; None: it is one text.
    """

    segment: Segment
    raw: str
    marks: list[list[str]]
    gaps: Gaps
    menu: Menu | None = None

    @property
    def segments(self) -> list[Segment]:
        return self.menu.texts if self.menu else [self.segment]

    def write(self, segments: Sequence[Segment]) -> str:
        segment = self.menu.write(segments) if self.menu else segments[0]
        if segment is self.segment:  # not translated
            return self.raw
        spelled = {unescape(entity): entity for entity in ENTITY.findall(self.raw)}
        spelling = {
            ord(one): entity for one, entity in spelled.items() if len(one) == 1 and not one.isascii()
        }
        translation = write_marked(
            segment, self.marks, lambda text: escape(text, quote=False).translate(spelling), self.gaps
        )
        if segment.original is None:
            return translation
        # the copy of the source has no pictures and no addresses of its own
        marks = [["" if not end else ID.sub("", begin), end] for begin, end in self.marks]
        original = write_marked(segment.original, marks, partial(escape, quote=False))
        return segment.stacked(translation, original, "<br/>")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: markup[0] prose[0] markup[1] ... markup[-1]. Segments are unescaped and not blank."""

    markup: list[str] = field(default_factory=lambda: [""])
    prose: list[Prose] = field(default_factory=list)

    @property
    def segments(self) -> list[Segment]:
        return [segment for prose in self.prose for segment in prose.segments]

    def join(self, segments: Sequence[Segment]) -> str:
        """Return the page with a new segment for each old one; the old segments give the same page."""
        parts, rest = [self.markup[0]], iter(segments)
        for prose, markup in zip(self.prose, self.markup[1:], strict=True):
            parts += [prose.write([next(rest) for _ in prose.segments]), markup]
        return "".join(parts)


def read_html(source: str, rules: MarkupRules = HTML) -> Page:
    """Return the prose of a page or fragment; code and `translate="no"` become kept spans. Never raises.

    source: text of the page.
    rules: meaning of the tags.
    """
    reader = _SegmentReader(rules)
    found = list(pieces(source, rules))
    if rules.fold:
        found = settle(found, reader.ends_segment)
    for piece, after in zip_longest(found, found[1:]):
        reader.take(piece, after)
    return reader.page()


def with_language(source: str, language: str) -> str:
    """Return a page whose root element names another language, if it names one.

    source: text of the page.
    language: code of the language.
    """
    position = 0
    for piece in pieces(source, HTML):
        if piece.name or (piece.name is None and not piece.raw.isspace()):
            if piece.name != "html":
                break
            root = LANGUAGE.sub(lambda match: f'{match[1]}"{escape(language)}"', piece.raw)
            return f"{source[:position]}{root}{source[position + len(piece.raw) :]}"
        position += len(piece.raw)
    return source


def _end_of_prose(raw: str) -> int:
    """Return the position of the white space at the end of a text; entities of white space count."""
    end = len(raw)
    while end:
        if raw[end - 1].isspace():
            end -= 1
        elif entity := TRAILING.search(raw, max(0, end - LONGEST_BLANK), end):
            end = entity.start()
        else:
            break
    return end


class _SegmentReader:
    """Builds the segments of a page from its pieces."""

    def __init__(self, rules: MarkupRules) -> None:
        self.rules, self.prose = rules, list[Prose]()
        # pieces of each gap; joined at the end, so that it takes linear time
        self.markup: list[list[str]] = [[]]
        self._start_segment()

    def page(self) -> Page:
        self.flush()
        return Page(["".join(parts) for parts in self.markup], self.prose)

    def _start_segment(self) -> None:
        self.builder, self.raw, self.marks = Builder(), list[str](), list[list[str]]()
        self.names: dict[str, list[int]] = {}  # open spans by name; the innermost is last
        # seen: the segment has prose; space: white space was last; ends: prose was the last piece in it
        self.seen, self.space, self.ends = False, True, False
        self.gaps = dict[tuple[int, bool, bool], str]()
        # mark: the last piece, if it is a tag; tail: white space at the end of the last piece, if it is prose
        self.mark: tuple[int, bool] | None = None
        self.tail = ""

    def take(self, piece: Piece, after: Piece | None) -> None:
        """Add a piece to the open segment or to the markup; the tag of a block ends the segment.

        piece: piece of the page.
        after: next piece.
        """
        if piece.name == "br" and after and self._goes_on(after):
            self._line_break(piece)
            return
        self.ends = piece.name is None or (self.ends and self.ends_segment(piece))
        if piece.name is None:
            self._text(piece.raw)
        elif self.ends_segment(piece):
            self.flush()
            self.markup[-1].append(piece.raw)
        # an empty element, a comment or the number of a note before the first prose is not in the segment
        elif not self.raw and (piece.is_note or not piece.kept) and (piece.void or not piece.name):
            self.markup[-1].append(piece.raw)
        else:
            self.raw.append(piece.raw)
            self._inline(piece)
            if len(self.marks) >= MAX_SPANS:
                self.flush()

    def flush(self) -> None:
        """End the segment, or append its pieces to the markup if it has no prose."""
        raw = "".join(self.raw)
        if self.seen:
            end = len(raw)
            if self.ends:  # white space after the last prose is not part of the segment
                end = _end_of_prose(raw)
                self.builder.strip()
            segment = self.builder.segment()
            self.prose.append(Prose(segment, raw[:end], self.marks, self.gaps, menu_of(segment)))
            self.markup.append([raw[end:]])
        else:
            self.markup[-1].append(raw)
        self._start_segment()

    def _goes_on(self, after: Piece) -> bool:
        """Return whether the open segment is a sentence that goes on in the prose after a line break."""
        ends = self.ends_segment(Piece("", "br"))
        return (
            ends
            and self.seen
            and after.name is None
            and goes_on("".join(self.builder.parts[-LAST_PARTS:]), unescape(after.raw))
        )

    def _line_break(self, piece: Piece) -> None:
        """Add a line break within a sentence, which the model reads as a space."""
        self.raw.append(piece.raw)
        self.builder.line()
        self.marks.append([piece.raw, ""])
        self.space, self.mark, self.tail = True, None, ""

    def ends_segment(self, piece: Piece) -> bool:
        """Return whether a tag ends the segment before it."""
        return piece.name in self.rules.blocks and piece.name not in self.rules.inline

    def _text(self, raw: str) -> None:
        """Add prose to the open segment; white space before its first prose becomes markup."""
        if not self.raw:  # white space before the first prose is not part of the segment
            begin = LEADING.match(raw).end()  # type: ignore[union-attr]  # LEADING matches the empty string
            self.markup[-1].append(raw[:begin])
            raw = raw[begin:]
        if raw:
            self.raw.append(raw)
            text = unescape(raw)
            self.builder.text(self._fold_space(text))
            self.seen = self.seen or not text.isspace()
            if self.mark and (lead := lead_of(raw)):
                self.gaps[(*self.mark, True)] = lead
            self.mark, self.tail = None, tail_of(raw)

    def _fold_space(self, text: str) -> str:
        """Return a text with single spaces, as HTML displays it."""
        if not self.rules.fold:
            return text
        text = WHITE_SPACE.sub(" ", text)
        if self.space and text.startswith(" "):
            text = text[1:]
            self.builder.mark_spaced()
        self.space = text.endswith(" ") if text else self.space
        return text

    def _inline(self, piece: Piece) -> None:
        """Add the span of an inline tag or of a kept element."""
        name = piece.name or ""
        if piece.kept:
            text = "" if piece.is_empty else self._fold_space(text_of(piece.raw).strip())
            if not text and piece.stands_in:
                text = STAND_IN.format(len(self.builder.spans))
            self.builder.keep(text) if text else self.builder.point()
            self._mark(piece, void=True)
        elif not piece.closing and not piece.void and name:
            self.names.setdefault(name, []).append(self.builder.begin(link=name == "a"))
            self._mark(piece)
        elif piece.closing and (number := self.builder.innermost(self.names.get(name, []))) is not None:
            self.builder.end(number)
            self.marks[number][1] = piece.raw
            self._set_mark(number, ends=True, void=False)
        else:
            self.builder.point()
            self._mark(piece, void=True)

    def _mark(self, piece: Piece, *, void: bool = False) -> None:
        """Add the mark of a new span.

        piece: tag or element.
        void: the span has no end of its own.
        """
        self.marks.append([piece.raw, ""])
        self._set_mark(len(self.marks) - 1, ends=False, void=void)

    def _set_mark(self, number: int, *, ends: bool, void: bool) -> None:
        """Store the white space before a mark, and that the mark is the last piece.

        number: number of the span.
        ends: the mark is the end of the span.
        void: the span has no end of its own.
        """
        if self.tail:
            self.gaps[number, ends, False] = self.tail
        self.mark, self.tail = (number, ends or void), ""
