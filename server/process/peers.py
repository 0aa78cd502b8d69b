"""What a process knows of the others: `convoy serve --frontends F` runs F front ends behind one port.

All accept from one socket, which the supervisor has opened (`server.supervisor`). They tell each other
little: on a board in shared memory whether each is ready and how many connections it has, and through the
supervisor what all of them must do. There every process shows too that it goes on.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, MutableSequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.api import ConvoyError

if TYPE_CHECKING:  # a pipe between processes, as each system has it
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        Pipe = PipeConnection
    else:
        from multiprocessing.connection import Connection

        Pipe = Connection

ABSENT: Final = -1  # connections of a front end that is not there
MAX_LEFT_CONNECTIONS: Final = 100  # times that a front end leaves a connection to one that has fewer

Obey = Callable[[str], Awaitable[object]]  # does what all front ends are asked for


@dataclass(frozen=True, slots=True)
class Board:
    """In shared memory, an entry for each front end, and of `beats` one for each process.

    ready: 0 or 1.
    connections: ABSENT where there is none.
    beats: a number that grows while the process goes on; 0 until it is ready.
    """

    ready: MutableSequence[int]
    connections: MutableSequence[int]
    beats: MutableSequence[int]

    def clear(self, number: int) -> None:
        """Forget a process that has ended."""
        self.beats[number] = 0
        if number < len(self.ready):
            self.ready[number], self.connections[number] = 0, ABSENT


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What the supervisor gives a process.

    number: front ends are counted from 0, engine processes after them.
    pipe: to the supervisor.
    board: of the front ends.
    metrics: the folder of all processes' figures.
    sockets: where each engine process listens.
    listener: where front ends accept; None for an engine process.
    weights: the folder in which engine processes keep weights for each other; None: each has its own.
    """

    number: int
    pipe: Pipe
    board: Board
    metrics: Path
    sockets: tuple[Path, ...]
    listener: socket.socket | None
    weights: Path | None = None


class Listener(socket.socket):
    """The shared socket, as one front end accepts from it.

    Left to the kernel, whoever wakes first takes all connections that wait, and a client keeps its
    connection for long. So a front end takes one connection a turn of its loop, and for a moment leaves it to
    one that has fewer.
    """

    def __init__(self, context: ProcessContext, count: Callable[[], int]) -> None:
        assert context.listener
        super().__init__(fileno=context.listener.detach())
        self._board, self._number, self._count = context.board.connections, context.number, count
        self._left = 0

    def listen(self, backlog: int = 0) -> None:
        """Do nothing, as it listens already.

        Else asyncio would shorten the queue to what one front end accepts at a time.
        """

    def accept(self) -> tuple[socket.socket, Any]:
        own = self._board[self._number] = self._count()
        if self._left < MAX_LEFT_CONNECTIONS and any(0 <= other < own for other in self._board):
            self._left += 1
            time.sleep(0)  # who else is ready goes first
            raise BlockingIOError  # asyncio tries again in the next turn
        connection = super().accept()
        self._left = 0
        self._board[self._number] = own + 1
        return connection


class Peers:
    """A front end's line to the others. For the event loop's thread."""

    def __init__(self, context: ProcessContext, obey: Obey) -> None:
        self._context, self._obey = context, obey
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = False

    def join(self) -> None:
        """Listen to the supervisor, from now on and in this event loop."""
        asyncio.get_running_loop().add_reader(self._context.pipe.fileno(), self._read_messages)

    def leave(self) -> None:
        asyncio.get_running_loop().remove_reader(self._context.pipe.fileno())

    def ready(self) -> bool:
        """Return whether every front end is ready."""
        return all(self._context.board.ready)

    def tell(self, *, ready: bool, connections: int) -> None:
        """Put on the board how this front end is, and that it goes on."""
        board = self._context.board
        board.ready[self._context.number] = ready
        board.connections[self._context.number] = connections
        board.beats[self._context.number] += 1
        if ready and not self._told:
            self._told = True
            send(self._context.pipe, {"kind": "ready"})

    async def order(self, order: str) -> list[str]:
        """Have all other front ends obey; returns what went wrong, a line for each that refused."""
        faults: list[str] = await self._ask({"kind": "order", "order": order})
        return faults

    async def count(self, verb: str, arguments: list[Any]) -> Any:
        """Have the supervisor count, for all front ends together; see `quotas.Counters.ask`."""
        return await self._ask({"kind": "count", "verb": verb, "arguments": arguments})

    async def _ask(self, message: dict[str, Any]) -> Any:
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        send(self._context.pipe, message | {"id": number})
        try:
            return await self._asked[number]
        finally:
            del self._asked[number]

    def _read_messages(self) -> None:
        try:
            while self._context.pipe.poll():
                self._heed(json.loads(self._context.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):  # the supervisor is gone, however that came
            self.leave()
            os.kill(os.getpid(), signal.SIGTERM)

    def _heed(self, message: dict[str, Any]) -> None:
        if message["kind"] == "order":
            task = asyncio.get_running_loop().create_task(self._do(message["id"], message["order"]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif (waiting := self._asked.get(message["id"])) and not waiting.done():
            waiting.set_result(message["value" if message["kind"] == "counted" else "faults"])

    async def _do(self, id: str, order: str) -> None:
        fault = ""
        try:
            await self._obey(order)
        except ConvoyError as error:
            fault = str(error)
        send(self._context.pipe, {"kind": "obeyed", "id": id, "fault": fault})


def send(pipe: Pipe, message: dict[str, Any]) -> None:
    """Send a message as JSON: nothing is unpickled. A receiver that has gone is told nothing."""
    try:
        pipe.send_bytes(json.dumps(message).encode())
    except (BrokenPipeError, ConnectionResetError):
        return
