"""Subtitles: numbers, times, settings and blank lines stay, and each cue keeps its number of lines.

A sentence that goes on in the next cue is translated as one text and divided again at a space.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape, unescape
from itertools import pairwise, zip_longest
from typing import Final, TypeAlias

from documents.document import Document, unreadable
from documents.formats.cues import Ranges, subrip_cues, substation_cues, subviewer_cues, webvtt_cues
from documents.formats.plain import NEWLINE, decode_guessed
from documents.spans import MAX_SPANS, Builder, Segment, goes_on
from documents.tagged import TaggedText, read_tagged

TAG: Final = re.compile(r"(</?[a-zA-Z][^<>]*>|\{\\[^{}]*\})")
WEBVTT_TAG: Final = re.compile(r"(</?[a-zA-Z0-9][^<>]*>)")
SUBSTATION_TAG: Final = re.compile(r"(\{[^{}]*\})")
LINE_END: Final = re.compile(r"\r\n?|\n|\\N")  # "\N" of SubStation is usual in SubRip too
SUBSTATION_LINE_END: Final = re.compile(r"\\[Nn]")
HARD_SPACE: Final = "\\h"
LEADING_TAGS: Final = r"\s*(?:(?:<[^<>]*>|\{[^{}]*\})\s*)*"
DIALOGUE: Final = re.compile(LEADING_TAGS + "[-–—]")
SPEAKER: Final = re.compile(LEADING_TAGS + r"[^\W\d_a-zà-ÿ][^\Wa-zà-ÿ]*(?:[ .'-]+[^\Wa-zà-ÿ]+)*\s?:")
SOUND: Final = re.compile(LEADING_TAGS + r"(?:\[[^\[\]]*\]|\([^()]*\)|[♪♫#].*[♪♫#])[\s<>/a-z]*")
END_OF_SENTENCE: Final = re.compile(r"(?:[!?…]|\w{4}\.|\.\.\.)[\"'”’»)]*\s*$")
OPEN_TAG: Final = re.compile(r"<(/?)[a-zA-Z]")
CLINGING: Final = "?!:;»"  # marks that don't begin a line, after a space in French
FIRST_CHARACTERS: Final = 1_000  # of a file, in which its line ends are searched
MAX_JOINED: Final = 6  # cues with one sentence


@dataclass(frozen=True, slots=True)
class _Syntax:
    """The differences between the formats.

    kind: name of the format, for messages.
    tag: pattern of tags.
    cues: returns the characters [begin, end) of each cue; None: the file has another format.
    read_text, write_text: unescape and escape characters.
    line_end: pattern of the line ends in a cue.
    new_line: line end between a translation and its source.
    joins: a sentence may go on in the next cue.
    """

    kind: str
    tag: re.Pattern[str]
    cues: Callable[[Sequence[str]], Ranges | None]
    read_text: Callable[[str], str] = str
    write_text: Callable[[str], str] = str
    line_end: re.Pattern[str] = LINE_END
    new_line: str = "\n"
    joins: bool = True


class _Part:
    """Lines of a cue that are translated as one text; `breaks` are the line ends between them."""

    def __init__(self, text: str, syntax: _Syntax) -> None:
        self.source, self.syntax = text, syntax
        self.breaks = syntax.line_end.findall(text)
        self.tagged = read_tagged(syntax.line_end.sub(" ", text), syntax.tag, syntax.read_text)
        if len(self.tagged.marks) > MAX_SPANS:
            raise unreadable(syntax.kind)
        self.segment = self.tagged.segment

    def write(self, segment: Segment) -> str:
        """Return the cue's text with the segment, wrapped to as many lines as before."""
        if segment is self.segment:
            return self.source
        if segment.original:
            translation = self.write(replace(segment, original=None))
            return segment.stacked(translation, self.source, self.syntax.new_line)
        segment = replace(_in_time(segment, self.tagged), text=wrap(segment.text, len(self.breaks) + 1))
        lines = self.tagged.write(segment, self.syntax.write_text).split("\n")
        ends = [*self.breaks[: len(lines) - 1], ""]
        return "".join(line + end for line, end in zip(lines, ends, strict=True))


