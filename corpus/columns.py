"""Columns of the output, as plain values that every format can hold."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from corpus.job import CorpusJob
from corpus.line import LineStatus
from engine.api import Alignment, InvalidRequest, TextOptions, TextResult

WORD: Final = re.compile(r"\S+")
DIGITS: Final = 6  # decimal places of scores and shares


@dataclass(frozen=True, slots=True)
class Answer:
    """A line and its result.

    text: source text.
    status: outcome of the line, such as EMPTY.
    result: the translation; None: not translated.
    language: code of the detected language; None: not detected.
    job: job with the columns, models and their version.
    """

    text: str
    status: LineStatus
    result: TextResult | None
    language: str | None
    job: CorpusJob


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the output.

    help: description for people.
    kind: "text", "number", "texts" or "numbers".
    value: returns the value of an answer.
    always: the column has a value even if the line was not translated.
    """

    help: str
    kind: str
    value: Callable[[Answer, TextResult], Any]
    always: bool = False


def _flags(answer: Answer, result: TextResult) -> list[str]:
    """Return the names of the warnings that hold for an answer."""
    flags = {
        "truncated": result.truncated,
        "length": result.finish == "length",
        "loop": result.repetition.loop,
        "missed": any(sentence.missed for sentence in result.coverage),
        "doubtful": bool(result.doubtful),
    }
    return [name for name, holds in flags.items() if holds]


def _coverage_share(answer: Answer, result: TextResult) -> float | None:
    """Return the share of source words that a target word attended to."""
    words = sum(len(sentence.words) for sentence in result.coverage)
    missed = sum(len(sentence.missed) for sentence in result.coverage)
    return round(1 - missed / words, DIGITS) if words else None


def _pharaoh(answer: Answer, result: TextResult) -> str:
    """Return pairs of a source word and a target word, counted from 0, as "0-0 1-2": the source word is the
    one that a piece of the target word attends to most. White space separates words."""
    sources, targets = _word_starts(answer.text), _word_starts(result.text)
    pairs = {pair for alignment in result.alignment for pair in _word_pairs(alignment, sources, targets)}
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def _word_starts(text: str) -> list[int]:
    return [match.start() for match in WORD.finditer(text)]


def _word_pairs(
    alignment: Alignment, sources: Sequence[int], targets: Sequence[int]
) -> list[tuple[int, int]]:
    """Return a pair for each target piece: the source word that it attends to most, and its own word.

    alignment: attention of one sentence.
    sources, targets: position of the first character of each word.
    """
    links = []
    pieces = [i for i, place in enumerate(alignment.source_places) if place is not None]
    for row, target in zip(alignment.matrix, alignment.target_places, strict=True):
        if target is None or not pieces:
            continue
        source = alignment.source_places[max(pieces, key=row.__getitem__)]
        assert source is not None
        # a piece belongs to the last word that begins at or before it
        links.append((bisect_right(sources, source[0]) - 1, bisect_right(targets, target[0]) - 1))
    return links


COLUMNS: Final[Mapping[str, Column]] = {
    "translation": Column("the answer", "text", lambda _, result: result.text),
    "score": Column(
        "log-probability (natural), by the model's length penalty",
        "number",
        lambda _, result: round(result.score, DIGITS),
    ),
    "alternatives": Column("further answers, with --n-best", "texts", lambda _, result: result.alternatives),
    "alternative_scores": Column(
        "their scores", "numbers", lambda _, r: [round(score, DIGITS) for score in r.alternative_scores]
    ),
    "status": Column(
        "result of the line, such as ok or too_long",
        "text",
        lambda answer, _: str(answer.status),
        always=True,
    ),
    "flags": Column(
        "truncated, length, loop, missed (source words), doubtful (answer of an upstream)", "texts", _flags
    ),
    "coverage": Column("share of source words that a target word attended to", "number", _coverage_share),
    "alignment": Column("aligned words of source and translation: 0-0 1-2", "text", _pharaoh),
    "language": Column("detected language of the source", "text", lambda a, _: a.language, always=True),
    "source": Column("the source text", "text", lambda answer, _: answer.text, always=True),
    "pivot": Column(
        "the answer of the first of two models", "text", lambda _, r: r.via.text if r.via else None
    ),
    "model": Column(
        "names of the models that answered",
        "text",
        lambda a, r: r.model or "+".join(a.job.models),
        always=True,
    ),
    "version": Column(
        "hashes of the models, short", "text", lambda a, r: a.job.version_of(r.model), always=True
    ),
}


def parse_columns(text: str) -> dict[str, str]:
    """Return the names in the output by names in COLUMNS.

    text: value of --columns, such as "translation=mt,score".

    Raises InvalidRequest.
    """
    chosen: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, renamed = part.partition("=")
        if name not in COLUMNS:
            known = "; ".join(f"{name}: {column.help}" for name, column in COLUMNS.items())
            raise InvalidRequest(f"unknown column {name!r}; known are {known}")
        if name in chosen or (renamed or name) in chosen.values():
            raise InvalidRequest(f"column {part!r} comes twice")
        chosen[name] = renamed or name
    if not chosen:
        raise InvalidRequest(f"no columns: choose among {', '.join(COLUMNS)}")
    return chosen


def options_for(columns: Mapping[str, str], options: TextOptions) -> TextOptions:
    """Return options that also compute the values of the columns."""
    return replace(
        options,
        coverage=options.coverage or bool({"coverage", "flags"} & columns.keys()),
        alignment=options.alignment or "alignment" in columns,
    )


def values_of(answer: Answer) -> list[Any]:
    """Return the value of each column of the job for a line; None: no value."""
    chosen = [COLUMNS[name] for name in answer.job.columns]
    blank = answer.result or TextResult("")  # columns with `always` need no result
    known = answer.result is not None
    return [column.value(answer, blank) if known or column.always else None for column in chosen]
