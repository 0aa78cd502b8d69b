"""Sentences of a text, by sentencex (the sentence splitter of Wikimedia, some 240 languages).

White space, columns, marks of lists and dialogue, and pictures at the ends are no part of a sentence and stay
where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import sentencex

from engine.errors import TooLarge
from engine.text.languages import rules_of
from engine.text.placeables.grammar import (
    ABBREVIATION,
    ACROSS_CLAUSES,
    BORDER,
    CELL_BORDER,
    CLAUSE_MARK,
    CLAUSE_SIGNS,
    COLUMN_SIGNS,
    COLUMNS,
    EDGE,
    EDGE_SIGNS,
    FIRST_ITEM,
    ITEM,
    LAST_BRACKETS,
    LEADING,
    MAX_COLUMN_WORDS,
    NUMBERED,
    SPEECH,
    TABLE_ROW,
)

# places to cut a sentence that is too long, best first
CUTS: Final = (
    re.compile(r"(?<=[,;:.!?…)–—]\s)|(?<=[，；：、。！？])"),
    re.compile(r"(?<=\s)(?=\S)"),
    re.compile(r"(?<=.)(?=.)", re.DOTALL),
)
ITEM_STARTS: Final = ("", *":;.?!")  # characters before an enumeration within a line
MIN_INDENT_CHARACTERS: Final = 2  # before the mark of a nested list
STRETCH_CHARACTERS: Final = 4_096  # characters of a line that the library gets at once
# ends of sentences that the library does not find: How much?? 5 €.  l'appareil ! 220 V
MORE_ENDS: Final = re.compile(r"[?!] (?=[+€$£]?\d)|[?!]{2} (?=\w)")
# white space other than the plain space, and surrogates: sentencex 1.0 panics on "A\xa0." and on surrogates
UNUSUAL: Final = re.compile(r"[^\S ]|[\ud800-\udfff]")


class _Segment(NamedTuple):
    """Characters [begin, end) of a text.

    stays: the segment is a mark, such as a bullet, and is not translated.
    clause: the segment is a part of a sentence that was cut at marks.
    """

    begin: int
    end: int
    stays: bool = False
    clause: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """A text as sentences and the white space around them: gaps[0] sentences[0] gaps[1] ... gaps[-1].

    fixed: indices of "sentences" that are not translated, such as marks of lists.
    clauses: indices of clauses, the parts of a sentence that was cut at marks.
    """

    sentences: list[str]
    gaps: list[str]
    fixed: frozenset[int] = frozenset()
    clauses: frozenset[int] = frozenset()

    def join(self, translations: Sequence[str], space: Callable[[str, str], str] | None = None) -> str:
        """Return the text with a translation in the place of each sentence.

        translations: one translation for each sentence.
        space: function that returns the white space between two translations, from that between their
            sentences and the first translation; None: the same.
        """
        assert len(translations) == len(self.sentences)
        inner = self.gaps[1:-1]
        if space is not None:
            inner = [space(gap, before) for gap, before in zip(inner, translations, strict=False)]
        gaps = [self.gaps[0], *inner, self.gaps[-1]] if self.sentences else self.gaps
        parts = [part for pair in zip(gaps, translations, strict=False) for part in pair]
        return "".join([*parts, gaps[-1]])


def split(
    text: str,
    language: str,
    fits: Callable[[str], bool] | None = None,
    seen: str | None = None,
    *,
    clauses: bool = False,
    count: Callable[[str], object] | None = None,
) -> Generator[None, None, Layout]:
    """Split a text into sentences, in steps; a line break always ends one.

    Joining the sentences gives the text again.

    text: any text.
    language: language code; general rules of the library split languages that it lacks.
    fits: returns whether a sentence is short enough; `break_long` cuts longer ones and may raise TooLarge.
    seen: text of the same length and lines in which the ends of sentences are found instead.
    clauses: whether to cut at dashes, dots and brackets at the end of a sentence too, which stay.
    count: function that is called with each sentence, except marks; it may raise TooLarge.
    """
    sentences, gaps = list[str](), [list[str]()]
    fixed, parts_of_sentences = set[int](), set[int]()
    splitter_text = text if seen is None else seen
    segments = _segments(splitter_text, language)
    for begin, end, stays, clause in _clauses(splitter_text, segments) if clauses else segments:
        yield
        segment = text[begin:end]
        may_break = fits and not stays and segment.strip()
        for part in break_long(segment, fits) if fits and may_break else [segment]:
            yield
            sentence = part.strip()
            at = part.index(sentence)
            gaps[-1].append(part[:at])
            if sentence:
                if count and not stays:
                    count(sentence)
                if stays:
                    fixed.add(len(sentences))
                elif clause:
                    parts_of_sentences.add(len(sentences))
                sentences.append(sentence)
                gaps.append([])
            gaps[-1].append(part[at + len(sentence) :])
    joined = ["".join(gap) for gap in gaps]
    return Layout(sentences, joined, frozenset(fixed), frozenset(parts_of_sentences))


def break_long(text: str, fits: Callable[[str], bool], level: int = 0) -> Iterator[str]:
    """Yield parts of a text that fit, cut after punctuation, otherwise at spaces, otherwise anywhere.

    text: sentence; its joined parts give it again.
    fits: returns whether a part is short enough.
    level: number of the cut in `CUTS`; parts that are too long are cut by later ones.

    Raises TooLarge if a single character does not fit.
    """
    if fits(text):
        yield text
        return
    if level == len(CUTS):
        raise TooLarge(f"not even the single character {text!r} fits the model's longest source")
    pieces = CUTS[level].split(text)
    begin = 0
    while begin < len(pieces):
        count = _fitting_count(pieces, begin, fits)
        if count:
            yield "".join(pieces[begin : begin + count])
        else:
            yield from break_long(pieces[begin], fits, level + 1)
        begin += max(count, 1)


def _fitting_count(pieces: list[str], begin: int, fits: Callable[[str], bool]) -> int:
    """Return about the largest number of pieces from `begin` that fit together, by doubling and bisection."""

    def fit(count: int) -> bool:
        return fits("".join(pieces[begin : begin + count]))

    limit = len(pieces) - begin
    good, bad = 0, 1
    while bad <= limit and fit(bad):
        good, bad = bad, bad * 2
    bad = min(bad, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fit(middle) else (good, middle)
    return good


def pack(sentences: Sequence[str], fits: Callable[[str], bool]) -> Generator[None, None, list[str]]:
    """Join adjacent sentences by spaces into the longest parts that fit, in steps; each sentence alone must
    fit."""
    parts, begin = list[str](), 0
    pieces = [sentence + " " for sentence in sentences]
    while begin < len(pieces):
        count = max(1, _fitting_count(pieces, begin, fits))
        parts.append("".join(pieces[begin : begin + count]).rstrip())
        begin += count
        yield
    return parts


def paragraphs(layout: Layout, fits: Callable[[str], bool]) -> Layout:
    """Return a layout with adjacent sentences of a line joined, as long as they fit; marks stay apart.

    layout: layout of sentences, without clauses.
    fits: returns whether a text is short enough.
    """
    sentences, gaps, fixed = list[str](), layout.gaps[:1], set[int]()
    for number, (sentence, gap) in enumerate(zip(layout.sentences, layout.gaps[1:], strict=True)):
        joined = sentences[-1] + gaps[-1] + sentence if sentences else ""
        apart = number in layout.fixed or len(sentences) - 1 in fixed or "\n" in gaps[-1]
        if joined and not apart and fits(joined):
            sentences[-1], gaps[-1] = joined, gap
            continue
        fixed |= {len(sentences)} if number in layout.fixed else set()
        sentences.append(sentence)
        gaps.append(gap)
    return Layout(sentences, gaps, frozenset(fixed))


def _segments(text: str, language: str) -> Iterator[_Segment]:
    """Yield each sentence and each mark between them."""
    position, lines = 0, text.splitlines(keepends=True)
    numbers = {_list_number(mark[1]) for line in lines if (mark := NUMBERED.match(line.lstrip()))}
    for line in lines:
        items = _items(line)
        inline = {_list_number(item[1]) for item in items}
        for begin, end in _columns(line, [item.start() for item in items]):
            counted = inline if begin else numbers | inline
            yield from _sentences(text, position + begin, position + end, language, counted)
        position += len(line)


def _clauses(text: str, segments: Iterator[_Segment]) -> Iterator[_Segment]:
    """Yield the segments with sentences cut at the marks between their clauses."""
    for segment in segments:
        parts = list(_cut(text, segment))
        yield from (part._replace(clause=True) for part in parts) if len(parts) > 1 else parts


def _cut(text: str, segment: _Segment) -> Iterator[_Segment]:
    """Yield the clauses of a sentence and the marks between them; another segment stays whole."""
    begin, end, stays, _ = segment
    brackets = None
    if not stays and CLAUSE_SIGNS.search(text, begin, end):
        if speech := SPEECH.match(text, begin, end):
            yield _Segment(begin, speech.start(1))
            yield _Segment(*speech.span(1), stays=True)
            begin = speech.end()
        brackets = LAST_BRACKETS.search(text, begin, end)
        stop = brackets.start() if brackets else end
        if ACROSS_CLAUSES.search(text, begin, stop):
            brackets = None
        else:
            for mark in CLAUSE_MARK.finditer(text, begin, stop):
                yield _Segment(begin, mark.start())
                yield _Segment(*mark.span(), stays=True)
                begin = mark.end()
    if brackets:
        yield _Segment(begin, brackets.start())
        yield _Segment(brackets.start(), brackets.start(1), stays=True)
        yield _Segment(*brackets.span(1))
        yield _Segment(brackets.end(1), end, stays=True)
    else:
        yield _Segment(begin, end, stays)


def _items(line: str) -> list[re.Match[str]]:
    """Return the marks of an enumeration within a line: a) one b) two. It begins the line or a sentence."""
    items = list[re.Match[str]]()
    for mark in ITEM.finditer(line) if FIRST_ITEM.search(line) else ():
        if items:
            is_item = mark[0][-1] == items[-1][0][-1] and _follows(items[-1][1], mark[1])
        else:
            is_item = mark[1] in "aA1" and line[: mark.start()].rstrip()[-1:] in ITEM_STARTS
        items += [mark] if is_item else []
    return items if len(items) > 1 else []


def _follows(mark: str, after: str) -> bool:
    """Return whether a number or letter of a list is the next one after another."""
    step = _list_number(after) - _list_number(mark)
    return step == (1 if mark.isdigit() else -1) and mark.isdigit() == after.isdigit()


def _columns(line: str, items: Sequence[int] = ()) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each column (table cell, or text between wide gaps) with its trailing space.

    items: positions of the items of an enumeration; each one is a column.
    """
    if items:
        yield from pairwise([0] * (items[0] > 0) + [*items, len(line)])
        return
    if not COLUMN_SIGNS.search(line):
        yield 0, len(line)
        return
    body = len(line) - len(line.lstrip())
    row = TABLE_ROW.match(line)
    pattern = CELL_BORDER if row else COLUMNS
    last = len(line.rstrip())
    borders = [match for match in pattern.finditer(line, body) if match.end() < last]
    edges = [0, *(match.end() for match in borders), len(line)]
    short = [_is_short(line, begin, end) for begin, end in pairwise(edges)]
    begin = 0
    for match, before, after in zip(borders, short, short[1:], strict=False):
        if row or BORDER in match[0] or "\t" in match[0] or len(match[0]) > 2 or (before and after):
            yield begin, match.end()
            begin = match.end()
    yield begin, len(line)


