"""SubRip subtitles: numbers and times stay, and each cue keeps its number of lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import srt

from documents.document import Document, damaged
from documents.plain import decode
from documents.spans import Builder, Segment, weave

TAG: Final = re.compile(r"(</?[a-zA-Z][^<>]*>|\{\\[^{}]*\})")
DIALOGUE: Final = re.compile(r"\s*(?:<[^<>]*>\s*)*[-–—]")


class _Cue:
    """Lines that are one sentence or a few; marks: the tags of each span."""

    def __init__(self, text: str) -> None:
        builder, self.marks = Builder(), list[list[str]]()
        self.lines = text.count("\n") + 1
        names: dict[str, list[int]] = {}
        for part in TAG.split(text.replace("\n", " ")):
            name = part.strip("</>").partition(" ")[0].lower()
            if not TAG.fullmatch(part):
                builder.text(part)
            elif part.startswith("</") and any(n not in builder.dead for n in names.get(name, [])):
                number = next(n for n in reversed(names[name]) if n not in builder.dead)
                names[name].remove(number)
                builder.end(number)
                self.marks[number][1] = part
            else:
                opens = part.startswith("<") and not part.startswith("</")
                number = builder.begin() if opens else builder.point()
                names.setdefault(name, []).append(number)
                self.marks.append([part, ""])
                if not opens:
                    names[name].remove(number)
        self.source = text
        self.segment = builder.segment()

    def write(self, segment: Segment) -> str:
        if segment is self.segment:
            return self.source
        segment = replace(segment, text=wrapped(segment.text, self.lines))
        return "".join(v if isinstance(v, str) else self.marks[v][k == "end"] for k, v in weave(segment))


def read_subtitles(data: bytes) -> Document:
    """Raises Unreadable on a file that is no SubRip."""
    file = decode(data)
    try:
        cues = list(srt.parse(file.text.replace("\r\n", "\n")))
    except (srt.SRTParseError, ValueError, OverflowError):
        raise damaged("SubRip subtitles") from None
    parts = [[_Cue(part) for part in _sentences(cue.content)] for cue in cues]

    def write(segments: Sequence[Segment]) -> bytes:
        rest = iter(segments)
        done = [
            srt.Subtitle(
                cue.index, cue.start, cue.end, "\n".join(p.write(next(rest)) for p in own), cue.proprietary
            )
            for cue, own in zip(cues, parts, strict=True)
        ]
        text = srt.compose(done, reindex=False, strict=False)
        return file.encode(text.replace("\n", "\r\n") if "\r\n" in file.text else text)

    return Document([part.segment for own in parts for part in own], write)


def wrapped(text: str, lines: int) -> str:
    """The text with about equal lines: spaces become line breaks, so that its characters stay in place."""
    found = list(text)
    for line in range(1, lines):
        ideal = len(text) * line / lines
        spaces = [place for place, character in enumerate(found) if character == " "]
        if spaces:
            found[min(spaces, key=lambda place: abs(place - ideal))] = "\n"
    return "".join(found)


def _sentences(content: str) -> Iterator[str]:
    """What is translated as one: all lines, or each when several people speak."""
    lines = content.split("\n")
    yield from lines if len(lines) > 1 and all(map(DIALOGUE.match, lines)) else [content]
