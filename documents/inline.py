"""Paragraphs of office documents as segments: runs of text with formats, and things that lie between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from documents.spans import Builder, Segment, weave


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of a paragraph, in order.

    text: characters in the format `look` (comparable) that `element` stands for. node: a list of elements
    that stay together; with text, it is read along and kept. open, close: what is inside lies in an element
    like `element`. split: a list of elements where a sentence ends.
    """

    kind: Literal["text", "node", "open", "close", "split"]
    element: Any = None
    text: str = ""
    look: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A segment of a paragraph. bare: the element of the format that has no span. marks: the atom of each
    span. broken: the split it ends with."""

    segment: Segment
    bare: Any
    marks: list[Atom]
    broken: Any = None


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """Elements of a file, each with its lines."""

    found: list[tuple[Any, list[Line]]]

    @property
    def segments(self) -> list[Segment]:
        """Those of the lines that hold text."""
        return [line.segment for _, lines in self.found for line in lines if line.segment.text.strip()]

    def fill(
        self,
        segments: Sequence[Segment],
        write: Callable[[Any, Sequence[Line], Sequence[Segment]], None],
    ) -> None:
        """Write new content into each paragraph in which one of the segments is another."""
        rest = iter(segments)
        for element, lines in self.found:
            new = [next(rest) if line.segment.text.strip() else line.segment for line in lines]
            if any(segment is not line.segment for segment, line in zip(new, lines, strict=True)):
                write(element, lines, new)


@dataclass(frozen=True, slots=True)
class Output:
    """What a paragraph becomes: text in a format, nodes, and "open" and "close" of elements around them."""

    kind: Literal["text", "node", "open", "close"]
    element: Any = None
    text: str = ""


@dataclass(slots=True)
class _State:
    base: str
    bare: Any
    builder: Builder = field(default_factory=Builder)
    marks: list[Atom] = field(default_factory=list)
    look: str | None = None  # of the open span; None: the base
    number: int = -1

    def switch(self, atom: Atom | None) -> None:
        """End the open format and begin that of the atom; None: the base."""
        look = None if atom is None or atom.look == self.base else atom.look
        if look == self.look:
            return
        if self.look is not None:
            self.builder.end(self.number)
        if look is not None:
            self.number = self.builder.begin()
            self.marks.append(atom)  # type: ignore[arg-type]  # it has a look
        self.look = look


def lines_of(atoms: Sequence[Atom]) -> list[Line]:
    """The segments of a paragraph: the format of most of its characters is none."""
    sizes, bare = Counter[str](), dict[str, Any]()
    for atom in atoms:
        if atom.kind == "text":
            sizes[atom.look] += len(atom.text)
            bare.setdefault(atom.look, atom.element)
    base = sizes.most_common(1)[0][0] if sizes else ""
    found, state, depth = [], _State(base, bare.get(base)), list[int]()
    for atom in atoms:
        if atom.kind == "split" and not depth:
            state.switch(None)
            found.append(Line(state.builder.segment(), state.bare, state.marks, atom.element))
            state = _State(base, bare.get(base))
        elif atom.kind == "text":
            state.switch(atom)
            state.builder.text(atom.text)
        elif atom.kind == "open":
            state.switch(None)
            depth.append(state.builder.begin())
            state.marks.append(atom)
        elif atom.kind == "close":
            state.switch(None)
            state.builder.end(depth.pop())
        else:
            state.builder.keep(atom.text) if atom.text else state.builder.point()
            state.marks.append(atom)
    state.switch(None)
    return [*found, Line(state.builder.segment(), state.bare, state.marks)]


def outputs(line: Line, segment: Segment) -> Iterator[Output]:
    """A line with another segment in its place; what has no text in it any more loses its format."""
    looks, kept = [line.bare], False
    for kind, value in weave(segment):
        if isinstance(value, str):
            if not kept:
                yield Output("text", looks[-1], value)
            continue
        atom = line.marks[value]
        if atom.kind == "text":
            looks.append(atom.element) if kind == "begin" else looks.pop()
        elif atom.kind == "open":
            yield Output("open" if kind == "begin" else "close", atom.element)
        elif kind == "begin":
            kept = segment.spans[value].kept
            yield Output("node", atom.element)
        else:
            kept = False
    if line.broken is not None:
        yield Output("node", line.broken)
