"""The output folder: plan, finished shards, manifest. A process may be killed at any time.

NAME                    output of a shard, named after its input
manifest.json           written last: the job, its models and options, counts and hashes
_convoy/plan.json       the job, its files and its shards; written once
_convoy/done/SHARD      counts of a finished shard; written after its output
_convoy/aside/SHARD.N   unfinished outputs
_convoy/leases/SHARD.N  leases (`corpus.leases`)

The output of a shard is written to aside/, flushed to the disk, and linked to its name, which fails if the
name exists. If a process is killed after that and before it writes to done/, the next process finds an equal
output.
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
# errors of file systems without hard links
WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
MAX_EXAMPLES: Final = 20  # bad lines of a shard that its tally lists


@dataclass(slots=True)
class Tally:
    """Counts of a finished shard.

    lines: number of lines of the input.
    rows: number of lines of the output.
    words: number of translated words.
    statuses: number of lines by status.
    models: number of lines by the models that answered them.
    examples: number (from 1), status and reason of the first bad lines.
    size, sha256: bytes and hash of the output.
    """

    lines: int = 0
    rows: int = 0
    words: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[int, str, str]] = field(default_factory=list)
    size: int = 0
    sha256: str = ""


class JobFolder:
    """The output folder of a job."""

    def __init__(self, root: Path) -> None:
        self.root, self._state = root, root / STATE
        self.leases = self._state / "leases"
        self._done = self._state / "done"

    def begin(
        self, job: CorpusJob, inputs: Sequence[InputFile], make_plan: Callable[[], ShardPlan]
    ) -> ShardPlan:
        """Return the stored plan, or make and store it.

        job: the job of the command line.
        inputs: files of the job.
        make_plan: returns the plan of the files.

        Raises OSError, and InvalidRequest if the folder holds another job, or other files.
        """
        place = self._state / "plan.json"
        if not place.exists():
            if self.root.exists() and any(path.name != STATE for path in self.root.iterdir()):
                raise InvalidRequest(f"{self.root}: holds other files; name a new folder with --out")
            plan = make_plan()
            for folder in (self._done, self.leases, self._state / "aside"):
                folder.mkdir(parents=True, exist_ok=True)
            draft = self._state / f"plan.{uuid.uuid4().hex}"
            _write_whole(draft, _dump(plan.as_json()))
            with contextlib.suppress(FileExistsError):  # another process has begun the same job
                _publish(draft, place)
        plan = self.plan()
        self._check(plan, job, inputs)
        for number in self.done():
            output, size = self.root / plan.shards[number].name, self.tally(number).size
            # removed or damaged since: translate it again
            if not output.exists() or output.stat().st_size != size:
                self._tally_path(number).unlink(missing_ok=True)
        return plan

    def plan(self) -> ShardPlan:
        """Return the stored plan. Raises InvalidRequest if there is none."""
        try:
            return ShardPlan.from_json(json.loads((self._state / "plan.json").read_bytes()))
        except FileNotFoundError:
            raise InvalidRequest(f"{self.root}: holds no job of convoy corpus") from None

    def done(self) -> set[int]:
        """Return the numbers of the finished shards."""
        return {int(path.name) for path in self._done.iterdir() if path.name.isdecimal()}

    def is_done(self, shard: int) -> bool:
        return self._tally_path(shard).exists()

    def tally(self, shard: int) -> Tally:
        """Return the stored counts of a shard."""
        return Tally(**json.loads(self._tally_path(shard).read_bytes()))

    def own_draft(self, shard: int) -> Path:
        """Return a new path for the unfinished output of a shard, for a process without leases."""
        return self._state / "aside" / f"{shard:08d}-{uuid.uuid4().hex}"

    def sweep_own_drafts(self) -> None:
        """Remove unfinished outputs of processes without leases; no such process may be running."""
        for path in (self._state / "aside").glob("*-*"):
            path.unlink(missing_ok=True)

    def draft_path(self, shard: int, generation: int) -> Path:
        """Return the path for the unfinished output of a shard, and remove the files of earlier holders."""
        folder = self._state / "aside"
        for path in folder.glob(f"{shard:08d}.*"):
            if int(path.suffix[1:]) < generation:
                path.unlink(missing_ok=True)
        return folder / f"{shard:08d}.{generation}"

    def commit(self, shard: Shard, draft: Path, tally: Tally, is_held: Callable[[], bool]) -> bool:
        """Give the output of a shard its final name, and store its counts.

        shard: the finished shard.
        draft: path of its closed output.
        tally: counts of the shard; size and hash are added.
        is_held: returns whether this process still holds the lease.

        Returns False if the lease was lost. Raises OSError.
        """
        try:
            with draft.open("rb") as file:
                os.fsync(file.fileno())
                tally.sha256, tally.size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
        except FileNotFoundError:  # removed by the process that took the lease over
            return False
        place = self.root / shard.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not is_held() or self.is_done(shard.number):
            return False
        try:
            _publish(draft, place)
        except FileExistsError:
            if _digest(place) != tally.sha256:  # the older file is damaged
                draft.replace(place)
            draft.unlink(missing_ok=True)
        note = self._state / f"done.{shard.number:08d}.{uuid.uuid4().hex}"
        _write_whole(note, _dump(asdict(tally)))
        note.replace(self._tally_path(shard.number))
        _sync_folder(self._done)
        return True

    def finish(self, plan: ShardPlan) -> dict[str, Any]:
        """Write and return the manifest; every process writes the same bytes."""
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
        draft = self._state / f"manifest.{uuid.uuid4().hex}"
        _write_whole(draft, _dump(manifest))
        draft.replace(self.root / MANIFEST)
        _sync_folder(self.root)
        return manifest

    def _check(self, plan: ShardPlan, job: CorpusJob, inputs: Sequence[InputFile]) -> None:
        """Raise InvalidRequest if the folder's job or input files differ from the given ones."""
        # compared as JSON, which has no tuples
        found = differences(*(json.loads(_dump(version.as_json())) for version in (plan.job, job)))
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
                f"{self.root}: holds another job ({'; '.join(found)}); repeat its command to continue it, "
                "or name a new folder"
            )

    def _tally_path(self, shard: int) -> Path:
        """Return the path of a shard's counts; the file exists when the shard is done."""
        return self._done / f"{shard:08d}"


def summary(plan: ShardPlan, tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the summed counts of a job."""
    statuses, models = Counter[str](), Counter[str]()
    for tally in tallies:
        statuses.update(tally.statuses)
        models.update(tally.models)
    return {
        "files": len(plan.files),
        "files_with_problems": sum(bool(file.problem) for file in plan.files),
        "shards": len(plan.shards),
        "lines": sum(tally.lines for tally in tallies),
        "rows": sum(tally.rows for tally in tallies),
        "words": sum(tally.words for tally in tallies),
        "statuses": dict(sorted(statuses.items())),
        "models": dict(sorted(models.items())),
    }


def _publish(draft: Path, place: Path) -> None:
    """Rename a file unless the new name exists. Raises FileExistsError, OSError."""
    try:
        os.link(draft, place)
    except OSError as error:
        if error.errno not in WITHOUT_LINKS:
            raise
        if place.exists():
            raise FileExistsError(place) from None
        draft.rename(place)
    else:
        draft.unlink()
    _sync_folder(place.parent)


def _write_whole(path: Path, data: bytes) -> None:
    """Create a file and flush it to the disk; after an error there is no file."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync_folder(path: Path) -> None:
    """Write the entries of a folder to the disk, as a rename needs to survive a crash."""
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
