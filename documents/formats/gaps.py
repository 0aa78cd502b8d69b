"""White space between words of a page that have tags between them.

The model reads one space for all white space between two words: the outermost. White space further inside,
and at either end of a segment, becomes part of the tag next to it and stays there. Example: in
`one <b> two </b> three` the spaces in `b` are parts of its tags, and the others are in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from documents.formats.tags import Piece

LEAD: Final = re.compile(r"[ \t\n\r\f]*")
TAIL: Final = re.compile(r"(?<![ \t\n\r\f])[ \t\n\r\f]+\Z")


def lead_of(raw: str) -> str:
    """Return the white space at the begin of a text."""
    return LEAD.match(raw)[0]  # type: ignore[index]  # LEAD matches the empty string


def tail_of(raw: str) -> str:
    """Return the white space at the end of a text; "" if the text is only white space."""
    match = TAIL.search(raw, 1)
    return match[0] if match else ""


def settle(found: Sequence[Piece], ends: Callable[[Piece], bool]) -> list[Piece]:
    """Return the pieces of a page with inner white space as part of tags.

    found: pieces of the page.
    ends: returns whether a tag ends a segment.
    """
    settler = _Settler(found)
    for number, piece in enumerate(found):
        if piece.name is None:
            settler.prose(number, piece.raw)
        elif ends(piece):
            settler.edge(word=False)
            if piece.name == "br":
                settler.line_break(number)
        elif piece.kept and not piece.is_empty:
            settler.edge(word=True)
        else:
            settler.gap.append(_GapPart(number, depth=0 if piece.void else -1 if piece.closing else 1))
    settler.edge(word=False)
    return [
        replace(piece, raw=raw) if raw != piece.raw else piece
        for piece, raw in zip(found, settler.raws, strict=True)
        if raw
    ]


@dataclass(frozen=True, slots=True)
class _GapPart:
    """A tag or white space of a gap.

    number: number of the piece.
    depth: change of the depth by a tag.
    space: white space; "": a tag.
    """

    number: int
    depth: int = 0
    space: str = ""


class _Settler:
    """The gap between two words that is being read.

    raws: new characters of each piece.
    gap: tags and white space after the last word or edge.
    after_word: the gap begins after a word.
    """

    def __init__(self, found: Sequence[Piece]) -> None:
        self.raws = [piece.raw for piece in found]
        self.gap, self.after_word = list[_GapPart](), False

    def prose(self, number: int, raw: str) -> None:
        """Add prose: white space, a word, and white space."""
        lead, tail = lead_of(raw), tail_of(raw)
        if lead:
            self.gap.append(_GapPart(number, space=lead))
        if len(lead) < len(raw):
            self.edge(word=True)
            if tail:
                self.gap.append(_GapPart(number, space=tail))

    def line_break(self, number: int) -> None:
        """Move white space after a line break to the break."""
        after = self.raws[number + 1] if number + 1 < len(self.raws) else ""
        lead = lead_of(after)
        self.raws[number] += lead
        if lead:
            self.raws[number + 1] = after[len(lead) :]

    def edge(self, *, word: bool) -> None:
        """End the gap at a word or at the end of a segment, and move its inner white space into tags."""
        depths, depth = list[int](), 0
        for part in self.gap:
            depth += part.depth
            depths.append(depth)
        spaces = [at for at, part in enumerate(self.gap) if part.space]
        lowest = min((depths[at] for at in spaces), default=0)
        kept = False  # the text has a space for the gap
        for at in spaces:
            if self.after_word and word:
                inner = depths[at] > lowest or (kept and self.gap[at - 1].depth > 0)
                kept = kept or not inner
            else:  # white space next to the edge is between segments
                inner = (word and at > 0) or (self.after_word and at < len(self.gap) - 1)
            if inner:
                self._move(at)
        self.gap, self.after_word = [], word

    def _move(self, at: int) -> None:
        """Move white space from its prose to the tag before it, or after it."""
        part = self.gap[at]
        if at:
            self.raws[part.number] = self.raws[part.number][len(part.space) :]
            self.raws[self.gap[at - 1].number] += part.space
        else:
            self.raws[part.number] = self.raws[part.number][: -len(part.space)]
            following = self.gap[at + 1].number
            self.raws[following] = part.space + self.raws[following]
