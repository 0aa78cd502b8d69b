"""A line of an input: its text, its status, and a window of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class LineStatus(StrEnum):
    """The result of a line."""

    OK = "ok"
    EMPTY = "empty"  # no text; the translation is empty
    TOO_LONG = "too_long"  # more bytes than a line may have, or more tokens than the model reads
    ENCODING = "encoding"  # not UTF-8
    MALFORMED = "malformed"  # not JSON, or without the column
    LANGUAGE = "language"  # not in the source language, with --only-language
    REPETITIVE = "repetitive"  # the translation repeats itself
    REFUSED = "refused"  # the model can't answer such a text
    FAILED = "failed"  # the backend failed


FINE = frozenset({LineStatus.OK, LineStatus.EMPTY})


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line as it was read.

    text: text to translate; empty unless `status` is OK.
    reason: explanation for people of a status other than OK.
    whole: the format could read the line, so that its other cells can be copied unchanged.
    """

    text: str
    status: LineStatus = LineStatus.OK
    reason: str = ""
    whole: bool = True


class BadLine(Exception):
    """A line that has no text to translate."""

    def __init__(self, status: LineStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Window:
    """Lines that are read, sorted and written together.

    name: input file of the lines (`InputFile.name`).
    first: number of the first line in its file, from 0.
    carried: data of the format for each line, which the writer copies to the output.
    """

    name: str
    first: int
    lines: Sequence[SourceLine]
    carried: Any


@dataclass(frozen=True, slots=True)
class OutputRow:
    """The output of a line.

    values: one value for each column of the job.
    words: number of words of the translated text.
    reason: explanation for people of a bad status.
    model: names of the models that answered; "": none did.
    """

    status: LineStatus
    values: Sequence[Any]
    words: int = 0
    reason: str = ""
    model: str = ""


def line_of(text: str | None) -> SourceLine:
    """Return the line of a text; None is a missing value. Half of a surrogate pair is an encoding error."""
    if text is None or not text.strip():
        return SourceLine("", LineStatus.EMPTY)
    try:
        text.encode()
    except UnicodeEncodeError:
        return SourceLine("", LineStatus.ENCODING, "half of a surrogate pair")
    return SourceLine(text)
