"""The places of cues in files of subtitles: SubRip, WebVTT, SubViewer of YouTube and SubStation Alpha.

A file is read line by line, in linear time. Each function returns the characters [begin, end) of the text of
each cue, or None if the file has another format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

Ranges: TypeAlias = list[tuple[int, int]]

CLOCK: Final = r"\d{1,9}:\d{1,2}:\d{1,2}(?:[.,:]\d{1,9})?"
TIMES: Final = re.compile(rf"[ \t]*{CLOCK}[ \t]*-[- ]?>[ \t]*{CLOCK}(?![\d:])")
SUBVIEWER_TIMES: Final = re.compile(r"\d{1,3}:\d{2}:\d{2}\.\d{3},\d{1,3}:\d{2}:\d{2}\.\d{3}\s*$")
WEBVTT_HEAD: Final = re.compile(r"WEBVTT(?![^\s])")
WEBVTT_CLOCK: Final = r"(?:\d{2,9}:)?\d{2}:\d{2}\.\d{3}"
WEBVTT_TIMES: Final = re.compile(rf"[ \t]*{WEBVTT_CLOCK}[ \t]+-->[ \t]+{WEBVTT_CLOCK}(?!\S)")
INDEX: Final = re.compile(r"\s*\d{1,18}\s*")
SECTION: Final = re.compile(r"\ufeff?\[([^\[\]]{1,80})\]\s*$")
DRAWING: Final = re.compile(r"\\p[1-9]")
MAX_FIELDS: Final = 100  # fields of an event


def subrip_cues(lines: Sequence[str]) -> Ranges | None:
    """Return the cues of SubRip: a cue begins with its number, if there is one before its times."""
    times = [number for number, line in enumerate(lines) if TIMES.match(line)]
    heads = [n - 1 if n and INDEX.fullmatch(lines[n - 1]) else n for n in times]
    return _after_times(lines, times, heads)


def subviewer_cues(lines: Sequence[str]) -> Ranges | None:
    """Return the cues of SubViewer, as YouTube writes it (.sbv)."""
    times = [number for number, line in enumerate(lines) if SUBVIEWER_TIMES.match(line)]
    return _after_times(lines, times, times)


def webvtt_cues(lines: Sequence[str]) -> Ranges | None:
    """Return the cues of WebVTT, without notes, styles and regions."""
    if not WEBVTT_HEAD.match(lines[0]):
        return None
    blanks = [number for number, line in enumerate(lines) if not line.strip("\r\n")]
    cues = []
    for blank, end in pairwise([*blanks, len(lines)]):
        heads = lines[blank + 1 : min(blank + 3, end)]  # the times, or an identifier and the times
        arrow = next((number for number, line in enumerate(heads) if WEBVTT_TIMES.match(line)), None)
        if arrow is not None:
            cues.append((blank + arrow + 2, end))
    return _characters(lines, cues)


def substation_cues(lines: Sequence[str]) -> Ranges | None:
    """Return the dialogue of SubStation Alpha (.ass, .ssa), without comments and drawings."""
    sections = [match[1] for line in lines if (match := SECTION.match(line))]
    if "Events" not in sections:
        return None
    found, fields, section, position = Ranges(), 0, "", 0
    for line in lines:
        name, _, rest = line.partition(":")
        if match := SECTION.match(line):
            section = match[1]
        elif section == "Events" and name == "Format":
            fields = min(rest.count(",") + 1, MAX_FIELDS)
        elif section == "Events" and name == "Dialogue" and fields:
            values = rest.split(",", fields - 1)  # the text is the last field and may have commas
            if len(values) == fields and not DRAWING.search(values[-1]):
                end = position + len(line.rstrip("\r\n"))
                found.append((end - len(values[-1].rstrip("\r\n")), end))
        position += len(line)
    return found


def _after_times(lines: Sequence[str], times: Sequence[int], heads: Sequence[int]) -> Ranges | None:
    """Return the texts from each line of times to the head of the next cue.

    lines: lines of the file.
    times: numbers of the lines with times.
    heads: numbers of the lines where the cues begin.
    """
    before = lines[: heads[0]] if heads else lines
    if any(line.strip("\ufeff \t\r\n") for line in before):
        return None
    ends = [*heads, len(lines)][1:]
    return _characters(lines, [(time + 1, end) for time, end in zip(times, ends, strict=True)])


def _characters(lines: Sequence[str], ranges: Ranges) -> Ranges:
    """Return ranges of lines as ranges of characters."""
    starts = [0, *accumulate(map(len, lines))]
    return [(starts[begin], starts[end]) for begin, end in ranges]
