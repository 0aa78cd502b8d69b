"""Strings with tags and placeholders as segments, for subtitles and messages of programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from documents.spans import Builder, Segment, write_marked

TAG_NAME: Final = re.compile(r"</?([^\s/.>]*)")
# bold, italic and the like of SubStation: name, and 1 at the begin or 0 at the end
OVERRIDE: Final = re.compile(r"\{\\([bius])([01])\}")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A segment, and the tags of its spans.

    segment: text with spans.
    marks: tags or placeholder before and after each span.
    prose: the text has letters outside of tags and placeholders.
    """

    segment: Segment
    marks: list[list[str]]
    prose: bool

    def write(self, segment: Segment, write_text: Callable[[str], str] = str) -> str:
        """Return another segment with the tags of this one.

        segment: text with the same spans.
        write_text: escapes characters.
        """
        return write_marked(segment, self.marks, write_text)


def read_tagged(source: str, pattern: re.Pattern[str], read_text: Callable[[str], str] = str) -> TaggedText:
    """Return the segment of a string; placeholders become kept spans.

    source: the string.
    pattern: pattern of tags and placeholders, with one group around all of it.
    read_text: unescapes the characters between tags.
    """
    builder, marks, prose = Builder(), list[list[str]](), False
    names: dict[str, list[int]] = {}
    for number, piece in enumerate(pattern.split(source)):
        if number % 2 == 0:  # `split` yields text and matches of the group in turn
            text = read_text(piece)
            prose = prose or any(map(str.isalpha, text))
            builder.text(text)
            continue
        tag = TAG_NAME.match(piece) or OVERRIDE.fullmatch(piece)
        name = tag[1].lower() if tag else ""
        closes = piece.startswith("</") or (piece.startswith("{\\") and piece.endswith("0}"))
        if closes and (begun := builder.innermost(names.get(name, []))) is not None:
            builder.end(begun)
            marks[begun][1] = piece
            continue
        if tag and not closes and not piece.endswith("/>"):
            names.setdefault(name, []).append(builder.begin())
        elif tag or piece.startswith("{\\"):  # a point, such as the position of a subtitle
            builder.point()
        else:
            builder.keep(piece)
        marks.append([piece, ""])
    return TaggedText(builder.segment(), marks, prose)
