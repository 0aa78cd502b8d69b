"""The nouns of a plan: files cut into shards, as they are kept in the output folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from corpus.inputs import InputFile, endings
from corpus.job import CorpusJob


@dataclass(frozen=True, slots=True)
class CutFile:
    """An input that has been read once.

    path, name, kind, compression, size: as `InputFile` has them.
    lines: that can be read.
    shards: how many there are.
    header: the first row, where it names the columns.
    problem: why the file, or what comes after these lines, can't be read; empty where it can.
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
    """Lines of a file that are done together.

    number: among all shards of the job, from 0.
    file: the number of its file.
    name: of its output.
    first: the number of its first line in the file, from 0.
    lines: how many there are.
    offset: bytes of the file before them, after decompression; of Parquet 0.
    sha256: of the lines; of Parquet, of the file's footer.
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
    """Name the output of a file's shard: as the file where it is the only one.

    file: the input.
    number: the shard's, from 0.
    count: how many shards the file has.
    """
    if count == 1:
        return file.name
    ending = "".join(endings(file.name))
    return f"{file.name.removesuffix(ending)}.{number:05d}-of-{count:05d}{ending}"
