"""Communication between processes: `convoy serve --frontends F` runs F front ends behind one port.

All front ends accept from one socket, which the supervisor opens (`server.supervisor`). Each writes to a
board in shared memory whether it is ready and its number of connections, and every process writes its
heartbeat there. Orders to all front ends go through the supervisor. A front end that has started waits until
the supervisor lets it accept: a spare one waits until another has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, MutableSequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.api import ConfigError, ConvoyError
from server.settings import ServerSettings

if TYPE_CHECKING:  # the type of a pipe between processes differs by system
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        Pipe = PipeConnection
    else:
        from multiprocessing.connection import Connection

        Pipe = Connection

logger = logging.getLogger(__name__)

MAX_BACKLOG: Final = 2048  # connections that wait until a front end accepts them
ABSENT: Final = -1  # number of connections of a front end that does not run
# how often in a row a front end leaves connections to front ends with fewer
MAX_POSTPONED: Final = 100
LAST_SECONDS: Final = 5.0  # cancelled requests get this long for their error responses
BEAT_SECONDS: Final = 0.5  # seconds between two heartbeats of a front end that waits for its turn

Obey = Callable[[str], Awaitable[object]]  # executes an order to all front ends


@dataclass(frozen=True, slots=True)
class Board:
    """Arrays in shared memory with an entry for each process.

    ready: 1 if the process is a front end that is ready, otherwise 0.
    connections: number of connections, ABSENT for other processes and front ends that serve nobody.
    beats: counter that grows while the process is alive; 0 until it is ready.
    frontends: number of front ends that serve at the same time.
    """

    ready: MutableSequence[int]
    connections: MutableSequence[int]
    beats: MutableSequence[int]
    frontends: int

    def clear(self, number: int) -> None:
        """Reset the entries of a process that has ended."""
        self.beats[number], self.ready[number], self.connections[number] = 0, 0, ABSENT


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """Objects that the supervisor hands to a process.

    number: number of the process; front ends count from 0, engine processes follow.
    pipe: pipe to the supervisor.
    board: shared board of the processes.
    metrics: folder of the metrics of all processes.
    sockets: path of the socket of each engine process.
    listener: socket from which front ends accept; None for an engine process.
    weights: folder of weights that engine processes share; None if each loads its own.
    name: name of the process in logs and metrics.
    restarted: whether the process replaces one that has ended.
    """

    number: int
    pipe: Pipe
    board: Board
    metrics: Path
    sockets: tuple[Path, ...]
    listener: socket.socket | None
    weights: Path | None = None
    name: str = ""
    restarted: bool = False


class Listener(socket.socket):
    """The shared socket, from which one front end accepts.

    Without it, the front end that wakes first would take all pending connections, and clients keep
    connections for long. So a front end accepts one connection per turn of its event loop, and first leaves
    it to front ends with fewer connections for a moment.
    """

    def __init__(self, context: ProcessContext, count: Callable[[], int]) -> None:
        assert context.listener
        super().__init__(fileno=context.listener.detach())
        self._board, self._number, self._count = context.board.connections, context.number, count
        self._postponed = 0

    def listen(self, backlog: int = 0) -> None:
        """Do nothing: the socket listens already. Otherwise asyncio would shorten the queue of
        connections."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises BlockingIOError to leave it to a front end with fewer connections."""
        own_count = self._board[self._number] = self._count()
        if self._postponed < MAX_POSTPONED and any(0 <= count < own_count for count in self._board):
            self._postponed += 1
            time.sleep(0)  # lets another front end accept first
            raise BlockingIOError  # asyncio tries again in the next turn
        connection = super().accept()
        self._postponed = 0
        self._board[self._number] = own_count + 1
        return connection


class Peers:
    """A front end's connection to the supervisor, which passes its orders on to the other front ends.

    An order is an argument of `AppState.obey`. For the thread of one event loop.
    """

    def __init__(self, context: ProcessContext, obey: Obey) -> None:
        self._context, self._obey = context, obey
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported = False
        self._serving = asyncio.Event()  # set when the supervisor lets this front end accept connections

    def join(self) -> None:
        """Start to read messages of the supervisor in this event loop."""
        asyncio.get_running_loop().add_reader(self._context.pipe.fileno(), self._read_messages)

    def leave(self) -> None:
        asyncio.get_running_loop().remove_reader(self._context.pipe.fileno())

    def ready(self) -> bool:
        """Return whether every front end is ready, without a spare one."""
        board = self._context.board
        return sum(board.ready) >= board.frontends

    async def stand_by(self, ended: Callable[[], bool]) -> None:
        """Wait until the supervisor lets this front end accept connections.

        ended: returns whether the front end is to end instead.
        """
        send(self._context.pipe, {"kind": "warm"})
        while not self._serving.is_set() and not ended():
            self._context.board.beats[self._context.number] += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._serving.wait(), BEAT_SECONDS)

    def report(self, *, ready: bool, connections: int) -> None:
        """Write this front end's state and heartbeat to the board; report the first time that it is ready."""
        board = self._context.board
        board.ready[self._context.number] = ready
        board.connections[self._context.number] = connections
        board.beats[self._context.number] += 1
        if ready and not self._reported:
            self._reported = True
            send(self._context.pipe, {"kind": "ready"})

    async def order(self, order: str) -> list[str]:
        """Send an order to all other front ends. Returns the error message of each that failed."""
        faults: list[str] = await self._request({"kind": "order", "order": order})
        return faults

    async def count(self, verb: str, arguments: list[Any]) -> Any:
        """Let the supervisor count for all front ends together; see `quotas.Counters.ask`."""
        return await self._request({"kind": "count", "verb": verb, "arguments": arguments})

    async def _request(self, message: dict[str, Any]) -> Any:
        """Send a message to the supervisor, and return the value of its reply."""
        number = next(self._numbers)
        self._pending[number] = asyncio.get_running_loop().create_future()
        send(self._context.pipe, message | {"id": number})
        try:
            return await self._pending[number]
        finally:
            del self._pending[number]

    def _read_messages(self) -> None:
        """Handle all messages in the pipe. End this process when the supervisor has ended."""
        try:
            while self._context.pipe.poll():
                self._handle(json.loads(self._context.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):  # the supervisor has ended
            self.leave()
            os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, message: dict[str, Any]) -> None:
        """Execute an order, or give a reply to the request that waits for it."""
        if message["kind"] == "serve":
            self._serving.set()
        elif message["kind"] == "order":
            task = asyncio.get_running_loop().create_task(self._execute(message["id"], message["order"]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (waiting := self._pending.get(message["id"])) and not waiting.done():
            # a value of the counters, or the errors of the front ends that got an order
            waiting.set_result(message["value" if message["kind"] == "counted" else "faults"])

    async def _execute(self, id: str, order: str) -> None:
        """Execute an order of another front end, and send the error or "" to the supervisor."""
        fault = ""
        try:
            await self._obey(order)
        except ConvoyError as error:
            fault = str(error)
        send(self._context.pipe, {"kind": "obeyed", "id": id, "fault": fault})


def send(pipe: Pipe, message: dict[str, Any]) -> None:
    """Send a message as JSON, so that nothing is unpickled. Does nothing if the receiver has ended."""
    try:
        pipe.send_bytes(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):
        return


def listen(settings: ServerSettings) -> socket.socket:
    """Open the socket that all front ends accept from. Raises ConfigError."""
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
    kinds = settings.frontends, settings.engines
    logger.info("listening on %s:%d with %d front ends, %d engine processes", host, port, *kinds)
    return listener
