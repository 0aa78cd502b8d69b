"""A job as a Ray Data pipeline that reads, answers and writes shards (extra `ray-data`).

A row is the number of a shard. An actor with an engine reads, answers and writes one shard after the other;
Ray repeats the work of a lost actor. The lease of a shard only shows its progress: if two actors write the
same shard, one of them can name its output (`JobFolder.commit`), and both have written the same bytes.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
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
        written = shards.map(
            ShardActor,
            compute=ray.data.ActorPoolStrategy(
                min_size=1, max_size=cluster.engines, initial_size=cluster.engines
            ),
            fn_constructor_kwargs={"root": root, "choice": choice, "lease_seconds": leases.seconds},
            num_cpus=cluster.cpus,
            num_gpus=cluster.gpus,
        )
        for _ in written.iter_rows():
            """Wait for all rows; the folder holds the results."""


class ShardActor:
    """An engine that translates one shard after the other."""

    def __init__(self, root: Path, choice: EngineChoice, lease_seconds: float) -> None:
        self._stack, self._folder = ExitStack(), JobFolder(root)
        self._plan = self._folder.plan()
        service = self._stack.enter_context(choice.opened())
        self._leases = self._stack.enter_context(Leases(self._folder.leases, lease_seconds))
        self._answering = Answering(service, self._plan.job)

    def __call__(self, row: RowOfRay) -> RowOfRay:
        """Read, answer and write the shard of a row.

        Raises InvalidRequest, OSError and the errors of the engine.
        """
        shard = self._plan.shards[int(row["shard"])]
        lease = self._leases.claim(shard.number)  # None: of an actor that was lost with its machine
        output = ShardOutput(self._plan, shard, self._folder.own_draft(shard.number))

        def note_progress(_: None, lines: int, words: int) -> None:
            if lease:
                lease.add(lines, words)

        with closing(open_reader(self._plan.job, self._plan.files[shard.file])) as reader:
            windows = ((None, window) for window in reader.windows(shard))
            try:
                output.open()
                with closing(self._answering.answer(windows, note_progress)) as answered:
                    for _, window, rows in answered:
                        assert window is not None
                        output.write(window, rows)
                output.close()
                self._folder.commit(shard, output.draft, output.tally, lambda: True)
                self._leases.sweep(shard.number)
            finally:
                output.discard()
                if lease:
                    self._leases.give_back(lease)
        return {"shard": shard.number}


def _set_up(context: Any) -> None:
    """Switch off the progress bars of Ray."""
    context.enable_progress_bars = False
    context.print_on_execution_start = False
