"""`convoy serve`: in this process, or in N workers under a supervisor.

The supervisor opens the port, starts the workers and keeps them going, and answers no request itself. A
worker that dies is started again, after a pause that grows when it dies soon; connections that nobody had
accepted wait for the others. What must reach all workers goes through here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.api import BundleError, ConfigError, ConvoyError
from server.app import LAST_SECONDS, run
from server.callers.quotas import Counters
from server.observing import logs, metrics
from server.process.peers import ABSENT, Board, WorkerContext, send
from server.process.temporary import OwnFolder
from server.settings import ServerSettings

if TYPE_CHECKING:
    from server.process.peers import Link

logger = logging.getLogger(__name__)

MAX_BACKLOG: Final = 2048  # connections that wait until a worker accepts them
CALM_SECONDS: Final = 60.0  # after which the death of a worker has nothing to do with the one before
MAX_PAUSE_SECONDS: Final = 30.0  # between a death and the next start, at most
BAD_INPUT_CODE: Final = 2


@dataclass(eq=False, slots=True)
class Worker:
    """calls: orders that it has not answered."""

    number: int
    process: SpawnProcess
    link: Link
    began: float = field(default_factory=time.monotonic)
    ready: bool = False
    calls: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class PendingOrder:
    """An order to all workers but `asker`.

    waiting: for how many answers.
    """

    asker: Worker | None
    id: int
    waiting: int = 0
    faults: list[str] = field(default_factory=list)


def serve(settings: ServerSettings) -> int:
    """Serve in as many processes as the settings say until SIGTERM or SIGINT; see `server.app.run`."""
    return run(settings) if settings.workers == 1 else supervise(settings)


def supervise(settings: ServerSettings) -> int:
    """Serve with `settings.workers` processes until SIGTERM or SIGINT; returns as `run` does.

    Raises BundleError or ConfigError when the port or a model can't be opened.
    """
    if sys.platform == "win32":
        raise ConfigError("several workers need signals and pipes that Windows lacks: leave out --workers")
    logs.set_up(settings)
    with closing(OwnFolder("convoy-workers-")) as folder, _listener(settings) as listener:
        if settings.store_folder is None:
            settings = settings.model_copy(update={"store_folder": folder.path / "store"})
        supervisor = Supervisor(settings, listener, folder.path)
        return asyncio.run(supervisor.run())


class Supervisor:
    def __init__(self, settings: ServerSettings, listener: socket.socket, folder: Path) -> None:
        self._settings, self._listener = settings, listener
        self._metrics = folder / "metrics"
        self._metrics.mkdir()
        self._context = multiprocessing.get_context("spawn")
        count = settings.workers
        self._board = Board(self._context.RawArray("b", count), self._context.RawArray("i", [ABSENT] * count))
        self._workers: dict[int, Worker] = {}
        self._deaths = [0] * count  # of each worker, in a row
        self._calls: dict[str, PendingOrder] = {}
        self._asked = 0
        self._begun = False  # whether all were ready once
        self._stopping = False
        self._codes: list[int] = []
        self._fault: Exception | None = None
        self._counters = Counters()  # of all workers' visitors
        self._counting: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        self._over = asyncio.Event()
        self._loop = loop = asyncio.get_running_loop()
        if sys.platform != "win32":
            for stop_signal in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(stop_signal, self._stop)
            loop.add_signal_handler(signal.SIGHUP, self._reload_all)
        for number in range(self._settings.workers):
            self._start(number)
        await self._over.wait()
        if self._fault:
            raise self._fault
        return max(self._codes, default=0)

    # workers come and go

    def _start(self, number: int) -> None:
        if self._stopping:
            return
        ours, theirs = self._context.Pipe()
        context = WorkerContext(number, self._listener, theirs, self._board, self._metrics)
        process = self._context.Process(
            target=work, args=(self._settings, context), name=f"worker {number}", daemon=True
        )
        process.start()
        theirs.close()
        worker = self._workers[number] = Worker(number, process, ours)
        self._loop.add_reader(ours.fileno(), self._read_messages, worker)
        self._loop.add_reader(process.sentinel, self._reap, worker)
        logger.info("worker %d is process %d", number, process.pid)

    def _reap(self, worker: Worker) -> None:
        self._read_messages(worker)  # its last words
        self._loop.remove_reader(worker.process.sentinel)
        self._loop.remove_reader(worker.link.fileno())
        worker.link.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        worker.process.close()
        number = worker.number
        del self._workers[number]
        self._board.clear(number)
        metrics.forget(self._metrics, number)
        for id in worker.calls:  # what it was asked for is done when it starts again
            self._count_answer(id, "")
        if self._stopping:
            # one that had no model yet had no request either
            self._codes.append(0 if code == 0 or not worker.ready else max(code, 1))
            if not self._workers:
                self._over.set()
        elif not self._begun:
            logger.error("worker %d ended with %d before all were ready", number, code)
            self._codes.append(max(code, 1))
            self._stop()
        else:
            self._again(worker, code)

    def _again(self, worker: Worker, code: int) -> None:
        number = worker.number
        if worker.ready and time.monotonic() - worker.began > CALM_SECONDS:
            self._deaths[number] = 0
        pause = pause_after(self._deaths[number])
        self._deaths[number] += 1
        logger.error("worker %d ended with %d; it starts again in %.0f seconds", number, code, pause)
        self._loop.call_later(pause, self._start, number)

    def _stop(self) -> None:
        """Pass a signal on: at the first all workers drain, at the second they end."""
        if not self._stopping:
            self._stopping = True
            late = self._settings.drain_timeout + 3 * LAST_SECONDS
            self._loop.call_later(late, self._kill)
        for worker in self._workers.values():
            worker.process.terminate()
        if not self._workers:
            self._over.set()

    def _kill(self) -> None:
        for worker in self._workers.values():
            logger.error("worker %d does not end: it is killed", worker.number)
            worker.process.kill()

    # what workers say

    def _read_messages(self, worker: Worker) -> None:
        try:
            while worker.link.poll():
                self._heed(worker, json.loads(worker.link.recv_bytes()))
        except (EOFError, ConnectionResetError):
            self._loop.remove_reader(worker.link.fileno())

    def _heed(self, worker: Worker, message: dict[str, Any]) -> None:
        if message["kind"] == "ready":
            worker.ready = True
            logger.info("worker %d is ready", worker.number)
            self._begun = self._begun or sum(w.ready for w in self._workers.values()) == len(self._deaths)
        elif message["kind"] == "order":
            self._call(message["order"], worker, message["id"])
        elif message["kind"] == "count":
            task = self._loop.create_task(self._count(worker, message))
            self._counting.add(task)
            task.add_done_callback(self._counting.discard)
        elif message["kind"] == "obeyed":
            worker.calls.discard(message["id"])
            fault = message["fault"]
            self._count_answer(message["id"], f"worker {worker.number}: {fault}" if fault else "")
        elif self._begun:
            logger.error("worker %d: %s", worker.number, message["fault"])
        else:
            self._fault = _fault_of(message)

    async def _count(self, worker: Worker, message: dict[str, Any]) -> None:
        """Count for a worker, so that limits hold for all of them together."""
        value = await self._counters.ask(message["verb"], message["arguments"])
        if self._workers.get(worker.number) is worker:
            send(worker.link, {"kind": "counted", "id": message["id"], "value": value})

    def _reload_all(self) -> None:
        self._call("", None, 0)

    def _call(self, order: str, asker: Worker | None, number: int) -> None:
        """Have all but `asker` obey an order of `AppState.obey`; its number is the asker's."""
        self._asked += 1
        id = str(self._asked)
        call = self._calls[id] = PendingOrder(asker, number)
        for worker in self._workers.values():
            if worker is not asker:
                call.waiting += 1
                worker.calls.add(id)
                send(worker.link, {"kind": "order", "id": id, "order": order})
        if not call.waiting:
            self._count_answer(id, "")

    def _count_answer(self, id: str, fault: str) -> None:
        call = self._calls[id]
        call.waiting -= 1
        call.faults += [fault] if fault else []
        if call.waiting > 0:
            return
        del self._calls[id]
        if call.asker is not None and call.asker.number in self._workers:
            send(call.asker.link, {"kind": "obeyed", "id": call.id, "faults": call.faults})