def _is_short(line: str, begin: int, end: int) -> bool:
    """Return whether a cell has few enough words to be a column next to two spaces."""
    return len(line[begin:end].split(None, MAX_COLUMN_WORDS)) <= MAX_COLUMN_WORDS


def _sentences(text: str, begin: int, end: int, language: str, numbers: Set[int]) -> Iterator[_Segment]:
    """Yield the segments of one cell: its sentences, and the marks before and after them.

    numbers: list numbers at the beginnings of lines of the text.
    """
    space = begin
    while space < end and text[space].isspace():
        space += 1
    indented = space - begin >= MIN_INDENT_CHARACTERS
    if marked := _list_mark_end(text, space, end, language, numbers, indented=indented):
        yield _Segment(begin, marked, stays=True)
        begin = marked
    # replacements have the same length, so positions in the result are positions in the text
    plain = ABBREVIATION.sub(lambda match: match[0].replace(".", "_"), UNUSUAL.sub(" ", text[begin:end]))
    for sentence in _library_sentences(language, plain):
        ends = () if ACROSS_CLAUSES.search(sentence) else MORE_ENDS.finditer(sentence)
        for first, last in pairwise([0, *(mark.end() for mark in ends), len(sentence)]):
            yield from _without_edge_marks(text, begin + first, begin + last)
        begin += len(sentence)
    assert begin == end


