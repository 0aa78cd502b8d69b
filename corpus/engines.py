"""Engines of a job: the settings to open one, and helper processes with further engines."""

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

RESTARTS: Final = 3  # restarts for each helper
GRACE: Final = 10.0  # seconds for a helper to end


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The models of an engine, and the settings of its service.

    models: folders of the bundles.
    settings: backend, lanes and other configuration of the service.
    """

    models: Sequence[Path]
    settings: ServiceSettings

    @contextmanager
    def opened(self) -> Iterator[Service]:
        """Start a service, yield it, and stop it at the end. Raises BundleError, ConfigError."""
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
    """Helper processes that work on a job, each with its own engine.

    root: folder of the job.
    choice: models of each engine.
    lease_seconds: duration of a lease without a beat.
    count: number of processes.
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

    def restart_killed(self) -> None:
        """Restart processes that were killed by a signal, a few times: the memory may be too small."""
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
        """Return a new process that works on the shards of the job."""
        context = multiprocessing.get_context("spawn")
        arguments = (self.root, self.choice, self.lease_seconds, os.getpid())
        process = context.Process(target=run_helper, args=arguments, daemon=True)
        process.start()
        return process


def run_helper(root: Path, choice: EngineChoice, lease_seconds: float, parent: int) -> None:
    """Work on a job until it is done or the parent process has ended.

    root: folder of the job.
    choice: models of the engine.
    lease_seconds: duration of a lease without a beat.
    parent: id of the parent process.
    """
    # a terminal signals all processes; the parent stops its helpers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as stack:
        stopped = stack.enter_context(stopping_on(signal.SIGTERM))
        folder = JobFolder(root)
        leases = stack.enter_context(Leases(folder.leases, lease_seconds))
        service = stack.enter_context(choice.opened())
        CorpusWorker(folder, folder.plan(), leases).work(service, lambda: stopped() or os.getppid() != parent)


@contextmanager
def stopping_on(*signals: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Raise an exception in the body of the `with` when one of the signals arrives; ignored signals stay
    ignored.

    Yields a function that returns whether a signal has arrived, because an exception raised in a destructor
    is lost. Raises KeyboardInterrupt for SIGINT, SystemExit for others.
    """
    errors = list[BaseException]()

    def leave(number: int, _: FrameType | None) -> None:
        errors.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        raise errors[-1]

    heeded = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield lambda: bool(errors)
        if errors:
            raise errors[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
