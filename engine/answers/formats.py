"""Inserts the formats and phrases of a text into its answer by attention.

The model reads a text without its markup (`engine.text.placeables.markup`). `documents.projection` moves each
format to the words of the answer that are aligned with the words of the format. A phrase that the model did
not copy replaces the words that are aligned with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.answers.alignment import Alignment
from engine.schedule.slices import Slices
from engine.text.form import small_words
from engine.text.placeables.escapes import NO_ESCAPES, Escapes
from engine.text.placeables.markup import Format, PlainText
from engine.text.placeables.masked_text import KeptSpan, Phrase

if TYPE_CHECKING:
    from documents.spans import Segment


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats and phrases of a text.

    source: text with its markup.
    segment: text that the model reads; its spans are `formats`, then `phrases`.
    formats: format of each of the first spans.
    phrases: phrase of each further span.
    escapes: forms in which the source writes characters.
    """

    source: str
    segment: Segment
    formats: tuple[Format, ...]
    phrases: tuple[Phrase, ...]
    escapes: Escapes = NO_ESCAPES


@dataclass(frozen=True, slots=True)
class _Translation:
    """An answer with the fields of `documents.answers.TranslatedText`."""

    text: str
    alignment: Sequence[Alignment]
    kept: Sequence[KeptSpan]


@dataclass(frozen=True, slots=True)
class FormattedAnswer:
    """An answer with its formats.

    kept: places of phrases in `text`.
    forced: number of phrases that the model did not copy.
    """

    text: str
    kept: list[KeptSpan]
    forced: int


def formats_of(source: str, plain: PlainText, phrases: Sequence[tuple[int, int, Phrase]]) -> Slices[Formats]:
    """Gather the formats and phrases of a text, in slices.

    source: text with its markup.
    plain: text that the model reads, with the formats.
    phrases: begin, end and phrase of each phrase, in order and without overlaps.
    """
    # `documents` takes 0.15 seconds to import, and most texts have no formats
    from documents.spans import Segment, Span

    old = plain.formats
    order = sorted(range(len(old)), key=lambda n: (old[n].begin == old[n].end, old[n].begin, -old[n].end))
    # new number of each format; -1: no parent
    numbers = {before: number for number, before in enumerate(order)} | {-1: -1}
    formats, spans, around = [old[n] for n in order], list[Span](), _Around()
    firsts = [first for first, *_ in phrases]
    for number, form in enumerate(formats):
        point = form.begin == form.end
        begin, end = _whole_phrases(form, phrases, firsts)
        parent = numbers[form.parent] if point else around.innermost(end)
        link = form.before == "[" or form.before[:3].lower() == "<a "
        spans.append(Span(begin, end, parent, spaced=form.spaced, link=link))
        if not point:
            around.open(number, end)
        yield
    around, opened = _Around(), 0
    stretches = [span for span in spans if span.begin < span.end]
    for begin, end, _ in phrases:
        while opened < len(stretches) and stretches[opened].begin <= begin:
            around.open(opened, stretches[opened].end)
            opened += 1
        spans.append(Span(begin, end, around.innermost(end), kept=True))
        yield
    segment = Segment(plain.text, tuple(spans))
    return Formats(source, segment, tuple(formats), tuple(p for *_, p in phrases), plain.escapes)


def _whole_phrases(
    form: Format, phrases: Sequence[tuple[int, int, Phrase]], firsts: Sequence[int]
) -> tuple[int, int]:
    """Return the range of a format, extended to whole phrases at both ends.

    firsts: begin of each phrase.
    """
    begin, end, point = form.begin, form.end, form.begin == form.end
    first, last, *_ = phrases[bisect_left(firsts, begin) - 1] if firsts else (0, 0)
    if first < begin < last:
        begin = last if point else first
    first, last, *_ = phrases[bisect_left(firsts, end) - 1] if firsts else (0, 0)
    return begin, last if first < end < last else end


class _Around:
    """The spans that may be around the next span; spans are opened in the order of their begins.

    A span that ends before a later one is around nothing that the later one is not around.
    """

    def __init__(self) -> None:
        # number and end of each span, the largest end first
        self._numbers, self._ends = list[int](), list[int]()

    def open(self, number: int, end: int) -> None:
        while self._ends and -self._ends[-1] <= end:
            self._ends.pop()
            self._numbers.pop()
        self._numbers.append(number)
        self._ends.append(-end)  # negative, so that they are sorted

    def innermost(self, end: int) -> int:
        """Return the number of the last span that ends at `end` or later, -1 if there is none."""
        place = bisect_right(self._ends, -end) - 1
        return self._numbers[place] if place >= 0 else -1


def apply(
    formats: Formats,
    text: str,
    alignment: Sequence[Alignment],
    kept: Sequence[KeptSpan],
    languages: tuple[str, str],
) -> Slices[FormattedAnswer]:
    """Put formats and phrases into an answer, in slices.

    formats: formats and phrases of the source.
    text: answer without formats.
    alignment: alignments of the answer with the text that the model read.
    kept: places of the phrases in the answer; `span` is the number of the phrase.
    languages: codes of the languages of text and answer.
    """
    from documents.projection import project

    count = len(formats.formats)
    texts = {count + number: phrase.target for number, phrase in enumerate(formats.phrases)}
    words = small_words(languages[0]), small_words(languages[1])
    projected = yield from project(formats.segment, _Translation(text, alignment, kept), texts, words)
    known, found, missing = {phrase.span for phrase in kept}, dict[str, bool](), 0
    for number, phrase in enumerate(formats.phrases):
        if number in known:
            continue
        if phrase.target not in found:
            found[phrase.target] = phrase.target in text
            yield
        missing += not found[phrase.target]
    written = yield from _write(formats, projected)
    return replace(written, forced=missing)


def _write(formats: Formats, projected: Segment) -> Slices[FormattedAnswer]:
    """Write an answer with the markup of its formats, in slices."""
    from documents.spans import weave

    # `capitals` counts the open formats that write capitals
    parts, length, capitals = list[str](), 0, 0
    places = list[KeptSpan]()
    count, begun, kept = len(formats.formats), 0, False
    for kind, value in weave(projected):
        yield
        if isinstance(value, str):
            text = value.upper() if capitals else value
            if not kept or text not in formats.source:
                text = formats.escapes.write(text)
        elif value >= count:
            kept = kind == "begin"
            if kind == "begin":
                begun = length
            else:
                places += formats.phrases[value - count].kept(begun, length)
            continue
        else:
            form, opens = formats.formats[value], kind == "begin"
            capitals += form.capitals * (1 if opens else -1)
            text = form.before if opens else form.after
        parts.append(text)
        length += len(text)
    return FormattedAnswer("".join(parts), places, 0)
