"""Texts with formats on ranges of their characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

# spans of a segment: after this many a reader begins a new segment, so that projecting takes linear time
MAX_SPANS: Final = 500
WITHIN_SENTENCES: Final = ",)”\"’'»–-"  # marks after which a sentence goes on in small letters
# white space by number of a span, "next to its end", and "after the mark"
Gaps: TypeAlias = Mapping[tuple[int, bool, bool], str]
NO_GAPS: Final[Gaps] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [begin, end) of a text with a format; a span without characters is a point.

    begin, end: range of characters.
    parent: index of the span around it, or -1; parents come first.
    kept: the text must not be translated; a kept span has no spans in it.
    spaced: the point had white space on both sides; the text has only one of the two.
    line: the point is a line break within a sentence. It has no meaning: its place is a share of the text.
    link: the span is a link, a button or the like, which must not get the text of another one.
    apart: white space that the text lacks was between the span and a point before it.
    """

    begin: int
    end: int
    parent: int = -1
    kept: bool = False
    spaced: bool = False
    line: bool = False
    link: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A text that is translated as a whole, with its formats.

    text: characters.
    spans: formats.
    original: the source, which is written next to a translation; None: it is not written.
    below: the original is below the translation.
    """

    text: str
    spans: tuple[Span, ...] = ()
    original: Segment | None = None
    below: bool = False

    def stacked(self, translation: str, original: str, line_break: str) -> str:
        """Return a written translation with its written original above or below it.

        translation: written translation.
        original: written original.
        line_break: text between the two.
        """
        return line_break.join((translation, original) if self.below else (original, translation))


class Builder:
    """Builds a segment piece by piece. The number of a span is its index in `spans`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.spans: list[Span] = []
        self.open: list[int] = []  # the innermost is last
        self.dead: set[int] = set()  # spans that were begun and never ended
        self._fresh = 0  # number of the first span that was begun after the last text
        self._spaced = 0  # number of the first span after the last call of `mark_spaced`
        self._edge = 0  # last position where a span begins or ends
        self._apart = False  # white space was omitted after the last point

    def text(self, text: str) -> None:
        """Add characters. If only points separate two spaces, the second space is omitted and the points are
        marked as spaced."""
        if not text:
            return
        if self._fresh < len(self.spans) and text[0] == " " and self.parts and self.parts[-1].endswith(" "):
            self.mark_spaced()
            text = text[1:]
        self._fresh = len(self.spans) if text else self._fresh
        self._append(text)

    def mark_spaced(self) -> None:
        """Set `spaced` of the points after the last text: white space is on both sides of them."""
        for number in range(max(self._fresh, self._spaced), len(self.spans)):
            self.spans[number] = replace(self.spans[number], spaced=True)
        self._spaced, self._apart = len(self.spans), True

    def line(self) -> int:
        """Add a line break within a sentence, which the model reads as a space, and return its number."""
        if self.parts and not self.parts[-1][-1:].isspace():
            self.text(" ")
        number = self.point()
        self.spans[number] = replace(self.spans[number], line=True)
        return number

    def strip(self) -> None:
        """Remove white space at the end of the text, back to the last begin or end of a span."""
        if self.length > self._edge:
            last = self.parts.pop()
            self.length -= len(last)
            self._append(last[: max(self._edge - self.length, len(last.rstrip()))])

    def begin(self, *, link: bool = False) -> int:
        """Open a span at the end of the text and return its number.

        link: the span is a link.
        """
        self.open.append(self.point())
        if link:
            self.spans[-1] = replace(self.spans[-1], link=True)
        return self.open[-1]

    def end(self, number: int) -> None:
        """End an open span; spans that were begun in it and not ended become points."""
        while (popped := self.open.pop()) != number:
            self.dead.add(popped)
        self.spans[number] = replace(self.spans[number], end=self.length)
        self._edge = self.length

    def innermost(self, numbers: list[int]) -> int | None:
        """Return the last number in a list of spans that may still be ended; None: there is none.

        numbers: begun spans of one name; the returned number and all after it are removed.
        """
        while numbers:
            number = numbers.pop()
            if number not in self.dead:
                return number
        return None

    def point(self) -> int:
        """Add an empty span at the end of the text and return its number."""
        self._edge = self.length
        parent = self.open[-1] if self.open else -1
        self.spans.append(Span(self.length, self.length, parent, apart=self._apart))
        self._apart = False
        return len(self.spans) - 1

    def keep(self, text: str) -> int:
        """Append text as a span that is not translated, and return its number."""
        number = self.point()
        self._append(text)
        self._fresh = len(self.spans)
        self.spans[number] = replace(self.spans[number], end=self.length, kept=True)
        self._edge = self.length
        return number

    def segment(self) -> Segment:
        """Return the segment; open spans become part of the span around them."""
        dead, parents = self.dead | set(self.open), list[int]()
        for span in self.spans:  # spans inside a dead span belong to the span around it
            parents.append(parents[span.parent] if span.parent in dead else span.parent)
        spans = (replace(span, parent=parent) for span, parent in zip(self.spans, parents, strict=True))
        return Segment("".join(self.parts), tuple(spans))

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)
        self._apart = self._apart and not text


def goes_on(before: str, after: str) -> bool:
    """Return whether a sentence goes on across a line break: after two words or more without an end mark, in
    small letters."""
    before = before.strip()
    last, first = before[-1:], after.lstrip()[:1]
    return first.islower() and " " in before and (last.isalnum() or last in WITHIN_SENTENCES)


def weave(segment: Segment) -> Iterator[tuple[str, int | str]]:
    """Yield the parts of a segment in order: ("text", characters), ("begin", span) and ("end", span)."""
    # the last list has the outermost spans
    inner: list[list[int]] = [[] for _ in range(len(segment.spans) + 1)]
    for number, span in enumerate(segment.spans):
        inner[span.parent].append(number)
    for numbers in inner:
        numbers.sort(key=lambda n: (segment.spans[n].begin, segment.spans[n].end, n))
    position = 0
    stack = [(-1, iter(inner[-1]))]
    while stack:
        number, rest = stack[-1]
        following = next(rest, None)
        if following is not None:
            until = segment.spans[following].begin
        else:
            until = segment.spans[number].end if number >= 0 else len(segment.text)
        if until > position:
            yield "text", segment.text[position:until]
            position = until
        if following is not None:
            yield "begin", following
            stack.append((following, iter(inner[following])))
        else:
            stack.pop()
            if number >= 0:
                yield "end", number


def write_marked(
    segment: Segment, marks: Sequence[Sequence[str]], write_text: Callable[[str], str], gaps: Gaps = NO_GAPS
) -> str:
    """Return a segment in the syntax of its file: its text between the marks of its spans.

    segment: text with spans; the text of a kept span is in the mark.
    marks: marks at the begin and at the end of each span.
    write_text: escapes characters for the file.
    gaps: white space of the file, which replaces single spaces next to marks.
    """
    parts, kept = list[str](), False
    mark: tuple[int, bool] | None = None  # the last part
    for kind, value in weave(segment):
        if isinstance(value, int):
            ends = kind == "end"
            gap = gaps.get((value, ends, False))
            if gap and not mark and parts and parts[-1].endswith(" "):
                parts[-1] = parts[-1][:-1] + gap
            parts.append(marks[value][ends])
            mark = value, ends
            kept = not ends and segment.spans[value].kept
        elif not kept:
            gap = gaps.get((*mark, True)) if mark and value.startswith(" ") else None
            parts.append(gap + write_text(value[1:]) if gap else write_text(value))
            mark = None
    return "".join(parts)
