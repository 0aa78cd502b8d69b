"""The output folder: plan, shards done, manifest. All files in it are whole, whoever is killed when.

NAME                    a shard's output, as the inputs are named
manifest.json           written last: the job, its models and options, counts and hashes
_convoy/plan.json       the job, its files and its shards; written once
_convoy/done/SHARD      what is known of a shard that is done; written after its output
_convoy/aside/SHARD.N   outputs in the making
_convoy/leases/SHARD.N  who works on what (`corpus.leases`)

A shard is written aside, flushed to the disk, and linked to its name: of two writers only one can do that.
A process that ends between that and its note in done/ leaves an output that the next one finds to be equal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from corpus.inputs import InputFile
from corpus.job import CorpusJob, differences
from corpus.plan import Shard, ShardPlan
from engine.api import InvalidRequest

STATE: Final = "_convoy"
MANIFEST: Final = "manifest.json"
# errors of file systems that know no hard links
WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
MAX_EXAMPLES: Final = 20  # lines of a shard that its note names


@dataclass(slots=True)
class Tally:
    """What is noted of a shard that is done.

    rows: lines of the output.
    words: that were translated.
    statuses: how many lines have each.
    examples: the first lines that are not fine: number from 1, status, reason.
    size, sha256: of the output.
    """

    lines: int = 0
    rows: int = 0
    words: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[int, str, str]] = field(default_factory=list)
    size: int = 0
    sha256: str = ""


class JobFolder:
    """A job's output."""

    def __init__(self, root: Path) -> None:
        self.root, self._state = root, root / STATE
        self.leases = self._state / "leases"
        self._done = self._state / "done"

    def begin(
        self, job: CorpusJob, inputs: Sequence[InputFile], make_plan: Callable[[], ShardPlan]
    ) -> ShardPlan:
        """Return the plan that is there, or make it.

        job: what the command line asks for.
        inputs: the files of the job.
        make_plan: reads them.

        Raises InvalidRequest when the folder holds another job, or files that are not of one; OSError.
        """
        place = self._state / "plan.json"
        if not place.exists():
            if self.root.exists() and any(path.name != STATE for path in self.root.iterdir()):
                raise InvalidRequest(f"{self.root}: holds other files; name a new folder with --out")
            plan = make_plan()
            for folder in (self._done, self.leases, self._state / "aside"):
                folder.mkdir(parents=True, exist_ok=True)
            aside = self._state / f"plan.{uuid.uuid4().hex}"
            _write_whole(aside, _dump(plan.as_json()))
            with contextlib.suppress(FileExistsError):  # another process has begun the same job
                _publish(aside, place)
        plan = self.plan()
        self._check(plan, job, inputs)
        for number in self.done():
            output, size = self.root / plan.shards[number].name, self.tally(number).size
            if not output.exists() or output.stat().st_size != size:  # gone or damaged since: do it again
                self._note(number).unlink(missing_ok=True)
        return plan

    def plan(self) -> ShardPlan:
        """Read the plan. Raises InvalidRequest when there is none."""
        try:
            return ShardPlan.from_json(json.loads((self._state / "plan.json").read_bytes()))
        except FileNotFoundError:
            raise InvalidRequest(f"{self.root}: holds no job of convoy corpus") from None

    def done(self) -> set[int]:
        """List the shards that are done."""
        return {int(path.name) for path in self._done.iterdir() if path.name.isdecimal()}

    def is_done(self, shard: int) -> bool:
        return self._note(shard).exists()

    def tally(self, shard: int) -> Tally:
        """Read what was noted of a shard."""
        return Tally(**json.loads(self._note(shard).read_bytes()))

    def own_aside(self, shard: int) -> Path:
        """Name a file that nobody else writes, for a process without leases."""
        return self._state / "aside" / f"{shard:08d}-{uuid.uuid4().hex}"

    def sweep_own_asides(self) -> None:
        """Remove what processes without leases have left; none may be at work."""
        for path in (self._state / "aside").glob("*-*"):
            path.unlink(missing_ok=True)

    def aside(self, shard: int, generation: int) -> Path:
        """Name the file in which a lease's holder writes a shard, and remove those of earlier holders."""
        folder = self._state / "aside"
        for path in folder.glob(f"{shard:08d}.*"):
            if int(path.suffix[1:]) < generation:
                path.unlink(missing_ok=True)
        return folder / f"{shard:08d}.{generation}"

    def commit(self, shard: Shard, aside: Path, tally: Tally, held: Callable[[], bool]) -> bool:
        """Give a shard that was written aside its name, and note it as done.

        shard: the one that was written.
        aside: its output, closed.
        tally: what is noted.
        held: whether the lease still is.

        Returns whether this was done: not where the lease was lost. Raises OSError.
        """
        try:
            with aside.open("rb") as file:
                os.fsync(file.fileno())
                tally.sha256, tally.size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
        except FileNotFoundError:  # who took the lease over has removed it
            return False
        place = self.root / shard.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not held() or self.is_done(shard.number):
            return False
        try:
            _publish(aside, place)
        except FileExistsError:
            if _digest(place) != tally.sha256:  # damaged since
                aside.replace(place)
            aside.unlink(missing_ok=True)
        note = self._state / f"done.{shard.number:08d}.{uuid.uuid4().hex}"
        _write_whole(note, _dump(asdict(tally)))
        note.replace(self._note(shard.number))
        _sync_folder(self._done)
        return True

    def finish(self, plan: ShardPlan) -> dict[str, Any]:
        """Write and return the manifest; all who do write the same bytes."""
        tallies = [self.tally(shard.number) for shard in plan.shards]
        shards = [
            {"name": shard.name, "input": plan.files[shard.file].name, "first": shard.first, **asdict(tally)}
            for shard, tally in zip(plan.shards, tallies, strict=True)
        ]
        manifest = {
            "job": plan.job.as_json(),
            "summary": summary(plan, tallies),
            "inputs": [asdict(file) for file in plan.files],
            "shards": shards,
        }
        aside = self._state / f"manifest.{uuid.uuid4().hex}"
        _write_whole(aside, _dump(manifest))
        aside.replace(self.root / MANIFEST)
        _sync_folder(self.root)
        return manifest

    def _check(self, plan: ShardPlan, job: CorpusJob, inputs: Sequence[InputFile]) -> None:
        # by way of JSON, which knows no tuples
        found = differences(*(json.loads(_dump(each.as_json())) for each in (plan.job, job)))
        before = {file.path: file.size for file in plan.files}
        after = {file.path: file.size for file in inputs}
        found += [f"input {path} is new" for path in sorted(after.keys() - before.keys())]
        found += [f"input {path} is missing" for path in sorted(before.keys() - after.keys())]
        found += [
            f"input {path} had {size:,} bytes and has {after[path]:,}"
            for path, size in before.items()
            if after.get(path, size) != size
        ]
        if found:
            raise InvalidRequest(
                f"{self.root}: holds another job ({'; '.join(found)}): go on with that, or name a new folder"
            )

    def _note(self, shard: int) -> Path:
        return self._done / f"{shard:08d}"


def summary(plan: ShardPlan, tallies: Sequence[Tally]) -> dict[str, Any]:
    """Sum up a job."""
    statuses = Counter[str]()
    for tally in tallies:
        statuses.update(tally.statuses)
    return {
        "files": len(plan.files),
        "files_with_problems": sum(bool(file.problem) for file in plan.files),
        "shards": len(plan.shards),
        "lines": sum(tally.lines for tally in tallies),
        "rows": sum(tally.rows for tally in tallies),
        "words": sum(tally.words for tally in tallies),
        "statuses": dict(sorted(statuses.items())),
    }


def _publish(aside: Path, place: Path) -> None:
    """Give a file its name, unless that is taken. Raises FileExistsError, OSError."""
    try:
        os.link(aside, place)
    except OSError as error:
        if error.errno not in WITHOUT_LINKS:
            raise
        if place.exists():
            raise FileExistsError(place) from None
        aside.rename(place)
    else:
        aside.unlink()
    _sync_folder(place.parent)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a new file to the disk, or leave none."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dump(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, indent=1).encode() + b"\n"
