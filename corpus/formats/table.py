"""Opens the reader and the writer of a format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from corpus.formats.lines import LineReader, LineWriter
from corpus.job import CorpusJob
from corpus.line import OutputRow, Window
from corpus.plan import CutFile, Shard


class ShardReader(Protocol):
    """Reads a file shard by shard."""

    def windows(self, shard: Shard) -> Iterator[Window]:
        """Yield the lines of a shard. Raises DamagedInput, OSError, and InvalidRequest if the file
        changed."""

    def close(self) -> None: ...


class ShardWriter(Protocol):
    """Writes the output of a shard."""

    def write(self, window: Window, rows: Sequence[OutputRow | None]) -> None:
        """Write the lines of a window, except lines without a row. Raises OSError."""

    def close(self) -> None:
        """Write buffered bytes and close the file. Raises OSError."""


def open_reader(job: CorpusJob, file: CutFile) -> ShardReader:
    """Return the reader of a file."""
    if file.kind == "parquet":
        from corpus.formats.parquet import ParquetReader

        return ParquetReader(job, file)
    return LineReader(job, file)


def open_writer(job: CorpusJob, file: CutFile, place: Path) -> ShardWriter:
    """Return the writer of a shard.

    job: the job, with its columns.
    file: input of the shard.
    place: path of the output.

    Raises OSError.
    """
    if file.kind == "parquet":
        from corpus.formats.parquet import ParquetWriter

        return ParquetWriter(job, file, place)
    return LineWriter(job, file, place)