def _in_time(segment: Segment, tagged: TaggedText) -> Segment:
    """Return a segment whose time stamps (`<00:01.000>`) have the order of the source, as WebVTT requires.

    segment: translation.
    tagged: source with the tags of all spans.
    """
    spans, stamps = list(segment.spans), dict[int, list[int]]()
    for number, (tag, _) in enumerate(tagged.marks):
        if tag[1:2].isdigit():
            stamps.setdefault(spans[number].parent, []).append(number)
    for numbers in stamps.values():
        places = sorted(spans[number].begin for number in numbers)
        for number, place in zip(numbers, places, strict=True):
            spans[number] = replace(spans[number], begin=place, end=place)
    return replace(segment, spans=tuple(spans))


class _Joined:
    """Parts of consecutive cues with one sentence; `between` is the markup between them."""

    def __init__(self, parts: Sequence[_Part], between: Sequence[str]) -> None:
        self.parts, self.between = parts, between
        builder = Builder()
        for number, part in enumerate(parts):
            if number:
                builder.line()
            builder.text(part.segment.text)
        self.segment = builder.segment()

    def write(self, segment: Segment) -> str:
        """Return the texts of the cues, each with its share of the sentence, and the markup between them."""
        if segment is self.segment:
            texts = [part.source for part in self.parts]
        else:
            places = [0, *sorted(span.begin for span in segment.spans), len(segment.text)]
            cuts = [segment.text[begin:end].strip() for begin, end in pairwise(places)]
            texts = [
                part.write(
                    Segment(text, original=part.segment if segment.original else None, below=segment.below)
                )
                for part, text in zip(self.parts, cuts, strict=True)
            ]
        return texts[0] + "".join(m + t for m, t in zip(self.between, texts[1:], strict=True))


_Text: TypeAlias = _Part | _Joined


@dataclass(frozen=True, slots=True)
class _Subtitles:
    """The file is markup[0] parts[0] markup[1] ... markup[-1]."""

    markup: list[str]
    parts: Sequence[_Text]

    def join(self, segments: Sequence[Segment]) -> str:
        texts = [part.write(segment) for part, segment in zip(self.parts, segments, strict=True)]
        return self.markup[0] + "".join(t + m for t, m in zip(texts, self.markup[1:], strict=True))


def read_subrip(data: bytes) -> Document:
    """Return the cues of a SubRip file. Raises Unreadable."""
    return _read(data, SUBRIP)


def read_webvtt(data: bytes) -> Document:
    """Return the cues of a WebVTT file, without notes, styles, regions and settings. Raises Unreadable."""
    return _read(data, WEBVTT)


def read_subviewer(data: bytes) -> Document:
    """Return the cues of a SubViewer file of YouTube. Raises Unreadable."""
    return _read(data, SUBVIEWER)


def read_substation(data: bytes) -> Document:
    """Return the dialogue of a SubStation Alpha file, without override tags. Raises Unreadable."""
    return _read(data, SUBSTATION)


def _read(data: bytes, syntax: _Syntax) -> Document:
    file = decode_guessed(data)
    if syntax.new_line == "\n":
        syntax = replace(syntax, new_line=(NEWLINE.findall(file.text[:FIRST_CHARACTERS]) or ["\n"])[0])
    subtitles = _parse_subtitles(file.text, syntax)

    def write(segments: Sequence[Segment]) -> bytes:
        return file.encode(subtitles.join(segments))

    return Document([part.segment for part in subtitles.parts], write, file.notices)


