"""Paragraphs of office documents as segments: runs of text with formats, and other elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from documents.spans import MAX_SPANS, Builder, Segment, goes_on, weave

LAST_CHARACTERS: Final = 80  # before a line break, in which a sentence has at least two words


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of a paragraph.

    kind: "text": text in one format; "node": elements that are copied together; "open" and "close": an
        element around other parts; "split": elements where a sentence ends; "space": a line break within a
        sentence; "break": a line break that is one or the other, which `lines_of` decides.
    element: "text": its format; "open" and "close": the element; all others: list of elements.
    text: "text": characters; "node": characters that the model reads and that stay unchanged.
    format_key: format of a text as a string, for comparisons.
    link: the element around other parts is a link.
    """

    kind: Literal["text", "node", "open", "close", "split", "space", "break"]
    element: Any = None
    text: str = ""
    format_key: str = ""
    link: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A segment of a paragraph.

    segment: text and spans of the line.
    bare: element of the most frequent format, whose text has no span.
    marks: atom that each span stands for.
    broken: elements such as a line break that end the line, or None.
    continued: number of elements around text that began in a line before; they have the first spans.
    left_open: spans of elements around text that go on in the next line.
    """

    segment: Segment
    bare: Any
    marks: list[Atom]
    broken: Any = None
    continued: int = 0
    left_open: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """The paragraphs of a file.

    contents: element and lines of each paragraph.
    """

    contents: list[tuple[Any, list[Line]]]

    @property
    def segments(self) -> list[Segment]:
        """Return the segments of the lines that have text."""
        return [line.segment for _, lines in self.contents for line in lines if line.segment.text.strip()]

    def fill(
        self,
        segments: Sequence[Segment],
        write: Callable[[Any, Sequence[Line], Sequence[Segment]], None],
    ) -> None:
        """Write new content into each paragraph with a new segment.

        segments: segment of each line that has text; an unchanged segment leaves its line unchanged.
        write: called with an element, its lines and their new segments; replaces the element's content.
        """
        rest = iter(segments)
        for element, lines in self.contents:
            new = [next(rest) if line.segment.text.strip() else line.segment for line in lines]
            if any(segment is not line.segment for segment, line in zip(new, lines, strict=True)):
                write(element, lines, new)


@dataclass(frozen=True, slots=True)
class Output:
    """A part of a new paragraph: text in a format, nodes, and "open" and "close" of elements around them."""

    kind: Literal["text", "node", "open", "close"]
    element: Any = None
    text: str = ""


@dataclass(slots=True)
class _State:
    """A line that is being built.

    base: format_key of the most frequent format, whose text has no span.
    bare: element of that format.
    builder: collects the text and its spans.
    marks: atom that each span stands for.
    around: atom and number of the span of each open element.
    format_key: format of the last text if it has a span; None: the base format.
    number: number of that span in the builder.
    continued: number of elements that began in a line before.
    """

    base: str
    bare: Any
    builder: Builder = field(default_factory=Builder)
    marks: list[Atom] = field(default_factory=list)
    around: list[tuple[Atom, int]] = field(default_factory=list)
    format_key: str | None = None
    number: int = -1
    continued: int = 0

    def take(self, atom: Atom) -> None:
        """Add an atom to the line: text, the begin or end of an element, or a node."""
        if atom.kind == "text":
            self._switch(atom)
            self.builder.text(atom.text)
        elif atom.kind == "open":
            self._switch(None)
            self.around.append((atom, self.builder.begin(link=atom.link)))
            self.marks.append(atom)
        elif atom.kind == "close":
            self._switch(None)
            self.builder.end(self.around.pop()[1])
        else:
            if atom.kind == "space":
                self.builder.line()
            else:
                self.builder.keep(atom.text) if atom.text else self.builder.point()
            self.marks.append(atom)

    def line(self, broken: Any = None) -> Line:
        """Return the line.

        broken: elements such as a line break that end the line.
        """
        self._switch(None)
        left_open = frozenset(number for _, number in self.around)
        for _, number in reversed(self.around):
            self.builder.end(number)
        return Line(self.builder.segment(), self.bare, self.marks, broken, self.continued, left_open)

    def following(self) -> _State:
        """Return the state of the next line, in which open elements go on."""
        state = _State(self.base, self.bare)
        for atom, _ in self.around:
            state.take(atom)
        state.continued = len(self.around)
        return state

    def _switch(self, atom: Atom | None) -> None:
        """End the open format and begin the format of the atom; None: the base."""
        format_key = None if atom is None or atom.format_key == self.base else atom.format_key
        if format_key == self.format_key:
            return
        if self.format_key is not None:
            self.builder.end(self.number)
        if format_key is not None:
            self.number = self.builder.begin(link=atom is not None and atom.link)
            self.marks.append(atom)  # type: ignore[arg-type]  # `format_key` is not None
        self.format_key = format_key


def lines_of(atoms: Sequence[Atom]) -> list[Line]:
    """Return the lines of a paragraph: it is split at line breaks, and after MAX_SPANS spans.

    atoms: content of the paragraph, in order. The format of most characters gets no span.
    """
    characters, bare = Counter[str](), dict[str, Any]()
    for atom in atoms:
        if atom.kind == "text":
            characters[atom.format_key] += len(atom.text)
            bare.setdefault(atom.format_key, atom.element)
    base = characters.most_common(1)[0][0] if characters else ""
    lines, state = list[Line](), _State(base, bare.get(base))
    for atom in _with_known_breaks(atoms):
        if atom.kind == "split":
            lines.append(state.line(atom.element))
            state = state.following()
        elif len(state.marks) >= MAX_SPANS + len(state.around):
            lines.append(state.line())
            state = state.following()
            state.take(atom)
        else:
            state.take(atom)
    return [*lines, state.line()]


def _with_known_breaks(atoms: Sequence[Atom]) -> Iterator[Atom]:
    """Yield the atoms, with each "break" as a "space" if the sentence goes on after it, else as a "split"."""
    after, following = "", list[str]()  # text after each atom
    for atom in reversed(atoms):
        following.append(after)
        after = atom.text.strip() or after if atom.kind == "text" else after
        after = "" if atom.kind == "split" else after
    before = ""
    for atom, after in zip(atoms, reversed(following), strict=True):
        if atom.kind == "break":
            within = goes_on(before, after)
            before = before if within else ""
            yield replace(atom, kind="space" if within else "split")
            continue
        before = before[-LAST_CHARACTERS:] + atom.text if atom.kind == "text" else before
        before = "" if atom.kind == "split" else before
        yield atom


def outputs(line: Line, segment: Segment) -> Iterator[Output]:
    """Yield the parts of a line with a new segment; formats without text are omitted."""
    elements, kept = [line.bare], False
    for kind, value in weave(segment):
        if isinstance(value, str):
            if not kept:
                yield Output("text", elements[-1], value)
            continue
        atom = line.marks[value]
        if atom.kind == "text":
            elements.append(atom.element) if kind == "begin" else elements.pop()
        elif atom.kind == "open":
            if value >= line.continued if kind == "begin" else value not in line.left_open:
                yield Output("open" if kind == "begin" else "close", atom.element)
        elif kind == "begin":
            kept = segment.spans[value].kept
            yield Output("node", atom.element)
        else:
            kept = False
    if line.broken is not None:
        yield Output("node", line.broken)
