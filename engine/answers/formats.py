"""Formats and phrases of a text, put back into its answer by attention.

The model reads a text without its markup (`engine.text.placeables.markup`). Each format goes to the words of
the answer that stem from its own, as those of documents do (`documents.projection`); a phrase that the model
did not copy takes the place of the words that stem from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.answers.alignment import Alignment
from engine.text.form import small_words
from engine.text.placeables.markup import Format, PlainText
from engine.text.placeables.masking import KeptSpan, Phrase

if TYPE_CHECKING:
    from documents.spans import Segment, Span


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats and phrases of a text.

    source: the text.
    segment: the text that the model reads; its spans are `formats`, then `phrases`.
    formats: the format of each of the first spans.
    phrases: the phrase of each further span.
    """

    source: str
    segment: Segment
    formats: tuple[Format, ...]
    phrases: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class _Translation:
    """An answer in the shape of `documents.answers.TranslatedText`."""

    text: str
    alignment: Sequence[Alignment]
    kept: Sequence[KeptSpan]


@dataclass(frozen=True, slots=True)
class FormattedAnswer:
    """An answer with its formats.

    kept: places of the phrases in `text`.
    forced: number of phrases that the model had not copied.
    """

    text: str
    kept: list[KeptSpan]
    forced: int


def formats_of(source: str, plain: PlainText, phrases: Sequence[tuple[int, int, Phrase]]) -> Formats:
    """Gather the formats and phrases of a text.

    source: the text.
    plain: the text that the model reads, with its formats.
    phrases: begin, end and phrase of each, in order and apart.
    """
    # `documents` takes 0.15 seconds to import, and most texts have no formats
    from documents.spans import Segment, Span

    old = plain.formats
    order = sorted(range(len(old)), key=lambda n: (old[n].begin == old[n].end, old[n].begin, -old[n].end))
    numbers = {before: number for number, before in enumerate(order)} | {-1: -1}
    formats, spans = [old[n] for n in order], list[Span]()
    for form in formats:
        begin, end = _beyond(form, phrases)
        point = form.begin == form.end
        parent = numbers[form.parent] if point else _around(spans, begin, end)
        spans.append(Span(begin, end, parent, spaced=form.spaced))
    for begin, end, _ in phrases:
        spans.append(Span(begin, end, _around(spans[: len(formats)], begin, end), kept=True))
    segment = Segment(plain.text, tuple(spans))
    return Formats(source, segment, tuple(formats), tuple(phrase for *_, phrase in phrases))


def _beyond(form: Format, phrases: Sequence[tuple[int, int, Phrase]]) -> tuple[int, int]:
    """The range of a format, with the whole of each phrase that it begins or ends in."""
    begin, end, point = form.begin, form.end, form.begin == form.end
    for first, last, _ in phrases:
        if first < begin < last:
            begin = last if point else first
        if first < end < last:
            end = last
    return begin, end


def _around(spans: Sequence[Span], begin: int, end: int) -> int:
    """The innermost of the spans around a range: those that begin later come later."""
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

    formats: of the source.
    text: the answer.
    alignment: its alignments to the text that the model read.
    kept: places of phrases that stand in the answer, `span` is the number of the phrase.
    languages: codes of the languages of the text and of the answer.
    """
    from documents.projection import project

    count = len(formats.formats)
    texts = {count + number: phrase.target for number, phrase in enumerate(formats.phrases)}
    there, here = map(small_words, languages)
    projected = project(formats.segment, _Translation(text, alignment, kept), texts, (there, here))
    known = {phrase.span for phrase in kept}
    missing = [p for number, p in enumerate(formats.phrases) if number not in known and p.target not in text]
    return replace(_written(formats, projected), forced=len(missing))


def _written(formats: Formats, projected: Segment) -> FormattedAnswer:
    from documents.spans import weave

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
