"""Claims, translates and commits shards with one engine, until none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from corpus.answering import Answering
from corpus.folder import JobFolder
from corpus.formats.table import ShardReader, open_reader
from corpus.leases import Lease, Leases
from corpus.line import Window
from corpus.output import ShardOutput
from corpus.plan import Shard, ShardPlan
from engine.api import Service

SECONDS_BETWEEN_LOOKS: Final = 0.5  # between two checks of the shards that other processes work on


@dataclass(eq=False, slots=True)
class Task:
    """A claimed shard that is not finished."""

    shard: Shard
    lease: Lease
    output: ShardOutput


class CorpusWorker:
    """Works on a job with an engine."""

    def __init__(self, folder: JobFolder, plan: ShardPlan, leases: Leases) -> None:
        self._folder, self._plan, self._leases = folder, plan, leases
        self._readers: dict[int, ShardReader] = {}
        self._tasks: dict[int, Task] = {}  # by number of the shard

    def work(self, service: Service, stopped: Callable[[], bool] = lambda: False) -> None:
        """Translate shards until all shards of the job are done, by this or another process.

        service: the started service.
        stopped: called regularly; returns whether to stop.

        Raises OSError, such as a full disk, and InvalidRequest if an input has changed, or at the first bad
        line if the job stops at errors. Unfinished shards are then free for other processes.
        """
        answering = Answering(service, self._plan.job)
        with ExitStack() as stack:
            stack.callback(self._give_up)
            while True:
                windows = self._windows(stopped)
                with closing(answering.answer(windows, _note_progress)) as answered:
                    for task, window, rows in answered:
                        if window is None:
                            self._commit(task)
                        else:
                            task.output.write(window, rows)
                if stopped() or len(self._folder.done()) == len(self._plan.shards):
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _windows(self, stopped: Callable[[], bool]) -> Iterator[tuple[Task, Window | None]]:
        """Yield the windows of each shard that this process can claim; None is the end of a shard."""
        for shard in self._plan.shards:
            if stopped():
                return
            task = self._claim(shard)
            if task is None:
                continue
            for window in self._reader(shard.file).windows(shard):
                if stopped():
                    return
                yield task, window
            yield task, None

    def _claim(self, shard: Shard) -> Task | None:
        """Claim an unfinished shard and create its output, or return None."""
        if self._folder.is_done(shard.number):
            return None
        lease = self._leases.claim(shard.number)
        if lease is None:
            return None
        if self._folder.is_done(shard.number):  # another process finished it and has removed its lease
            self._leases.sweep(lease.shard)
            return None
        draft = self._folder.draft_path(shard.number, lease.generation)
        # stored before the file exists, so that an interrupt leaves no file
        task = self._tasks[shard.number] = Task(shard, lease, ShardOutput(self._plan, shard, draft))
        task.output.open()
        return task

    def _reader(self, file: int) -> ShardReader:
        """Return the reader of a file, and close the readers of all other files."""
        if file not in self._readers:
            self._close_readers()
            self._readers[file] = open_reader(self._plan.job, self._plan.files[file])
        return self._readers[file]

    def _commit(self, task: Task) -> None:
        """Publish the output of a finished shard, and remove its lease."""
        task.output.close()
        if self._folder.commit(task.shard, task.output.draft, task.output.tally, task.lease.is_held):
            self._leases.sweep(task.shard.number)
        else:  # another process has taken the shard over
            self._leases.give_back(task.lease)
        del self._tasks[task.shard.number]

    def _give_up(self) -> None:
        """Discard unfinished shards, and release their leases."""
        self._close_readers()
        for task in self._tasks.values():
            task.output.discard()
            self._leases.give_back(task.lease)
        self._tasks.clear()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def _note_progress(task: Task, lines: int, words: int) -> None:
    task.lease.add(lines, words)
