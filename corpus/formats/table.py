"""What reads and writes each format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from corpus.formats.lines import LineReader, LineWriter
from corpus.job import CorpusJob
from corpus.line import OutputRow, Window
from corpus.plan import CutFile, Shard


class ShardReader(Protocol):
    """A file that is read shard by shard."""

    def windows(self, shard: Shard) -> Iterator[Window]:
        """Yield the lines of a shard. Raises DamagedInput, OSError, and InvalidRequest when the file is not
        what it was."""

    def close(self) -> None: ...


class ShardWriter(Protocol):
    """A shard's output."""

    def write(self, window: Window, rows: Sequence[OutputRow | None]) -> None:
        """Write the lines of a window; those without a row are left out. Raises OSError."""

    def close(self) -> None:
        """Write all that is left. Raises OSError."""


def open_reader(job: CorpusJob, file: CutFile) -> ShardReader:
    """Open what reads a file's shards."""
    if file.kind == "parquet":
        from corpus.formats.parquet import ParquetReader

        return ParquetReader(job, file)
    return LineReader(job, file)


def open_writer(job: CorpusJob, file: CutFile, place: Path) -> ShardWriter:
    """Open what writes a shard.

    job: names the columns.
    file: the shard's input.
    place: where its output is made.

    Raises OSError.
    """
    if file.kind == "parquet":
        from corpus.formats.parquet import ParquetWriter

        return ParquetWriter(job, file, place)
    return LineWriter(job, file, place)
