"""`convoy serve`: in this process, or in front ends and engine processes under a supervisor.

The supervisor opens the port, starts the processes and restarts them when they die, with a back-off that
grows while they die early. A single front end has a spare one, which takes 40 MiB and accepts connections as
soon as the other has died. The supervisor kills processes that hang, and passes orders between front ends. It
answers no request itself; connections that a dead front end had not accepted wait for the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.api import BundleError, ConfigError, ConvoyError, share_texts
from server.callers.quotas import Counters
from server.observing import instruments, logs
from server.process.forking import start_fork_server
from server.process.peers import ABSENT, LAST_SECONDS, Board, ProcessContext, listen, send
from server.process.temporary import OwnFolder
from server.settings import ServerSettings

if TYPE_CHECKING:
    from server.process.peers import Pipe

logger = logging.getLogger(__name__)

USEFUL_SECONDS: Final = 10.0  # a process that was ready for this long restarts without back-off
MAX_PAUSE_SECONDS: Final = 30.0  # longest back-off between a death and the restart
HANG_CHECK_SECONDS: Final = 1.0  # seconds between two checks for hanging processes
ORDER_CHECKS: Final = 20  # checks without progress after which no order waits for a process
BAD_INPUT_CODE: Final = 2
MAX_SOCKET_PATH_BYTES: Final = 100  # longest path that every system allows


@dataclass(eq=False, slots=True)
class Child:
    """A process under the supervisor.

    number, name: number among all processes, front ends first, and name for logs.
    hosts: whether it is an engine process.
    process: process of the operating system.
    pipe: pipe to it.
    warm_at: time.monotonic() when the front end could serve; inf: not yet.
    serves: whether it is a front end that may accept connections.
    ready_at: time.monotonic() when the process became ready; inf: not ready yet.
    calls: ids of orders that the process has not answered.
    beats: entry of the board's `beats` at the last check.
    unchanged_checks: number of checks since the beats changed. Seconds would include the supervisor's pauses.
    """

    number: int
    name: str
    hosts: bool
    process: ForkServerProcess
    pipe: Pipe
    warm_at: float = math.inf
    serves: bool = False
    ready_at: float = math.inf
    calls: set[str] = field(default_factory=set)
    beats: int = 0
    unchanged_checks: int = 0

    @property
    def ready(self) -> bool:
        return self.ready_at < math.inf


@dataclass(eq=False, slots=True)
class PendingOrder:
    """An order to all front ends except the one that sent it.

    asker: front end that sent the order; None: the supervisor sent it.
    id: number that the sender gave the order.
    waiting: number of missing replies.
    faults: errors of front ends.
    """

    asker: Child | None
    id: int
    waiting: int = 0
    faults: list[str] = field(default_factory=list)


def serve(settings: ServerSettings) -> int:
    """Serve in one or several processes until SIGTERM or SIGINT; return the exit code of `server.app.run`."""
    if settings.frontends:
        return supervise(settings)
    from server.app import run

    return run(settings)


def supervise(settings: ServerSettings) -> int:
    """Serve with front ends and engine processes until SIGTERM or SIGINT; return the exit code.

    Raises BundleError or ConfigError when the port or a model can't be opened.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "several processes need signals and sockets that Windows lacks: leave out --frontends"
        )
    start_fork_server("server.preloaded", partial(share_texts, settings.models, settings.service()))
    logs.set_up(settings, "supervisor")
    with closing(OwnFolder("convoy-")) as folder, listen(settings) as listener:
        if settings.store_folder is None:
            settings = settings.model_copy(update={"store_folder": folder.path / "store"})
        supervisor = Supervisor(settings, listener, folder.path)
        return asyncio.run(supervisor.run())


