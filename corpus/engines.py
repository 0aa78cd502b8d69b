"""Engines for a job: what a process needs to open one, and processes with further ones beside this."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Final

from corpus.folder import JobFolder
from corpus.leases import Leases
from corpus.worker import CorpusWorker
from engine.api import Service, ServiceSettings

logger = logging.getLogger(__name__)

RESTARTS: Final = 3  # of each helper that was killed
GRACE: Final = 10.0  # seconds that a helper has to leave


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The models of an engine, and how they run.

    models: bundle folders, one or two in the order of their work.
    """

    models: Sequence[Path]
    settings: ServiceSettings

    @contextmanager
    def opened(self) -> Iterator[Service]:
        """Start a service, and stop it at the end. Raises BundleError, ConfigError."""
        service = Service.open(self.models, self.settings)
        service.start()
        try:
            yield service
        finally:
            service.stop(drain=False, timeout=GRACE)

    def described(self) -> Service:
        """Return a service that describes the models without their weights; it is not started."""
        return Service.open(self.models, self.settings, lazily=True)


@dataclass(slots=True)
class Helpers:
    """Processes that work on the job of a folder, each with an engine of its own; killed ones come back.

    root: the job's folder.
    choice: the models of each.
    lease_seconds: how long a lease lasts without a beat.
    count: how many there are.
    """

    root: Path
    choice: EngineChoice
    lease_seconds: float
    count: int
    _processes: list[BaseProcess] = field(default_factory=list)
    _restarts: int = 0

    def __enter__(self) -> Helpers:
        self._processes = [self._start() for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(GRACE)
            if process.is_alive():
                process.kill()
                process.join()

    def look_after(self) -> None:
        """Start those anew that were killed, a few times: perhaps the memory does not suffice."""
        for number, process in enumerate(self._processes):
            if (
                process.exitcode is not None
                and process.exitcode < 0
                and self._restarts < RESTARTS * self.count
            ):
                logger.warning("a process was killed by signal %d; another starts", -process.exitcode)
                self._restarts += 1
                self._processes[number] = self._start()

    def _start(self) -> BaseProcess:
        context = multiprocessing.get_context("spawn")
        arguments = (self.root, self.choice, self.lease_seconds, os.getpid())
        process = context.Process(target=help_with, args=arguments, daemon=True)
        process.start()
        return process


def help_with(root: Path, choice: EngineChoice, lease_seconds: float, parent: int) -> None:
    """Work on the job of a folder, until it is done or the parent is gone.

    root: the folder.
    choice: the engine's models.
    lease_seconds: how long a lease lasts without a beat.
    parent: the process that started this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all; the parent decides
    with ExitStack() as stack:
        left = stack.enter_context(leaving_on(signal.SIGTERM))
        folder = JobFolder(root)
        leases = stack.enter_context(Leases(folder.leases, lease_seconds))
        service = stack.enter_context(choice.opened())
        CorpusWorker(folder, folder.plan(), leases).work(service, lambda: left() or os.getppid() != parent)


@contextmanager
def leaving_on(*signals: signal.Signals) -> Iterator[Callable[[], bool]]:
    """End what runs within when a signal comes, as Ctrl-C does, with what is under way given back. A signal
    that is ignored stays so.

    Yields what tells whether one has come: an exception that a signal raises within a destructor is lost.
    Raises KeyboardInterrupt for SIGINT, SystemExit for others.
    """
    came = list[BaseException]()

    def leave(number: int, _: FrameType | None) -> None:
        came.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        raise came[-1]

    heeded = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield lambda: bool(came)
        if came:
            raise came[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