def work(settings: ServerSettings, context: WorkerContext) -> None:
    """Run a worker for its whole life."""
    if sys.platform != "win32":
        os.setpgrp()  # Ctrl-C is for the supervisor, who passes it on once
    try:
        code = run(settings, context)
    except (ConvoyError, ModuleNotFoundError) as error:
        details = {"code": getattr(error, "code", ""), "module": getattr(error, "name", "")}
        send(context.link, {"kind": "failed", "fault": str(error)} | details)
        code = BAD_INPUT_CODE
    sys.exit(code)


def pause_after(deaths: int) -> float:
    """Return the seconds until a worker starts again.

    deaths: how many times it has died soon after its start.
    """
    return min(MAX_PAUSE_SECONDS, 2.0 ** (deaths - 1)) if deaths else 0.0


def _fault_of(message: dict[str, Any]) -> Exception:
    """What a worker could not start for, as one process would have raised it."""
    if message["module"]:
        return ModuleNotFoundError(message["fault"], name=message["module"])
    return (ConfigError if message["code"] == ConfigError.code else BundleError)(message["fault"])


def _listener(settings: ServerSettings) -> socket.socket:
    """The socket that all workers accept from. Raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_BACKLOG)
    except OSError as error:
        raise ConfigError(f"can't listen on {settings.host}:{settings.port}: {error}") from error
    host, port = listener.getsockname()[:2]
    logger.info("listening on %s:%d with %d workers", host, port, settings.workers)
    return listener
