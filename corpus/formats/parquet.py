"""Parquet, streamed by row groups; the columns of the input are copied (extra `corpus`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.columns import COLUMNS
from corpus.formats.lines import CHANGED
from corpus.inputs import InputFile
from corpus.job import CorpusJob
from corpus.line import LineStatus, OutputRow, SourceLine, Window, line_of
from corpus.plan import CutFile, Shard
from corpus.streams import DamagedInput, open_bytes
from engine.api import InvalidRequest

COMPRESSION: Final = "zstd"
KINDS: Final = {
    "text": pa.string(),
    "number": pa.float64(),
    "texts": pa.list_(pa.string()),
    "numbers": pa.list_(pa.float64()),
}
TAIL_BYTES: Final = 8  # length of the footer, and the last four bytes of every file
DAMAGED: Final = (pa.ArrowException, OSError, UnicodeDecodeError)


def cut_parquet(job: CorpusJob, file: InputFile) -> tuple[CutFile, list[Shard]]:
    """Cut a file into shards of rows; a damaged file ends before its first damaged row group.

    Raises DamagedInput, InvalidRequest, OSError.
    """
    with open_bytes(file.path) as stream:
        table, footer = _open(stream)
        _check_columns(job, table.schema_arrow)
        lines, problem = 0, ""
        for group in range(table.num_row_groups):
            try:
                # reading is the only way to detect damage; the texts are not used here
                for _ in table.iter_batches(job.window_lines, row_groups=[group], columns=[job.column]):
                    pass
            except DAMAGED as error:
                problem = f"row group {group} is damaged ({error}); it is read up to row {lines:,}"
                break
            lines += table.metadata.row_group(group).num_rows
    shards = [
        Shard(0, 0, "", first, min(job.shard_lines, lines - first), 0, footer)
        for first in range(0, max(lines, 1), job.shard_lines)
    ]
    cut = CutFile(**asdict(file), problem=problem)
    return replace(cut, lines=lines, shards=len(shards)), shards


class ParquetReader:
    """Reads the shards of a file by its row groups."""

    def __init__(self, job: CorpusJob, file: CutFile) -> None:
        self._job, self._file = job, file
        self._stream = open_bytes(file.path)
        try:
            self._table, self._footer = _open(self._stream)
            _check_columns(job, self._table.schema_arrow)
        except BaseException:
            self._stream.close()
            raise

    def windows(self, shard: Shard) -> Iterator[Window]:
        if self._footer != shard.sha256:
            raise InvalidRequest(f"{self._file.path}: {CHANGED}")
        first, end = shard.first, shard.first + shard.lines
        try:
            for batch in self._batches(first, end):
                for begin in range(0, batch.num_rows, self._job.window_lines):
                    part = batch.slice(begin, self._job.window_lines)
                    yield Window(self._file.name, first, self._lines(part), part)
                    first += part.num_rows
        except DAMAGED as error:
            raise InvalidRequest(f"{self._file.path}: {error}") from None

    def close(self) -> None:
        self._stream.close()

    def _batches(self, first: int, end: int) -> Iterator[Any]:
        """Yield the rows from `first` to `end` in batches, from the row groups that contain them."""
        begin = 0
        for group in range(self._table.num_row_groups):
            after = begin + self._table.metadata.row_group(group).num_rows
            if begin < end and first < after:
                yield from self._group_batches(group, first - begin, end - begin)
            begin = after

    def _group_batches(self, group: int, first: int, end: int) -> Iterator[Any]:
        # `first` and `end` are rows counted from the begin of the row group; `first` may be negative
        at = 0
        for batch in self._table.iter_batches(self._job.window_lines, row_groups=[group]):
            skip, stop = max(0, first - at), min(batch.num_rows, end - at)
            if skip < stop:
                yield batch.slice(skip, stop - skip)
            at += batch.num_rows
            if at >= end:
                return

    def _lines(self, batch: Any) -> list[SourceLine]:
        return [self._line(text) for text in batch.column(self._job.column).to_pylist()]

    def _line(self, text: str | None) -> SourceLine:
        if text is not None and len(text) > self._job.max_line_bytes:
            return SourceLine("", LineStatus.TOO_LONG, f"{len(text):,} characters")
        return line_of(text)


class ParquetWriter:
    """Writes the rows of a shard: columns of the input and new columns."""

    def __init__(self, job: CorpusJob, file: CutFile, place: Path) -> None:
        self._new = [pa.field(new, KINDS[COLUMNS[name].kind]) for name, new in job.columns.items()]
        with open_bytes(file.path) as stream:
            table, _ = _open(stream)
            # without metadata of pandas, which describes only the columns of the input
            self._schema = pa.schema([*table.schema_arrow, *self._new])
        self._out = place.open("wb")
        try:
            self._writer = pq.ParquetWriter(self._out, self._schema, compression=COMPRESSION)
        except BaseException:
            self._out.close()
            raise

    def write(self, window: Window, rows: Sequence[OutputRow | None]) -> None:
        kept = [number for number, row in enumerate(rows) if row is not None]
        values = [row.values for row in rows if row is not None]
        old = window.carried if len(kept) == len(rows) else window.carried.take(pa.array(kept, pa.int64()))
        new = [
            pa.array([value[number] for value in values], field.type)
            for number, field in enumerate(self._new)
        ]
        self._writer.write_batch(pa.record_batch([*old.columns, *new], schema=self._schema))

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._out.close()


def _open(stream: IO[bytes]) -> tuple[Any, str]:
    """Return an open file, and the hash of its footer. Raises DamagedInput, OSError."""
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(max(0, size - TAIL_BYTES))
    tail = stream.read()
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size:
        raise DamagedInput("is no Parquet file, or was cut off: it has no footer")
    stream.seek(max(0, size - TAIL_BYTES - length))
    footer = hashlib.sha256(stream.read()).hexdigest()
    stream.seek(0)
    try:
        return pq.ParquetFile(stream), footer
    except DAMAGED as error:
        raise DamagedInput(f"damaged: {error}") from None


def _check_columns(job: CorpusJob, schema: Any) -> None:
    """Raise InvalidRequest if the column of the text is missing or no text, or a new name is taken."""
    if job.column is None:
        raise InvalidRequest("has columns: name the text's with --column")
    if job.column not in schema.names:
        raise InvalidRequest(f"has no column {job.column!r}, but {', '.join(schema.names)}")
    kind = schema.field(job.column).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)):
        raise InvalidRequest(f"column {job.column!r} holds {kind}, no text")
    taken = [new for new in job.columns.values() if new in schema.names]
    if taken:
        raise InvalidRequest(
            f"has a column {taken[0]!r} already: give the new one another name, as in --columns "
            f"{taken[0]}=new_{taken[0]}"
        )
