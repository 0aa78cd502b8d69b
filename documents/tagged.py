"""Strings with tags and placeholders in them, as segments: those of subtitles and of programs' messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from documents.spans import Builder, Segment, write_marked

TAG_NAME: Final = re.compile(r"</?([^\s/.>]*)")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A segment, and what stands for its spans in the file.

    marks: the tags (begin, end) of each span.
    prose: whether it has letters beside tags and placeholders.
    """

    segment: Segment
    marks: list[list[str]]
    prose: bool

    def write(self, segment: Segment, write_text: Callable[[str], str] = str) -> str:
        """Return a segment with this one's tags.

        segment: another text with spans for them.
        write_text: escapes its characters.
        """
        return write_marked(segment, self.marks, write_text)


def read_tagged(source: str, pattern: re.Pattern[str], read_text: Callable[[str], str] = str) -> TaggedText:
    """Read a string.

    source: the string.
    pattern: matches its tags, and its placeholders, which stay; the whole is the only group.
    read_text: unescapes the characters between.
    """
    builder, marks, prose = Builder(), list[list[str]](), False
    names: dict[str, list[int]] = {}
    for number, piece in enumerate(pattern.split(source)):
        if number % 2 == 0:
            text = read_text(piece)
            prose = prose or any(map(str.isalpha, text))
            builder.text(text)
            continue
        tag = TAG_NAME.match(piece)
        name = tag[1].lower() if tag else ""
        if piece.startswith("</") and (begun := builder.innermost(names.get(name, []))) is not None:
            builder.end(begun)
            marks[begun][1] = piece
            continue
        if tag and not piece.startswith("</") and not piece.endswith("/>"):
            names.setdefault(name, []).append(builder.begin())
        elif tag or piece.startswith("{\\"):  # a place in the text, as of a subtitle on the screen
            builder.point()
        else:
            builder.keep(piece)
        marks.append([piece, ""])
    return TaggedText(builder.segment(), marks, prose)