def _parse_subtitles(text: str, syntax: _Syntax) -> _Subtitles:
    """Return the parts of a file that are translated, and the markup between them."""
    lines = [text[begin:end] for begin, end in pairwise([0, *(m.end() for m in NEWLINE.finditer(text))])]
    lines.append(text[sum(map(len, lines)) :])
    cues = syntax.cues(lines)
    if cues is None:
        raise unreadable(syntax.kind)
    markup, parts = list[str](), list[_Part]()
    done, between = 0, list[str]()  # characters before the next part, and markup since the last one
    for begin, end in cues:
        between.append(text[done:begin])
        done = end
        for content in _texts(text[begin:end], syntax.line_end):
            bare = content.strip()
            if bare.endswith(HARD_SPACE[0] + "N"):  # the line end between two texts of a cue
                bare = bare[:-2].rstrip()
            part = _Part(bare, syntax)
            if not part.segment.text.strip():
                between.append(content)
                continue
            at = content.index(bare)
            markup.append("".join([*between, content[:at]]))
            parts.append(part)
            between = [content[at + len(bare) :]]
    markup.append("".join([*between, text[done:]]))
    return _joined(markup, parts) if syntax.joins else _Subtitles(markup, parts)


def _joined(markup: Sequence[str], parts: Sequence[_Part]) -> _Subtitles:
    """Return the subtitles with consecutive parts of one sentence joined; parts with tags stay alone."""
    texts, around, first = list[_Text](), list(markup[:1]), 0
    for number, (part, after) in enumerate(zip_longest(parts, parts[1:])):
        if (
            after
            and not part.tagged.marks
            and not after.tagged.marks
            and number - first + 1 < MAX_JOINED
            and goes_on(part.segment.text, after.segment.text)
        ):
            continue
        if number == first:
            texts.append(part)
        else:
            texts.append(_Joined(parts[first : number + 1], markup[first + 1 : number + 1]))
        around.append(markup[number + 1])
        first = number + 1
    return _Subtitles(around, texts)


SUBRIP: Final = _Syntax("SubRip subtitles", TAG, subrip_cues, lambda text: text.replace(HARD_SPACE, "\u00a0"))
SUBVIEWER: Final = _Syntax("SubViewer subtitles", TAG, subviewer_cues)
WEBVTT: Final = _Syntax("WebVTT subtitles", WEBVTT_TAG, webvtt_cues, unescape, partial(escape, quote=False))
SUBSTATION: Final = replace(
    SUBRIP,
    kind="SubStation Alpha subtitles",
    tag=SUBSTATION_TAG,
    cues=substation_cues,
    write_text=lambda text: text.replace("\u00a0", HARD_SPACE),
    line_end=SUBSTATION_LINE_END,
    new_line="\\N",
    joins=False,
)


def _texts(body: str, line_end: re.Pattern[str]) -> Iterator[str]:
    """Yield the texts of a cue with the line end after each: a line of a dialogue, of a speaker or with a
    sound, and a line after the end of a sentence, begin a new text."""
    ends = [m.end() for m in line_end.finditer(body.rstrip())]
    lines = [body[begin:end] for begin, end in pairwise([0, *ends, len(body)])]
    dialogue = all(map(DIALOGUE.match, lines))
    text, open_tags = lines[0], _open_tags(lines[0])
    for before, line in pairwise(lines):
        bare = line_end.sub("", before)
        begins = dialogue or SPEAKER.match(line) or SOUND.fullmatch(line) or SOUND.fullmatch(bare)
        ends_sentence = END_OF_SENTENCE.search(bare) and not line.strip()[:1].islower()
        if open_tags == 0 and line.strip() and (begins or ends_sentence):
            yield text
            text = ""
        text, open_tags = text + line, open_tags + _open_tags(line)
    yield text


def _open_tags(line: str) -> int:
    """Return the number of tags that begin in a line less the number that end in it."""
    return sum(-1 if slash else 1 for slash in OPEN_TAG.findall(line))


def wrap(text: str, lines: int) -> str:
    """Return a text in lines of about equal length: spaces become line feeds, so that no character moves.

    text: the text.
    lines: number of lines, if it has as many words.
    """
    characters = list(text)
    spaces = [
        place
        for place, character in enumerate(text)
        if character == " " and text[place + 1 : place + 2] not in CLINGING
    ]
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
