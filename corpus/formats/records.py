"""Bytes cut into lines, or into the records of CSV, in memory that a bound on the longest keeps flat."""

from __future__ import annotations

import codecs
import hashlib
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# a row whose last cell is quoted and not closed yet (RFC 4180, section 2); possessive, so linear
OPEN_CELL: Final = re.compile(rb'(?:(?:"(?:[^"]++|"")*+"[^,]*+|[^",][^,]*+|),)*+"(?:[^"]++|"")*+')


class Record(NamedTuple):
    """A line, or several that a quoted cell joins, without the last one's end.

    raw: empty when it is too long.
    size: bytes in the file, with its end.
    too_long: whether it has more bytes than a record may have.
    """

    raw: bytes
    size: int
    too_long: bool = False


def read_records(stream: io.BufferedReader, limit: int, *, quoted: bool, start: bool) -> Iterator[Record]:
    """Yield the records of a stream, from where it stands. Only a line feed ends a line.

    stream: decompressed bytes.
    limit: bytes of the longest record.
    quoted: whether cells in quotes may hold line ends. One that is never closed ends with the line in which
        the limit is passed.
    start: whether the stream stands at the file's beginning, where a byte order mark is no text.
    """
    while (record := _read_line(stream, limit)).size:
        if start:
            record, start = record._replace(raw=record.raw.removeprefix(codecs.BOM_UTF8)), False
        if quoted:
            record = _close_cell(stream, record, limit)
        yield record._replace(raw=record.raw.removesuffix(b"\n").removesuffix(b"\r"))


def note(digest: hashlib._Hash, record: Record) -> None:
    """Add a record to the hash of those of a shard."""
    digest.update(b"%d\n" % record.size + record.raw)


def _read_line(stream: io.BufferedReader, limit: int) -> Record:
    raw = stream.readline(limit + 2)
    size = len(raw)
    if size <= limit or raw.endswith(b"\n"):
        return Record(raw, size)
    while raw and not raw.endswith(b"\n"):
        raw = stream.readline(limit)
        size += len(raw)
    return Record(b"", size, too_long=True)


def _close_cell(stream: io.BufferedReader, record: Record, limit: int) -> Record:
    """Add the lines that belong to an open quoted cell."""
    if record.too_long or b'"' not in record.raw or not OPEN_CELL.fullmatch(record.raw):
        return record
    lines, size = [record.raw], record.size
    while size <= limit:
        line = _read_line(stream, limit)
        size += line.size
        if line.too_long:
            break
        lines.append(line.raw)
        if not line.size or not OPEN_CELL.fullmatch(b'"' + line.raw):
            return Record(b"".join(lines), size)
    return Record(b"", size, too_long=True)
