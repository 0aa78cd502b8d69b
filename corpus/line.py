"""A line of an input: its text, its status, and a window of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class LineStatus(StrEnum):
    """What became of a line."""

    OK = "ok"
    EMPTY = "empty"  # no text: its translation is empty
    TOO_LONG = "too_long"  # more bytes than a line may have, or more tokens than the model reads
    ENCODING = "encoding"  # not UTF-8
    MALFORMED = "malformed"  # not JSON, or without the column
    LANGUAGE = "language"  # in another language than --only-language names
    REPETITIVE = "repetitive"  # the translation goes round in circles
    REFUSED = "refused"  # the model can't answer such a text
    FAILED = "failed"  # the backend failed


FINE = frozenset({LineStatus.OK, LineStatus.EMPTY})


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line as it was read.

    text: what is translated; empty unless `status` is OK.
    reason: why there is no text, in words.
    whole: whether the format could read it, so that it can be carried through as it is.
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

    name: of the input, as `InputFile` has it.
    first: the number of the first line in its file, from 0.
    carried: what the format carries through, in the same order.
    """

    name: str
    first: int
    lines: Sequence[SourceLine]
    carried: Any


@dataclass(frozen=True, slots=True)
class OutputRow:
    """What is written for a line.

    values: one of each of the job's columns.
    words: of the text that was translated.
    """

    status: LineStatus
    values: Sequence[Any]
    words: int = 0
    reason: str = ""


def line_of(text: str | None) -> SourceLine:
    """Make the line of a text that was read; None is a missing value. Half a surrogate pair is no Unicode."""
    if text is None or not text.strip():
        return SourceLine("", LineStatus.EMPTY)
    try:
        text.encode()
    except UnicodeEncodeError:
        return SourceLine("", LineStatus.ENCODING, "half of a surrogate pair")
    return SourceLine(text)
