"""The lines of a hard-wrapped text, into which its answer is wrapped again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The lines into which the answer to an unwrapped text is wrapped.

    widths: width of each line of the unwrapped text if it was wrapped, otherwise 0; empty if no line was.
    end: line end of the source.
    """

    widths: tuple[int, ...] = ()
    end: str = "\n"

    def breaks(self, answer: str) -> list[int]:
        """Return the positions of the spaces of an answer that become line ends."""
        breaks, begin = list[int](), 0
        for line, width in zip(answer.split("\n"), self.widths, strict=False):
            breaks += [begin + at for at in _breaks(line, width)] if width else []
            begin += len(line) + 1
        return breaks

    def wrap(self, answer: str) -> str:
        """Return an answer with its lines wrapped as the source's; spaces become line ends."""
        parts, position = list[str](), 0
        for at in self.breaks(answer):
            parts += [answer[position:at], self.end]
            position = at + 1
        return "".join([*parts, answer[position:]])

    def moved(self, breaks: Sequence[int], position: int) -> int:
        """Return the position in a wrapped answer of a position in the answer; `breaks` are its breaks."""
        return position + (len(self.end) - 1) * bisect_left(breaks, position)


def _breaks(line: str, width: int) -> Iterator[int]:
    """Yield the positions of spaces of a line that become line ends, so that its parts fit into a width."""
    position = column = 0
    for word in line.split(" "):
        length = len(word.rstrip("\r"))
        if position and word and column + 1 + length > width:
            yield position - 1
            column = length
        else:
            column += bool(position) + length
        position += len(word) + 1


ONE_LINE: Final = Wrapping()