def run_process(settings: ServerSettings, context: ProcessContext) -> None:
    """Run a front end or an engine process, and exit."""
    from server.app import run
    from server.engine_process import run_engine

    if sys.platform != "win32":
        os.setpgrp()  # Ctrl-C reaches only the supervisor, which passes it on once
    try:
        code = run(settings, context) if context.listener else run_engine(settings, context)
    except (ConvoyError, ModuleNotFoundError) as error:
        details = {"code": getattr(error, "code", ""), "module": getattr(error, "name", "")}
        send(context.pipe, {"kind": "failed", "fault": str(error)} | details)
        code = BAD_INPUT_CODE
    sys.exit(code)


class Supervisor:
    run_child = staticmethod(run_process)

    def __init__(self, settings: ServerSettings, listener: socket.socket, folder: Path) -> None:
        self._settings, self._listener = settings, listener
        self._metrics = folder / "metrics"
        self._metrics.mkdir()
        self._weights = None if settings.engines == 1 else folder / "weights"
        self._sockets = tuple(folder / f"engine-{number}" for number in range(settings.engines))
        if len(os.fsencode(self._sockets[-1])) > MAX_SOCKET_PATH_BYTES:
            raise ConfigError(f"{folder}: the path is too long for sockets: set TMPDIR to a shorter one")
        self._context = multiprocessing.get_context("forkserver")  # of `start_fork_server`
        self._spares = 1 if settings.frontends == 1 else 0  # several front ends replace each other
        array, processes = self._context.RawArray, settings.frontends + settings.engines + self._spares
        self._board = Board(
            array("b", processes), array("i", [ABSENT] * processes), array("l", processes), settings.frontends
        )
        self._children: dict[int, Child] = {}
        self._deaths = [0] * processes  # consecutive early deaths of each process
        self._started: set[int] = set()  # numbers of processes that have been started
        self._calls: dict[str, PendingOrder] = {}
        self._last_id = 0  # id of the last order
        self._all_were_ready = False  # whether all processes have been ready
        self._stops = 0  # number of stop signals received
        self._ending = False  # whether engine processes have been terminated
        self._codes: list[int] = []
        self._start_error: Exception | None = None
        self._counters = Counters()  # quotas of all front ends
        self._counting: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run the processes until all have ended; return the exit code. Raises the error of a start."""
        self._ended = asyncio.Event()
        self._loop = loop = asyncio.get_running_loop()
        if sys.platform != "win32":
            for stop_signal in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(stop_signal, self._stop)
            loop.add_signal_handler(signal.SIGHUP, self._reload_all)
        for number in range(len(self._deaths)):
            self._start(number)
        self._kill_hanging()
        await self._ended.wait()
        if self._start_error:
            raise self._start_error
        return max(self._codes, default=0)

    # start and end of processes

    def _start(self, number: int) -> None:
        """Start a process. If the fork server has died, try again later."""
        if self._stops:
            return
        engine_number = number - self._settings.frontends
        is_engine = 0 <= engine_number < self._settings.engines
        # a spare front end has the last number of all processes
        front_number = min(number, self._settings.frontends)
        name = f"engine process {engine_number}" if is_engine else f"front end {front_number}"
        pipe, child_pipe = self._context.Pipe()
        listener = None if is_engine else self._listener
        shared = self._board, self._metrics, self._sockets, listener, self._weights
        context = ProcessContext(number, child_pipe, *shared, name=name, restarted=number in self._started)
        process = self._context.Process(
            target=self.run_child, args=(self._settings, context), name=name, daemon=True
        )
        try:
            process.start()
        except (EOFError, OSError) as error:  # the fork server has died
            pipe.close()
            self._start_later(number, f"{name} could not start: {error!r}", useful=False)
            return
        finally:
            child_pipe.close()
        self._started.add(number)
        child = self._children[number] = Child(number, name, is_engine, process, pipe)
        self._loop.add_reader(pipe.fileno(), self._read_messages, child)
        self._loop.add_reader(process.sentinel, self._reap, child)
        logger.info("%s is process %d", name, process.pid)

    def _let_serve(self) -> None:
        """Let started front ends accept connections, as many as the settings ask for."""
        fronts = [child for child in self._children.values() if not child.hosts]
        free = self._settings.frontends - sum(child.serves for child in fronts)
        waiting = [child for child in fronts if child.warm_at < math.inf and not child.serves]
        for child in waiting[:free]:
            child.serves = True
            send(child.pipe, {"kind": "serve"})

    def _reap(self, child: Child) -> None:
        """Handle the end of a process: restart it, or stop the server if it has not started yet."""
        self._read_messages(child)  # that it sent before it ended
        self._loop.remove_reader(child.process.sentinel)
        self._loop.remove_reader(child.pipe.fileno())
        child.pipe.close()
        child.process.join()
        code = child.process.exitcode or 0
        child.process.close()
        del self._children[child.number]
        self._board.clear(child.number)
        if not self._stops:
            self._let_serve()
        instruments.forget(self._metrics, child.number)
        for id in child.calls:  # a restarted process loads the newest models anyway
            self._record_reply(id, "")
        if self._stops:
            # a process that was not ready has lost no request
            self._codes.append(0 if code == 0 or not child.ready else max(code, 1))
            self._end_engines()
        elif not self._all_were_ready:
            logger.error("%s ended with code %d before all processes were ready", child.name, code)
            self._codes.append(max(code, 1))
            self._stop()
        else:
            useful = time.monotonic() - min(child.warm_at, child.ready_at) > USEFUL_SECONDS
            self._start_later(child.number, f"{child.name} ended with code {code}", useful=useful)

    def _start_later(self, number: int, fault: str, *, useful: bool) -> None:
        """Restart a process after its back-off.

        number: number of the process.
        fault: cause for the log.
        useful: whether the process was ready long enough to restart without back-off.
        """
        self._deaths[number] = 0 if useful else self._deaths[number] + 1
        pause = pause_after(self._deaths[number])
        logger.error("%s; it restarts in %.0f seconds", fault, pause)
        self._loop.call_later(pause, self._start, number)

    def _kill_hanging(self) -> None:
        """Kill hanging processes. Starting processes are exempt, and `_stop` limits the time of stopping."""
        for child in self._children.values() if not self._stops else ():
            beats, unchanged_checks = self._board.beats[child.number], child.unchanged_checks + 1
            # beats of 0 are a process that is not ready yet; `child.beats` is the value at the last check
            child.beats, child.unchanged_checks = beats, unchanged_checks if 0 < beats == child.beats else 0
            for id in list(child.calls) if child.unchanged_checks >= ORDER_CHECKS else ():
                child.calls.discard(id)
                self._record_reply(id, f"{child.name} does not respond, and follows when it continues")
            seconds = self._settings.hang_timeout
            if seconds and child.unchanged_checks * HANG_CHECK_SECONDS >= seconds:
                logger.error("killing %s: it has made no progress for %d seconds", child.name, seconds)
                child.process.kill()
        self._loop.call_later(HANG_CHECK_SECONDS, self._kill_hanging)

    def _stop(self) -> None:
        """Handle a stop signal: on the first, front ends drain, then engines end; on the second, all end."""
        self._stops += 1
        if self._stops == 1:
            late = self._settings.drain_timeout + 3 * LAST_SECONDS
            self._loop.call_later(late, self._kill)
        for child in self._children.values():
            if not child.hosts or self._stops > 1:
                child.process.terminate()
        self._end_engines()

    def _end_engines(self) -> None:
        """Terminate engine processes when no front end is left, and stop when no process is left."""
        if not self._ending and all(child.hosts for child in self._children.values()):
            self._ending = True
            for child in self._children.values():
                child.process.terminate()
        if not self._children:
            self._ended.set()

    def _kill(self) -> None:
        """Kill the processes that do not end."""
        for child in self._children.values():
            logger.error("killing %s: it does not end", child.name)
            child.process.kill()

    # messages of processes

    def _read_messages(self, child: Child) -> None:
        """Handle all messages in the pipe of a process."""
        try:
            while child.pipe.poll():
                self._handle(child, json.loads(child.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            self._loop.remove_reader(child.pipe.fileno())

    def _handle(self, child: Child, message: dict[str, Any]) -> None:
        """Handle a message: warm, ready, order, count, obeyed (a reply to an order) or failed."""
        if message["kind"] == "warm":
            child.warm_at = time.monotonic()
            self._let_serve()
        elif message["kind"] == "ready":
            child.ready_at = time.monotonic()
            logger.info("%s is ready", child.name)
            needed = len(self._deaths) - self._spares
            self._all_were_ready |= sum(c.ready for c in self._children.values()) == needed
        elif message["kind"] == "order":
            self._forward_order(message["order"], child, message["id"])
        elif message["kind"] == "count":
            task = self._loop.create_task(self._count(child, message))
            self._counting.add(task)
            task.add_done_callback(self._counting.discard)
        elif message["kind"] == "obeyed" and message["id"] in child.calls:
            child.calls.discard(message["id"])
            fault = message["fault"]
            self._record_reply(message["id"], f"{child.name}: {fault}" if fault else "")
        elif self._all_were_ready and message["kind"] == "failed":
            logger.error("%s: %s", child.name, message["fault"])
        elif message["kind"] == "failed":
            self._start_error = _fault_of(message)

    async def _count(self, child: Child, message: dict[str, Any]) -> None:
        """Update the counters for a front end, so that limits hold for all front ends together."""
        value = await self._counters.ask(message["verb"], message["arguments"])
        if self._children.get(child.number) is child:
            send(child.pipe, {"kind": "counted", "id": message["id"], "value": value})

    def _reload_all(self) -> None:
        """Let one front end reload all models; it sends an order for each model to the other front ends."""
        first = next((child for child in self._children.values() if child.ready and not child.hosts), None)
        if first:
            self._last_id += 1
            self._calls[str(self._last_id)] = PendingOrder(None, 0, 1)
            self._send_order(first, str(self._last_id), "")

    def _forward_order(self, order: str, asker: Child, number: int) -> None:
        """Send an order to all front ends except the sender.

        order: argument of `AppState.obey`.
        asker: front end that sent the order.
        number: number that the sender gave the order.
        """
        self._last_id += 1
        id = str(self._last_id)
        call = self._calls[id] = PendingOrder(asker, number)
        for child in self._children.values():
            if child is not asker and not child.hosts:
                call.waiting += 1
                self._send_order(child, id, order)
        if not call.waiting:
            self._record_reply(id, "")

    def _send_order(self, child: Child, id: str, order: str) -> None:
        child.calls.add(id)
        send(child.pipe, {"kind": "order", "id": id, "order": order})

    def _record_reply(self, id: str, fault: str) -> None:
        """Record a reply to an order ("" or an error); after the last one, send the errors to the sender."""
        order = self._calls[id]
        order.waiting -= 1
        order.faults += [fault] if fault else []
        if order.waiting > 0:
            return
        del self._calls[id]
        if order.asker is not None and self._children.get(order.asker.number) is order.asker:
            send(order.asker.pipe, {"kind": "obeyed", "id": order.id, "faults": order.faults})


def pause_after(deaths: int) -> float:
    """Return the back-off in seconds before a process restarts, after `deaths` consecutive early deaths."""
    return min(MAX_PAUSE_SECONDS, 2.0 ** (deaths - 2)) if deaths > 1 else 0.0


def _fault_of(message: dict[str, Any]) -> Exception:
    """Return the error that kept a process from starting, as a single process would raise it."""
    if message["module"]:
        return ModuleNotFoundError(message["fault"], name=message["module"])
    return (ConfigError if message["code"] == ConfigError.code else BundleError)(message["fault"])
