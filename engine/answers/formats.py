"""Inserts the formats and phrases of a text into its answer by attention.

The model reads a text without its markup (`engine.text.placeables.markup`). `documents.projection` moves each
format to the words of the answer that are aligned with the words of the format. A phrase that the model did
not copy replaces the words that are aligned with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.answers.alignment import Alignment
from engine.text.form import small_words
from engine.text.placeables.markup import Format, PlainText
from engine.text.placeables.masked_text import KeptSpan, Phrase

if TYPE_CHECKING:
    from documents.spans import Segment, Span


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats and phrases of a text.

    source: text with its markup.
    segment: text that the model reads; its spans are `formats`, then `phrases`.
    formats: format of each of the first spans.
    phrases: phrase of each further span.
    """

    source: str
    segment: Segment
    formats: tuple[Format, ...]
    phrases: tuple[Phrase, ...]


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


def formats_of(source: str, plain: PlainText, phrases: Sequence[tuple[int, int, Phrase]]) -> Formats:
    """Gather the formats and phrases of a text.

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
    formats, spans = [old[n] for n in order], list[Span]()
    for form in formats:
        begin, end = _whole_phrases(form, phrases)
        point = form.begin == form.end
        parent = numbers[form.parent] if point else _innermost(spans, begin, end)
        spans.append(Span(begin, end, parent, spaced=form.spaced))
    for begin, end, _ in phrases:
        spans.append(Span(begin, end, _innermost(spans[: len(formats)], begin, end), kept=True))
    segment = Segment(plain.text, tuple(spans))
    return Formats(source, segment, tuple(formats), tuple(phrase for *_, phrase in phrases))


def _whole_phrases(form: Format, phrases: Sequence[tuple[int, int, Phrase]]) -> tuple[int, int]:
    """Return the range of a format, extended to whole phrases at both ends."""
    begin, end, point = form.begin, form.end, form.begin == form.end
    for first, last, _ in phrases:
        if first < begin < last:
            begin = last if point else first
        if first < end < last:
            end = last
    return begin, end


def _innermost(spans: Sequence[Span], begin: int, end: int) -> int:
    """Return the number of the innermost span around a range, -1 if there is none."""
    around = (
        number
        for number in range(len(spans) - 1, -1, -1)
        if spans[number].begin <= begin
        and end <= spans[number].end
        and spans[number].begin < spans[number].end
    )
    return next(around, -1)


def apply(
    formats: Formats,
    text: str,
    alignment: Sequence[Alignment],
    kept: Sequence[KeptSpan],
    languages: tuple[str, str],
) -> FormattedAnswer:
    """Put formats and phrases into an answer.

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
    projected = project(formats.segment, _Translation(text, alignment, kept), texts, words)
    known = {phrase.span for phrase in kept}
    missing = [p for number, p in enumerate(formats.phrases) if number not in known and p.target not in text]
    return replace(_write(formats, projected), forced=len(missing))


def _write(formats: Formats, projected: Segment) -> FormattedAnswer:
    """Write an answer with the markup of its formats."""
    from documents.spans import weave

    # `capitals` counts the open formats that write capitals
    parts, length, capitals = list[str](), 0, 0
    places = list[KeptSpan]()
    count, begun = len(formats.formats), 0
    for kind, value in weave(projected):
        if isinstance(value, str):
            text = value.upper() if capitals else value
        elif value >= count:
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
