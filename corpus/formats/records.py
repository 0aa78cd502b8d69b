"""Cuts bytes into lines or CSV records of bounded length, in constant memory."""

from __future__ import annotations

import codecs
import hashlib
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# a row with an open quoted cell at its end (RFC 4180, section 2); possessive, so the match is linear
OPEN_CELL: Final = re.compile(rb'(?:(?:"(?:[^"]++|"")*+"[^,]*+|[^",][^,]*+|),)*+"(?:[^"]++|"")*+')


class Record(NamedTuple):
    """A line, or several lines joined by a quoted cell, without the last line end.

    raw: bytes of the record; empty if it is too long.
    size: bytes in the file, with the line end.
    too_long: the record exceeds the limit.
    """

    raw: bytes
    size: int
    too_long: bool = False


def read_records(stream: io.BufferedReader, limit: int, *, quoted: bool, start: bool) -> Iterator[Record]:
    """Yield the records of a stream from its current position. Only a line feed ends a line.

    stream: decompressed bytes.
    limit: maximum number of bytes of a record.
    quoted: quoted cells may contain line ends. A cell without a closing quote ends with the line that exceeds
        the limit.
    start: the position is the beginning of the file, where a byte order mark is skipped.
    """
    while (record := _read_line(stream, limit)).size:
        if start:
            record, start = record._replace(raw=record.raw.removeprefix(codecs.BOM_UTF8)), False
        if quoted:
            record = _close_cell(stream, record, limit)
        yield record._replace(raw=record.raw.removesuffix(b"\n").removesuffix(b"\r"))


def add_to_digest(digest: hashlib._Hash, record: Record) -> None:
    """Add a record to the hash of its shard."""
    digest.update(b"%d\n" % record.size + record.raw)


def _read_line(stream: io.BufferedReader, limit: int) -> Record:
    """Return the next line; one over the limit is skipped, with its size and without its bytes."""
    raw = stream.readline(limit + 2)  # two more, for the line end
    size = len(raw)
    if size <= limit or raw.endswith(b"\n"):
        return Record(raw, size)
    while raw and not raw.endswith(b"\n"):
        raw = stream.readline(limit)
        size += len(raw)
    return Record(b"", size, too_long=True)


def _close_cell(stream: io.BufferedReader, record: Record, limit: int) -> Record:
    """Return a record with the lines up to the end of its open quoted cell."""
    if record.too_long or b'"' not in record.raw or not OPEN_CELL.fullmatch(record.raw):
        return record
    lines, size = [record.raw], record.size
    while size <= limit:
        line = _read_line(stream, limit)
        size += line.size
        if line.too_long:
            break
        lines.append(line.raw)
        # the added quote: this line begins inside of the cell; size 0 is the end of the file
        if not line.size or not OPEN_CELL.fullmatch(b'"' + line.raw):
            return Record(b"".join(lines), size)
    return Record(b"", size, too_long=True)
