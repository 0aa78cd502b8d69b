"""Files made of lines: the formats of a line, and readers and writers for all of them."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from corpus.formats.delimited import Delimited, is_number
from corpus.formats.jsonl import JsonLines
from corpus.formats.records import Record, add_to_digest, read_records
from corpus.formats.text import TextLines
from corpus.job import WINDOW_BYTES, CorpusJob
from corpus.line import BadLine, LineStatus, OutputRow, SourceLine, Window, line_of
from corpus.plan import CutFile, Shard
from corpus.streams import DamagedInput, open_stream
from engine.api import InvalidRequest

SKIP_BYTES: Final = 1 << 20
CHANGED: Final = "is not what it was when this job began; take another folder for --out"
ZSTD_LEVEL: Final = 9
GZIP_LEVEL: Final = 6


class LineFormat(Protocol):
    """The format of a line.

    quoted: a line may have quoted cells with line ends in them.
    header: first bytes of every output.
    """

    quoted: bool
    header: bytes

    def read(self, raw: bytes) -> str | None:
        """Return the text of a line; None: it has no text. Raises BadLine."""

    def write(self, raw: bytes, values: Sequence[Any], *, whole: bool) -> bytes:
        """Return the line of the output, without its end.

        raw: line of the input.
        values: one value for each added column.
        whole: the format could read `raw`.
        """


def has_header(kind: str, column: str | None) -> bool:
    return kind in ("tsv", "csv") and not (column and is_number(column))


def line_format(job: CorpusJob, kind: str, header: bytes) -> LineFormat:
    """Return the format of the lines of a file.

    job: the job, with its columns.
    kind: name of the format.
    header: first row of the file; empty: no header.

    Raises InvalidRequest.
    """
    names = list(job.columns.values())
    if kind == "text":
        return TextLines(names)
    if job.column is None:
        raise InvalidRequest("has columns: name the text's with --column")
    if kind == "jsonl":
        return JsonLines(names, job.column)
    return Delimited(names, job.column, header, quoted=kind == "csv")


class LineReader:
    """Reads the shards of a file of lines; fastest in order."""

    def __init__(self, job: CorpusJob, file: CutFile) -> None:
        self._job, self._file = job, file
        self._format = line_format(job, file.kind, file.header.encode())
        self._stream: io.BufferedReader | None = None
        self._at = 0  # offset in the decompressed bytes

    def windows(self, shard: Shard) -> Iterator[Window]:
        stream, digest = self._seek(shard.offset), hashlib.sha256()
        limit, quoted = self._job.max_line_bytes, self._format.quoted
        records = read_records(stream, limit, quoted=quoted, start=not shard.offset)
        left, first = shard.lines, shard.first
        while left:
            try:
                window = self._window(records, digest, first, min(left, self._job.window_lines))
            except DamagedInput as error:
                raise InvalidRequest(f"{self._file.path}: {error}") from None
            if not window.lines:
                break
            left, first = left - len(window.lines), first + len(window.lines)
            yield window
        # the file has changed since it was cut into shards
        if left or digest.hexdigest() != shard.sha256:
            self.close()
            raise InvalidRequest(f"{self._file.path}: {CHANGED}")

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _window(self, records: Iterator[Record], digest: hashlib._Hash, first: int, count: int) -> Window:
        """Return the next `count` lines, or fewer if they exceed WINDOW_BYTES."""
        lines, carried, size = list[SourceLine](), list[bytes](), 0
        while len(lines) < count and size < WINDOW_BYTES and (record := next(records, None)):
            lines.append(self._line(record))
            carried.append(record.raw)
            add_to_digest(digest, record)
            size += len(record.raw)
            self._at += record.size
        return Window(self._file.name, first, lines, carried)

    def _line(self, record: Record) -> SourceLine:
        """Return the text of a record, or the status that explains why it has none."""
        if record.too_long:
            return SourceLine("", LineStatus.TOO_LONG, f"{record.size:,} bytes", whole=False)
        try:
            return line_of(self._format.read(record.raw))
        except BadLine as error:
            return SourceLine("", error.status, error.reason, whole=False)

    def _seek(self, offset: int) -> io.BufferedReader:
        """Return the stream at an offset; a compressed file is read up to it."""
        if self._stream is None or self._at > offset:
            self.close()
            self._stream, self._at = open_stream(self._file.path, self._file.compression), 0
        if not self._file.compression:
            self._stream.seek(offset)
            self._at = offset
        while self._at < offset:
            block = self._stream.read(min(SKIP_BYTES, offset - self._at))
            if not block:
                raise InvalidRequest(f"{self._file.path}: {CHANGED}")
            self._at += len(block)
        return self._stream


class LineWriter:
    """Writes the lines of a shard, compressed like the input; equal rows are equal bytes."""

    def __init__(self, job: CorpusJob, file: CutFile, place: Path) -> None:
        self._format = line_format(job, file.kind, file.header.encode())
        self._stack = ExitStack()
        try:
            self._out = self._open(place, file.compression)
            self._out.write(self._format.header)
        except BaseException:
            self._stack.close()
            raise

    def write(self, window: Window, rows: Sequence[OutputRow | None]) -> None:
        for line, raw, row in zip(window.lines, window.carried, rows, strict=True):
            if row is not None:
                self._out.write(self._format.write(raw, row.values, whole=line.whole) + b"\n")

    def close(self) -> None:
        self._stack.close()

    def _open(self, place: Path, compression: str) -> IO[bytes]:
        """Return a stream that compresses into a file; the exit stack closes it."""
        file = self._stack.enter_context(place.open("wb"))
        if compression == "gz":
            return self._stack.enter_context(_as_stream(gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0)))
        if compression == "zst":
            import zstandard

            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            return self._stack.enter_context(_as_stream(compressor.stream_writer(file, closefd=False)))
        return file


def _as_stream(stream: Any) -> IO[bytes]:
    return cast(IO[bytes], stream)