def _list_mark_end(
    text: str, begin: int, end: int, language: str, numbers: Set[int], *, indented: bool
) -> int:
    """Return the end of the list marks at the beginning of a line, or 0.

    "1." is a list mark if the language writes no ordinals so, the line is indented, or another line has the
    next or previous number.
    """
    last = 0
    if number := NUMBERED.match(text, begin, end):
        doubtful = number[1].isalpha() or rules_of(language).dotted_ordinals
        count = _list_number(number[1])
        if number.end() < end and (not doubtful or indented or numbers & {count - 1, count + 1}):
            begin = last = number.end()
    mark = LEADING.match(text, begin, end)
    return mark.end() if mark else last


def _list_number(mark: str) -> int:
    """Return the number of a list mark; letters have negative numbers, which follow one another too."""
    return int(mark) if mark.isdigit() else -ord(mark)


def _library_sentences(language: str, line: str) -> Iterator[str]:
    """Yield the library's sentences of a line.

    The library gets a stretch at a time, since it reads all the text after each quotation mark.
    """
    begin = 0
    while begin < len(line):
        sentences = list(sentencex.segment(language, line[begin : begin + STRETCH_CHARACTERS]))
        if len(sentences) > 1 and begin + STRETCH_CHARACTERS < len(line):
            sentences.pop()  # it may continue in the next stretch
        yield from sentences
        begin += sum(map(len, sentences))


def _without_edge_marks(text: str, begin: int, end: int) -> Iterator[_Segment]:
    """Yield a sentence and, as marks, the pictures before and after it."""
    if not EDGE_SIGNS.search(text, begin, end):  # the usual case
        yield _Segment(begin, end)
        return
    marks = list(EDGE.finditer(text, begin, end))
    if marks and not text[begin : marks[0].start()].strip():
        yield _Segment(begin, marks[0].end(), stays=True)
        begin = marks[0].end()
    if marks and marks[-1].start() >= begin and not text[marks[-1].end() : end].strip():
        yield _Segment(begin, marks[-1].start())
        yield _Segment(marks[-1].start(), end, stays=True)
    else:
        yield _Segment(begin, end)
