"""The plan of a job: files cut into shards, as stored in the output folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from corpus.inputs import InputFile, endings
from corpus.job import CorpusJob


@dataclass(frozen=True, slots=True)
class CutFile:
    """An input file after it was cut into shards.

    path, name, kind, compression, size: fields of `InputFile`.
    lines: number of lines that can be read.
    shards: number of shards.
    header: first row, if it names the columns.
    problem: reason why the file, or the part after `lines`, can't be read; empty: no problem.
    """

    path: str
    name: str
    kind: str
    compression: str
    size: int
    lines: int = 0
    shards: int = 0
    header: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive lines of a file with an output file of their own.

    number: index of the shard in the job, from 0.
    file: index of the input file in the plan.
    name: path of the output file, relative to the output folder.
    first: index of the shard's first line in the file, from 0.
    lines: number of lines of the shard.
    offset: decompressed bytes of the file before the shard; Parquet: 0.
    sha256: hash of the lines; Parquet: hash of the footer of the file.
    """

    number: int
    file: int
    name: str
    first: int
    lines: int
    offset: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A job, its files and their shards in order."""

    job: CorpusJob
    files: tuple[CutFile, ...]
    shards: tuple[Shard, ...]

    @property
    def lines(self) -> int:
        return sum(shard.lines for shard in self.shards)

    def as_json(self) -> dict[str, Any]:
        shards = [list(asdict(shard).values()) for shard in self.shards]
        return {"job": self.job.as_json(), "files": [asdict(file) for file in self.files], "shards": shards}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        files = tuple(CutFile(**file) for file in values["files"])
        return cls(
            CorpusJob.from_json(values["job"]), files, tuple(Shard(*shard) for shard in values["shards"])
        )


def shard_name(file: InputFile, number: int, count: int) -> str:
    """Return the name of the output of a shard; an only shard has the name of its file.

    file: the input.
    number: number of the shard in the file, from 0.
    count: number of shards of the file.
    """
    if count == 1:
        return file.name
    ending = "".join(endings(file.name))
    return f"{file.name.removesuffix(ending)}.{number:05d}-of-{count:05d}{ending}"
