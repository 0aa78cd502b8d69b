"""One engine at work: it claims shards, translates and commits them, until none is left."""

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

SECONDS_BETWEEN_LOOKS: Final = 0.5  # at shards that others work on


@dataclass(eq=False, slots=True)
class Task:
    """A shard under way."""

    shard: Shard
    lease: Lease
    output: ShardOutput


class CorpusWorker:
    """Works on a job with an engine."""

    def __init__(self, folder: JobFolder, plan: ShardPlan, leases: Leases) -> None:
        self._folder, self._plan, self._leases = folder, plan, leases
        self._readers: dict[int, ShardReader] = {}
        self._tasks: dict[int, Task] = {}  # by shard, those that are not done yet

    def work(self, service: Service, stopped: Callable[[], bool] = lambda: False) -> None:
        """Do shards until all are done, by whomever.

        stopped: asked now and then whether to give up.

        Raises InvalidRequest at the first line that is not fine, where the job stops at errors, and when an
        input is not what it was; OSError, such as a full disk. What is under way then is left to the next.
        """
        answering = Answering(service, self._plan.job)
        with ExitStack() as stack:
            stack.callback(self._give_up)
            while True:
                with closing(answering.answer(self._windows(stopped), _note_progress)) as answered:
                    for task, window, rows in answered:
                        if window is None:
                            self._commit(task)
                        else:
                            task.output.write(window, rows)
                if stopped() or len(self._folder.done()) == len(self._plan.shards):
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)

    def _windows(self, stopped: Callable[[], bool]) -> Iterator[tuple[Task, Window | None]]:
        """Of the shards that nobody else works on."""
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
        if self._folder.is_done(shard.number):
            return None
        lease = self._leases.claim(shard.number)
        if lease is None:
            return None
        if self._folder.is_done(shard.number):  # by one who has removed the lease since
            self._leases.sweep(lease)
            return None
        aside = self._folder.aside(shard.number, lease.generation)
        # known before there is a file, so that an interrupt leaves none
        task = self._tasks[shard.number] = Task(shard, lease, ShardOutput(self._plan, shard, aside))
        task.output.open()
        return task

    def _reader(self, file: int) -> ShardReader:
        """The reader of a file, and none of any other."""
        if file not in self._readers:
            self._close_readers()
            self._readers[file] = open_reader(self._plan.job, self._plan.files[file])
        return self._readers[file]

    def _commit(self, task: Task) -> None:
        task.output.close()
        if self._folder.commit(task.shard, task.output.aside, task.output.tally, task.lease.held):
            self._leases.sweep(task.lease)
        else:
            self._leases.give_back(task.lease)
        del self._tasks[task.shard.number]

    def _give_up(self) -> None:
        """Leave what is under way to others."""
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
    """For others to see, with the lease's next beat."""
    task.lease.lines += lines
    task.lease.words += words
