"""Cuts files into shards of a fixed number of lines. Each file is read once, in constant memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final

from corpus.formats.lines import has_header, line_format
from corpus.formats.records import Record, add_to_digest, read_records
from corpus.inputs import InputFile
from corpus.job import CorpusJob
from corpus.plan import CutFile, Shard, ShardPlan, shard_name
from corpus.streams import DamagedInput, DecompressionBomb, open_stream
from engine.api import InvalidRequest

NO_RECORD: Final = Record(b"", 0)


def cut(
    job: CorpusJob, inputs: Sequence[InputFile], on_lines: Callable[[int], object] | None = None
) -> ShardPlan:
    """Cut files into shards. A file that can't be read to its end has a `problem` in the plan.

    job: the job, with the lines of a shard and the column of the text.
    inputs: the files.
    on_lines: called with the number of lines of each new shard.

    Raises InvalidRequest if no file can be read, and on the first problem if the job stops at errors.
    """
    files, shards = list[CutFile](), list[Shard]()
    for number, each in enumerate(inputs):
        try:
            file, found = _cut_file(job, each, on_lines or _ignore)
        except (DamagedInput, OSError, InvalidRequest) as error:
            file, found = CutFile(**asdict(each), problem=getattr(error, "strerror", None) or str(error)), []
        if file.problem and job.errors == "stop":
            raise InvalidRequest(f"{file.path}: {file.problem}")
        for place, shard in enumerate(found):
            name = shard_name(each, place, len(found))
            shards.append(replace(shard, number=len(shards), file=number, name=name))
        files.append(file)
    if not shards:
        raise InvalidRequest(f"{files[0].path}: {files[0].problem}")
    return ShardPlan(job, tuple(files), tuple(shards))


def _ignore(lines: int) -> None:
    """Do nothing."""


def _cut_file(
    job: CorpusJob, file: InputFile, on_lines: Callable[[int], object]
) -> tuple[CutFile, list[Shard]]:
    """Return a file with its problem if there is one, and its shards."""
    if file.kind == "parquet":
        from corpus.formats.parquet import cut_parquet

        return cut_parquet(job, file)
    with open_stream(file.path, file.compression) as stream:
        records = read_records(stream, job.max_line_bytes, quoted=file.kind == "csv", start=True)
        header = next(records, NO_RECORD) if has_header(file.kind, job.column) else NO_RECORD
        if has_header(file.kind, job.column) and not header.raw:
            raise InvalidRequest("has no header: name the column by its number")
        line_format(job, file.kind, header.raw)
        cutter, problem = _Cutter(job.shard_lines, header.size, on_lines), ""
        try:
            for record in records:
                cutter.add(record)
        except DecompressionBomb:  # none of its lines are used, unlike those of a damaged file
            raise
        except DamagedInput as error:
            problem = f"{error}; it is read up to line {cutter.lines:,}"
    shards = cutter.end()
    return replace(
        CutFile(**asdict(file), header=header.raw.decode(), problem=problem),
        lines=cutter.lines,
        shards=len(shards),
    ), shards


class _Cutter:
    """Groups the lines of one file into shards.

    shard_lines: number of lines of a shard.
    offset: bytes before the first line, such as a header.
    on_lines: called with the number of lines of each new shard.
    """

    def __init__(self, shard_lines: int, offset: int, on_lines: Callable[[int], object]) -> None:
        self._shard_lines, self._on_lines = shard_lines, on_lines
        self._shards: list[Shard] = []
        self.lines, self._offset = 0, offset  # lines read so far, and the byte offset of the next line
        self._start_shard()

    def add(self, record: Record) -> None:
        """Add a record to the open shard; a full shard ends."""
        add_to_digest(self._digest, record)
        self.lines += 1
        self._offset += record.size
        if self.lines - self._first == self._shard_lines:
            self._end_shard()

    def end(self) -> list[Shard]:
        """Return the shards. An empty file has one, so that its output is an empty file."""
        if self.lines > self._first or not self._shards:
            self._end_shard()
        return self._shards

    def _start_shard(self) -> None:
        self._first, self._begin_offset, self._digest = self.lines, self._offset, hashlib.sha256()

    def _end_shard(self) -> None:
        lines = self.lines - self._first
        digest = self._digest.hexdigest()
        # the caller replaces number, file and name (0, 0, "")
        self._shards.append(Shard(0, 0, "", self._first, lines, self._begin_offset, digest))
        self._on_lines(lines)
        self._start_shard()
