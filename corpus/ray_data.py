"""A job as a Ray Data pipeline that reads, answers and writes shards (extra `ray-data`).

A row is a shard. Reading and writing are tasks on CPUs; the engines are a pool of actors. Ray repeats the
work of a lost worker. Shards have no leases: if two tasks write the same shard, only one can name its output
(`JobFolder.commit`), and both have written the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray.data

from corpus.answering import Answering
from corpus.engines import EngineChoice
from corpus.folder import JobFolder
from corpus.formats.table import open_reader
from corpus.leases import Leases
from corpus.output import ShardOutput
from corpus.plan import ShardPlan
from engine.api import InvalidRequest

LOCAL: Final = "local"
RowOfRay = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Ray cluster that runs a job.

    address: address of the cluster; "auto": the cluster of this machine; "local": a new one on this machine.
    engines: maximum number of actors.
    cpus, gpus: cores and GPUs of each actor; fractions are allowed.
    """

    address: str
    engines: int
    cpus: float = 1.0
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Parcel:
    """A value that Ray passes on unchanged, instead of converting it to columns.

    content: windows of lines; after answering, pairs of a window and its rows.
    """

    content: list[Any]


def work_on_ray(
    folder: JobFolder, plan: ShardPlan, choice: EngineChoice, cluster: Cluster, leases: Leases
) -> None:
    """Translate the unfinished shards of a folder. Blocks.

    folder: folder of the job; the paths of folder, inputs and models are the same on all machines.
    plan: the job and its shards.
    choice: models of the engines.
    cluster: the Ray cluster.
    leases: leases of this process, which takes one so that no other Ray job runs on the folder.

    Raises InvalidRequest if another driver works on the folder, and the errors of Ray.
    """
    root = folder.root
    with ExitStack() as stack:
        # shards have smaller numbers: this lease is a lock on the whole folder
        if leases.claim(len(plan.shards)) is None:
            raise InvalidRequest(f"{root}: another Ray job works on this folder; wait for it, or end it")
        folder.sweep_own_drafts()
        ray.init(None if cluster.address == LOCAL else cluster.address, include_dashboard=False)
        stack.callback(ray.shutdown)
        _set_up(ray.data.DataContext.get_current())
        open_shards = [shard.number for shard in plan.shards if not folder.is_done(shard.number)]
        shards = ray.data.from_items(
            [{"shard": number} for number in open_shards], override_num_blocks=len(open_shards)
        )
        read = shards.map(read_shard, fn_kwargs={"root": root})
        answered = read.map_batches(
            EngineActor,
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(
                min_size=1, max_size=cluster.engines, initial_size=cluster.engines
            ),
            fn_constructor_kwargs={"root": root, "choice": choice},
            num_cpus=cluster.cpus,
            num_gpus=cluster.gpus,
        )
        for _ in answered.map(write_shard, fn_kwargs={"root": root}).iter_rows():
            """Wait for all rows; the folder holds the results."""


def read_shard(row: RowOfRay, root: Path) -> RowOfRay:
    """Read the lines of a shard; runs on a CPU."""
    plan = JobFolder(root).plan()
    shard = plan.shards[int(row["shard"])]
    reader = open_reader(plan.job, plan.files[shard.file])
    try:
        windows = list(reader.windows(shard))
    finally:
        reader.close()
    return {"shard": shard.number, "windows": Parcel(windows)}


class EngineActor:
    """An engine that answers one shard after the other."""

    def __init__(self, root: Path, choice: EngineChoice) -> None:
        self._stack = ExitStack()
        service = self._stack.enter_context(choice.opened())
        self._answering = Answering(service, JobFolder(root).plan().job)

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        answered = [self._answer(parcel) for parcel in batch["windows"]]
        return {"shard": batch["shard"], "answered": answered}

    def _answer(self, parcel: Parcel) -> Parcel:
        windows = ((None, window) for window in parcel.content)
        return Parcel([(window, rows) for _, window, rows in self._answering.answer(windows)])


def write_shard(row: RowOfRay, root: Path) -> RowOfRay:
    """Write the answers of a shard; runs on a CPU."""
    folder = JobFolder(root)
    plan = folder.plan()
    shard = plan.shards[int(row["shard"])]
    output = ShardOutput(plan, shard, folder.own_draft(shard.number))
    try:
        output.open()
        for window, rows in row["answered"].content:
            output.write(window, rows)
        output.close()
        folder.commit(shard, output.draft, output.tally, lambda: True)
    finally:
        output.discard()
    return {"shard": shard.number}


def _set_up(context: Any) -> None:
    """Switch off the progress bars of Ray."""
    context.enable_progress_bars = False
    context.print_on_execution_start = False
