"""Files cut into shards of a stated number of lines. Each is read once for that, in flat memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Final

from corpus.formats.lines import has_header, line_format
from corpus.formats.records import Record, note, read_records
from corpus.inputs import InputFile
from corpus.job import CorpusJob
from corpus.plan import CutFile, Shard, ShardPlan, shard_name
from corpus.streams import DamagedInput, DecompressionBomb, open_stream
from engine.api import InvalidRequest

NO_RECORD: Final = Record(b"", 0)


def cut(
    job: CorpusJob, inputs: Sequence[InputFile], on_lines: Callable[[int], object] | None = None
) -> ShardPlan:
    """Cut files. What can't be read of one is noted as its problem, unless the job stops at errors.

    job: says how many lines a shard has, and which column of a file is its text.
    inputs: the files.
    on_lines: told how many more lines have been seen.

    Raises InvalidRequest, then and where no file can be read at all.
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
    """Nobody is told."""


def _cut_file(
    job: CorpusJob, file: InputFile, on_lines: Callable[[int], object]
) -> tuple[CutFile, list[Shard]]:
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
        except DecompressionBomb:
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
    """Counts lines into shards."""

    def __init__(self, shard_lines: int, offset: int, on_lines: Callable[[int], object]) -> None:
        self._shard_lines, self._on_lines = shard_lines, on_lines
        self._shards: list[Shard] = []
        self.lines, self._offset = 0, offset  # lines read, and the bytes before the next one
        self._begin()

    def add(self, record: Record) -> None:
        note(self._digest, record)
        self.lines += 1
        self._offset += record.size
        if self.lines - self._first == self._shard_lines:
            self._cut()

    def end(self) -> list[Shard]:
        """Return the shards: one of an empty file, so that its output is empty too."""
        if self.lines > self._first or not self._shards:
            self._cut()
        return self._shards

    def _begin(self) -> None:
        self._first, self._begin_offset, self._digest = self.lines, self._offset, hashlib.sha256()

    def _cut(self) -> None:
        lines = self.lines - self._first
        digest = self._digest.hexdigest()
        self._shards.append(Shard(0, 0, "", self._first, lines, self._begin_offset, digest))
        self._on_lines(lines)
        self._begin()
