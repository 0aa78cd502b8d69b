"""Line breaks within sentences: hard-wrapped text is read as paragraphs, and its answer is wrapped again.

All changes replace one character by one: positions in a text stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.text.placeables.grammar import LEADING, NUMBERED
from engine.text.placeables.structured import find_code
from engine.text.wrapping import ONE_LINE, Wrapping

MODES: Final = ("keep", "join", "auto")
# a shorter line may be an item of a list, a verse or a line of an address
MIN_LINE_CHARACTERS: Final = 40
GOES_ON: Final = re.compile(r"[\w,)”\"’'»-]\Z")  # last character of a line without an end mark
# the beginning of a line of data, a path, a frame
ENTRY: Final = re.compile(r"[\w.-]+ ?[:=]|\S*[/\\]|at \S+ ?\(")
GAPS: Final = re.compile(r"\t|\S {2}")  # columns


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A text without the line breaks within its sentences, of the same length, and the lines that it had."""

    text: str
    lines: Wrapping = ONE_LINE


def unwrap(
    text: str, mode: str, spans: Sequence[tuple[int, int]] = (), wanted: Wrapping = ONE_LINE
) -> Unwrapped:
    """Replace line breaks within sentences by spaces. Takes linear time.

    text: any text.
    mode: "keep": every line break stays. "join": only blank lines and marks of lists end a paragraph. "auto":
        a line goes on if it is long, the next word did not fit into it, it ends without an end mark, and the
        next line, or at least another line of the paragraph, goes on in small letters.
    spans: characters that stay, ordered and disjoint.
    wanted: lines of the answer if the text is unwrapped already.
    """
    if wanted.widths or mode == "keep" or "\n" not in text.strip():
        return Unwrapped(text, wanted)
    lines = text.split("\n")
    breaks = _joined_breaks(lines, mode) & _free_breaks(lines, spans)
    breaks &= _free_breaks(lines, list(find_code(text)))
    if not breaks:
        return Unwrapped(text)
    parts, widths, width = list[str](), list[int](), 0
    for number, line in enumerate(lines):
        joined, last = number in breaks, number == len(lines) - 1
        width = max(width, len(line.rstrip("\r"))) if joined or width else 0
        if joined and line.endswith("\r"):
            parts += [line[:-1], "  "]
        else:
            parts += [line, " " if joined else "" if last else "\n"]
        if not joined:
            widths.append(width)
            width = 0
    end = "\r\n" if "\r\n" in text else "\n"
    return Unwrapped("".join(parts), Wrapping(tuple(widths), end) if mode == "auto" else ONE_LINE)


def _joined_breaks(lines: Sequence[str], mode: str) -> set[int]:
    """Return the numbers of the lines that go on in the next line."""
    breaks, first = set[int](), 0
    for last in [*(n for n, line in enumerate(lines) if not line.strip()), len(lines)]:
        block = lines[first:last]
        widest = max((len(line.rstrip()) for line in block), default=0)
        pairs = list(enumerate(zip(block, block[1:], strict=False), first))
        if mode == "join":
            breaks |= {number for number, (_, after) in pairs if not _is_item(after)}
        else:
            full = {number for number, pair in pairs if _goes_on(*pair, widest)}
            small = {number for number, (_, after) in pairs if number in full and after.lstrip()[0].islower()}
            # a wrapped paragraph breaks before names and German nouns too
            breaks |= full if small else small
        first = last + 1
    return breaks


def _goes_on(line: str, after: str, width: int) -> bool:
    """Return whether a line may be the beginning of a sentence that goes on in the next line.

    width: width of the widest line of the paragraph, into which the next word did not fit.
    """
    body, rest = line.rstrip(), after.lstrip()
    word = rest.partition(" ")[0]
    return (
        len(body) >= MIN_LINE_CHARACTERS
        and rest[:1].isalnum()
        and len(body) + 1 + len(word) > width
        and bool(GOES_ON.search(body))
        and not (ENTRY.match(rest) or GAPS.search(body) or GAPS.search(rest) or _is_item(after))
    )


def _is_item(line: str) -> bool:
    """Return whether a line begins with the mark of a list."""
    body = line.lstrip()
    return bool(LEADING.match(body) or NUMBERED.match(body))


def _free_breaks(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> set[int]:
    """Return the numbers of the lines whose ends are in no span."""
    free, position, rest = set[int](), 0, iter([*spans, (len("".join(lines)) + len(lines) + 1,) * 2])
    begin, end = next(rest)
    for number, line in enumerate(lines):
        position += len(line) + 1
        while end < position:
            begin, end = next(rest)
        if not begin < position <= end:
            free.add(number)
    return free
