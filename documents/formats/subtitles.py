"""SubRip and WebVTT subtitles: numbers, times and blank lines stay, and each cue keeps its number of lines.

A file is read line by line, in linear time: a cue begins with the line of its times, or the number before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape, unescape
from itertools import pairwise
from typing import Final

from documents.document import Document, unreadable
from documents.formats.plain import NEWLINE, decode
from documents.spans import MAX_SPANS, Segment
from documents.tagged import read_tagged

CLOCK: Final = r"\d{1,9}:\d{1,2}:\d{1,2}(?:[.,:]\d{1,9})?"
TIMES: Final = re.compile(rf"[ \t]*{CLOCK}[ \t]*-[- ]?>[ \t]*{CLOCK}(?![\d:])")
WEBVTT_HEAD: Final = re.compile(r"WEBVTT(?![^\s])")
WEBVTT_CLOCK: Final = r"(?:\d{2,9}:)?\d{2}:\d{2}\.\d{3}"
WEBVTT_TIMES: Final = re.compile(rf"[ \t]*{WEBVTT_CLOCK}[ \t]+-->[ \t]+{WEBVTT_CLOCK}(?!\S)")
WEBVTT_TAG: Final = re.compile(r"(</?[a-zA-Z0-9][^<>]*>)")
INDEX: Final = re.compile(r"\s*\d{1,18}\s*")
TAG: Final = re.compile(r"(</?[a-zA-Z][^<>]*>|\{\\[^{}]*\})")
DIALOGUE: Final = re.compile(r"\s*(?:<[^<>]*>\s*)*[-–—]")


@dataclass(frozen=True, slots=True)
class _Syntax:
    """The differences between the formats.

    kind: name of the format, for messages.
    tag: pattern of tags.
    cues: returns the text lines [begin, end) of each cue; None: the file has another format.
    read_text, write_text: unescape and escape characters.
    """

    kind: str
    tag: re.Pattern[str]
    cues: Callable[[Sequence[str]], list[tuple[int, int]] | None]
    read_text: Callable[[str], str] = str
    write_text: Callable[[str], str] = str


class _Part:
    """Lines of a cue that are translated as one text; `breaks` are the line ends between them."""

    def __init__(self, text: str, syntax: _Syntax) -> None:
        self.source, self.syntax = text, syntax
        self.breaks = NEWLINE.findall(text)
        self.tagged = read_tagged(NEWLINE.sub(" ", text), syntax.tag, syntax.read_text)
        if len(self.tagged.marks) > MAX_SPANS:
            raise unreadable(syntax.kind)
        self.segment = self.tagged.segment

    def write(self, segment: Segment) -> str:
        """Return the cue's text with the segment, wrapped to as many lines as before."""
        if segment is self.segment:
            return self.source
        segment = replace(segment, text=wrap(segment.text, len(self.breaks) + 1))
        lines = self.tagged.write(segment, self.syntax.write_text).split("\n")
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


def read_subrip(data: bytes) -> Document:
    """Return the cues of a SubRip file. Raises Unreadable."""
    return _read(data, SUBRIP)


def read_webvtt(data: bytes) -> Document:
    """Return the cues of a WebVTT file, without notes, styles, regions and settings. Raises Unreadable."""
    return _read(data, WEBVTT)


def _read(data: bytes, syntax: _Syntax) -> Document:
    file = decode(data)
    subtitles = _parse_subtitles(file.text, syntax)

    def write(segments: Sequence[Segment]) -> bytes:
        return file.encode(subtitles.join(segments))

    return Document([part.segment for part in subtitles.parts], write)


def _parse_subtitles(text: str, syntax: _Syntax) -> _Subtitles:
    """Return the parts of a file that are translated, and the markup between them."""
    lines = [text[begin:end] for begin, end in pairwise([0, *(m.end() for m in NEWLINE.finditer(text))])]
    lines.append(text[sum(map(len, lines)) :])
    cues = syntax.cues(lines)
    if cues is None:
        raise unreadable(syntax.kind)
    markup, parts = list[str](), list[_Part]()
    done = 0  # number of lines before the next part
    between = list[str]()
    for begin, end in cues:
        between += lines[done:begin]
        done = end
        for content in _texts("".join(lines[begin:end])):
            bare = content.strip()
            part = _Part(bare, syntax)
            if not part.segment.text.strip():
                between.append(content)
                continue
            at = content.index(bare)
            markup.append("".join([*between, content[:at]]))
            parts.append(part)
            between = [content[at + len(bare) :]]
    return _Subtitles([*markup, "".join([*between, *lines[done:]])], parts)


def _subrip_cues(lines: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the range of text lines of each cue; None: the file is no SubRip."""
    times = [number for number, line in enumerate(lines) if TIMES.match(line)]
    # a cue begins with its number, if there is one before its times
    heads = [n - 1 if n and INDEX.fullmatch(lines[n - 1]) else n for n in times]
    before = lines[: heads[0]] if heads else lines
    if any(line.strip("\ufeff \t\r\n") for line in before):
        return None
    return [(time + 1, end) for time, end in zip(times, [*heads, len(lines)][1:], strict=True)]


def _webvtt_cues(lines: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the range of text lines of each cue; None: the file is no WebVTT."""
    if not WEBVTT_HEAD.match(lines[0]):
        return None
    blanks = [number for number, line in enumerate(lines) if not line.strip("\r\n")]
    cues = []
    for blank, end in pairwise([*blanks, len(lines)]):
        heads = lines[blank + 1 : min(blank + 3, end)]  # the times, or an identifier and the times
        arrow = next((number for number, line in enumerate(heads) if WEBVTT_TIMES.match(line)), None)
        if arrow is not None:
            cues.append((blank + arrow + 2, end))
    return cues


SUBRIP: Final = _Syntax("SubRip subtitles", TAG, _subrip_cues)
WEBVTT: Final = _Syntax("WebVTT subtitles", WEBVTT_TAG, _webvtt_cues, unescape, partial(escape, quote=False))


def _texts(body: str) -> Iterator[str]:
    """Yield the texts of a cue with the line end after each: all lines, or each line of a dialogue."""
    ends = [m.end() for m in NEWLINE.finditer(body.rstrip())]
    lines = [body[begin:end] for begin, end in pairwise([0, *ends, len(body)])]
    if len(lines) > 1 and all(map(DIALOGUE.match, lines)):
        yield from lines
    else:
        yield body


def wrap(text: str, lines: int) -> str:
    """Return a text in lines of about equal length: spaces become line feeds, so that no character moves."""
    characters = list(text)
    spaces = [place for place, character in enumerate(text) if character == " "]
    first = 0  # number of the first space after the last break
    for line in range(1, lines):  # break at the space nearest to each equal share
        ideal = len(text) * line / lines
        right = bisect_left(spaces, ideal, first)
        near = [n for n in (right - 1, right) if first <= n < len(spaces)]
        if not near:
            continue
        nearest = min(near, key=lambda n: abs(spaces[n] - ideal))
        characters[spaces[nearest]] = "\n"
        first = nearest + 1
    return "".join(characters)
