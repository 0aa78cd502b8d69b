"""SubRip subtitles: numbers, times and blank lines stay, and each cue keeps its number of lines.

The format is read line by line, in linear time: a cue begins with its line of times and the number before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from documents.document import Document, unreadable
from documents.plain import NEWLINE, decode
from documents.spans import MAX_SPANS, Builder, Segment, weave

CLOCK: Final = r"\d{1,9}:\d{1,2}:\d{1,2}(?:[.,:]\d{1,9})?"
TIMES: Final = re.compile(rf"[ \t]*{CLOCK}[ \t]*-[- ]?>[ \t]*{CLOCK}(?![\d:])")
INDEX: Final = re.compile(r"\s*\d{1,18}\s*")
TAG: Final = re.compile(r"(</?[a-zA-Z][^<>]*>|\{\\[^{}]*\})")
DIALOGUE: Final = re.compile(r"\s*(?:<[^<>]*>\s*)*[-–—]")


class _Part:
    """Lines of a cue that are translated as one.

    marks: the tags of each span.
    """

    def __init__(self, text: str) -> None:
        builder, self.marks = Builder(), list[list[str]]()
        self.breaks = NEWLINE.findall(text)
        names: dict[str, list[int]] = {}
        for piece in TAG.split(NEWLINE.sub(" ", text)):
            if not TAG.fullmatch(piece):
                builder.text(piece)
                continue
            name = piece.strip("</>").partition(" ")[0].lower()
            if piece.startswith("</") and (number := builder.innermost(names.get(name, []))) is not None:
                builder.end(number)
                self.marks[number][1] = piece
                continue
            if piece.startswith("<") and not piece.startswith("</"):
                names.setdefault(name, []).append(builder.begin())
            else:
                builder.point()
            self.marks.append([piece, ""])
        if len(self.marks) > MAX_SPANS:
            raise unreadable("SubRip subtitles")
        self.source = text
        self.segment = builder.segment()

    def write(self, segment: Segment) -> str:
        if segment is self.segment:
            return self.source
        segment = replace(segment, text=wrap(segment.text, len(self.breaks) + 1))
        parts = (v if isinstance(v, str) else self.marks[v][k == "end"] for k, v in weave(segment))
        lines = "".join(parts).split("\n")
        ends = [*self.breaks[: len(lines) - 1], ""]
        return "".join(line + end for line, end in zip(lines, ends, strict=True))


@dataclass(frozen=True, slots=True)
class _Subtitles:
    """The file is markup[0] parts[0] markup[1] ... markup[-1]."""

    markup: list[str]
    parts: list[_Part]

    def join(self, segments: Sequence[Segment]) -> str:
        texts = [part.write(segment) for part, segment in zip(self.parts, segments, strict=True)]
        return self.markup[0] + "".join(t + m for t, m in zip(texts, self.markup[1:], strict=True))


def read_subtitles(data: bytes) -> Document:
    """Read the cues of a SubRip file. Raises Unreadable on a file that is none."""
    file = decode(data)
    subtitles = _parse_subtitles(file.text)

    def write(segments: Sequence[Segment]) -> bytes:
        return file.encode(subtitles.join(segments))

    return Document([part.segment for part in subtitles.parts], write)


def _parse_subtitles(text: str) -> _Subtitles:
    lines = [text[begin:end] for begin, end in pairwise([0, *(m.end() for m in NEWLINE.finditer(text))])]
    lines.append(text[sum(map(len, lines)) :])
    times = [number for number, line in enumerate(lines) if TIMES.match(line)]
    heads = [n - 1 if n and INDEX.fullmatch(lines[n - 1]) else n for n in times]
    before = lines[: heads[0]] if heads else lines
    if any(line.strip("\ufeff \t\r\n") for line in before):
        raise unreadable("SubRip subtitles")
    markup, parts = list[str](), list[_Part]()
    between = [*before]  # lines before the next part
    for head, time, end in zip(heads, times, [*heads, len(lines)][1:], strict=True):
        between += lines[head : time + 1]
        body = "".join(lines[time + 1 : end])
        for content in _contents(body):
            bare = content.strip()
            part = _Part(bare)
            if not part.segment.text.strip():
                between.append(content)
                continue
            begin = content.index(bare)
            markup.append("".join([*between, content[:begin]]))
            parts.append(part)
            between = [content[begin + len(bare) :]]
    return _Subtitles([*markup, "".join(between)], parts)


def _contents(body: str) -> Iterator[str]:
    """What is translated as one, with the line end after it: all lines, or each when several speak."""
    ends = [m.end() for m in NEWLINE.finditer(body.rstrip())]
    lines = [body[begin:end] for begin, end in pairwise([0, *ends, len(body)])]
    if len(lines) > 1 and all(map(DIALOGUE.match, lines)):
        yield from lines
    else:
        yield body


def wrap(text: str, lines: int) -> str:
    """Wrap a text into about equal lines: spaces become line breaks, so that its characters stay in place."""
    characters = list(text)
    spaces = [place for place, character in enumerate(text) if character == " "]
    first = 0  # the spaces before it lie in earlier lines
    for line in range(1, lines):
        ideal = len(text) * line / lines
        right = bisect_left(spaces, ideal, first)
        near = [n for n in (right - 1, right) if first <= n < len(spaces)]
        if not near:
            continue
        nearest = min(near, key=lambda n: abs(spaces[n] - ideal))
        characters[spaces[nearest]] = "\n"
        first = nearest + 1
    return "".join(characters)
