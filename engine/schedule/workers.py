"""Runs work on long texts in processes that can be killed, so that no text can stop the server.

Work is a generator function of a module, with arguments for `engine.schedule.values`. A worker has a limit of
processor time and of memory; work that takes more is killed and fails with TooLarge. The processes start with
the first work, and a worker ends after IDLE_SECONDS without work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from engine.errors import ConvoyError, DeadlineExceeded, TooLarge
from engine.schedule.places import Places
from engine.schedule.slices import Slices, at_once, in_slices, in_turns
from engine.schedule.values import decode, decode_slices, encode, encode_slices, find_class
from engine.schedule.worker import FAILED, LENGTH_BYTES, QUICK_SECONDS, STARVED, frame

logger = logging.getLogger(__name__)
T = TypeVar("T")

SMALL: Final = 2_000  # characters; smaller work takes at most 250 ms even if its time grows with their square
MAX_WORKERS: Final = 8
OWNER_WORKERS: Final = 6  # workers that work for one owner at the same time
IDLE_SECONDS: Final = 60.0
# processor time that work may take, and what each character adds; ordinary work takes a tenth of it
BUDGET_SECONDS: Final = 2.0
CHARACTER_SECONDS: Final = 0.000_1
MAX_ANSWER_BYTES: Final = 1 << 28
TOO_LONG: Final = "the text takes more than {:.1f} s of processor time to prepare: send it in shorter parts"
TOO_MUCH_MEMORY: Final = "the text takes too much memory to prepare: send it in shorter parts"


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker with its connection.

    busy: time.monotonic() at the start of its work.
    idle: time.monotonic() at the end of its work.
    """

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    busy: float = 0.0
    idle: float = 0.0


@dataclass(eq=False, slots=True)
class WorkerFigures:
    """Figures of the workers for metrics.

    waiting: number of works that wait for a worker.
    longest: largest processor time of a finished work, in seconds.
    killed: number of killed workers, by reason.
    """

    waiting: int = 0
    longest: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)


class Workers:
    """Workers of one server process, for one event loop: the one that uses them first."""

    def __init__(
        self, most: int = MAX_WORKERS, share: int = OWNER_WORKERS, owner: Callable[[], str] = str
    ) -> None:
        """Start no worker yet.

        most: number of workers that work at the same time.
        share: number of workers that work for one owner at the same time.
        owner: function that returns the name of the owner of the current work.
        """
        self.figures = WorkerFigures()
        self._places, self._owner = Places(most, share), owner
        self._idle, self._busy = list[_Worker](), set[_Worker]()
        self._template: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._ordering = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether this system can fork workers, and the running event loop is the one of these workers."""
        if sys.platform == "win32" or not hasattr(socket, "send_fds"):
            return False
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        return self._loop is loop

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self._idle) + len(self._busy)

    def oldest(self) -> float:
        """Return the seconds since the start of the oldest running work; 0 if there is none."""
        return max((time.monotonic() - worker.busy for worker in self._busy), default=0.0)

    async def run(
        self, work: Callable[..., Slices[T]], *arguments: Any, deadline: float, characters: int
    ) -> T:
        """Run work in a worker, and return its value. The worker is killed when the caller is cancelled.

        work: generator function of a module.
        arguments: arguments of the work.
        deadline: latest time, of time.monotonic().
        characters: length of the text, which limits the processor time.

        Raises TooLarge when the work takes too much time or memory, DeadlineExceeded, and
        what the work raises.
        """
        seconds = BUDGET_SECONDS + CHARACTER_SECONDS * characters
        message = await in_turns(encode_slices((seconds, work, arguments)))
        self.figures.waiting += 1
        waiting, limit = True, asyncio.timeout_at(_loop_time(deadline))
        try:
            async with limit, self._places.turn(self._owner()):
                worker = self._take_idle() or await self._start(work, arguments)
                self.figures.waiting -= 1
                waiting = False
                error, value, used = await self._exchange(worker, message, seconds)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded("the deadline passed while the request was being prepared") from None
        finally:
            self.figures.waiting -= waiting
        self.figures.longest = max(self.figures.longest, used)
        if not error:
            result: T = value
            return result
        raise _error_of(error, value)

    async def close(self) -> None:
        """End all workers and their template."""
        if self._sweeping:
            self._sweeping.cancel()
        for worker in (*self._idle, *self._busy):
            worker.writer.close()
        self._idle.clear()
        if self._template:
            process, control = self._template
            control.close()  # the template kills the workers and ends
            self._template = None
            await asyncio.to_thread(process.wait)

    async def _exchange(self, worker: _Worker, message: bytes, seconds: float) -> tuple[str, Any, float]:
        """Send work to a worker, and return its answer. The worker is killed after any error."""
        worker.busy = time.monotonic()
        self._busy.add(worker)
        try:
            worker.writer.write(frame(message))
            await worker.writer.drain()
            length = int.from_bytes(await worker.reader.readexactly(LENGTH_BYTES), "big")
            answer: tuple[str, Any, float] = STARVED, "", seconds
            if length <= MAX_ANSWER_BYTES:
                answer = await in_turns(decode_slices(await worker.reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._end(worker)
            reason = {-getattr(signal, "SIGPROF", 0): "time", -signal.SIGKILL: "memory"}.get(code, "failure")
            self.figures.killed[reason] += 1
            if reason == "time":
                raise TooLarge(TOO_LONG.format(seconds)) from None
            if reason == "memory":  # the system kills a process if its memory is full
                raise TooLarge(TOO_MUCH_MEMORY) from None
            raise RuntimeError(f"a worker failed with code {code}") from None
        except BaseException:
            self.figures.killed["abandoned"] += 1  # the deadline has passed, or the client has left
            await self._end(worker)
            raise
        finally:
            self._busy.discard(worker)
        if answer[2] > QUICK_SECONDS or answer[0] in (STARVED, FAILED):
            # it has a lower priority for ever, or much memory
            await self._end(worker)
        else:
            self._keep(worker)
        return answer

    def _take_idle(self) -> _Worker | None:
        """Return an idle worker that has not been killed meanwhile, if there is one."""
        while self._idle:
            worker = self._idle.pop()
            if not worker.reader.at_eof() and not worker.reader.exception():
                return worker
            worker.writer.close()
        return None

    def _keep_started(self, starting: asyncio.Task[_Worker]) -> None:
        """Store the worker that a task has started, if it succeeded."""
        if not starting.cancelled() and not starting.exception():
            self._keep(starting.result())

    def _keep(self, worker: _Worker) -> None:
        """Store a worker for other work."""
        worker.idle = time.monotonic()
        self._idle.append(worker)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """End the workers that have been idle for IDLE_SECONDS."""
        self._sweeping = None
        loop, now = asyncio.get_running_loop(), time.monotonic()
        old = [worker for worker in self._idle if now - worker.idle >= IDLE_SECONDS]
        self._idle = [worker for worker in self._idle if now - worker.idle < IDLE_SECONDS]
        self._ending = [loop.create_task(self._end(worker)) for worker in old]
        if self._idle:
            self._sweeping = loop.call_later(IDLE_SECONDS, self._sweep)

    async def _start(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> _Worker:
        """Start a worker. If the caller is cancelled meanwhile, the worker is kept for other work."""
        models = [encode(one) for one in arguments if hasattr(one, "reference")]
        starting = asyncio.create_task(self._fork([work.__module__], models))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep_started)
            raise

    async def _fork(self, modules: list[str], models: list[bytes]) -> _Worker:
        """Let the template fork a worker."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = await self._order(("fork", modules, models), theirs.fileno())
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        return _Worker(pid, reader, writer)

    async def _end(self, worker: _Worker) -> int:
        """Kill a worker, and return its exit code."""
        worker.writer.close()
        code: int = await asyncio.shield(asyncio.ensure_future(self._order(("end", worker.pid))))
        return code

    async def _order(self, order: tuple[Any, ...], *descriptors: int) -> Any:
        """Send an order to the template, and return its answer.

        The template is started if it does not run, except to end a worker, which has ended with it. Raises
        ConnectionError if it dies twice.
        """
        async with self._ordering:
            if self._template:
                with suppress(ConnectionError):  # it was killed
                    return await self._send(self._template[1], order, descriptors)
            if order[0] == "end":
                return -signal.SIGKILL
            self._template = _start_template()
            return await self._send(self._template[1], order, descriptors)

    async def _send(self, control: socket.socket, order: tuple[Any, ...], descriptors: Sequence[int]) -> Any:
        """Send an order to the running template, and return its answer. Raises ConnectionError."""
        message, loop = frame(encode(order)), asyncio.get_running_loop()
        try:
            socket.send_fds(control, [message[:1]], descriptors)
            await loop.sock_sendall(control, message[1:])
            head = await self._received(LENGTH_BYTES)
            return decode(await self._received(int.from_bytes(head, "big")))
        except OSError as error:
            assert self._template
            process, self._template = self._template[0], None
            control.close()
            process.kill()
            await asyncio.to_thread(process.wait)
            raise ConnectionError("the process that forks workers has died") from error

    async def _received(self, count: int) -> bytes:
        """Read a number of bytes from the template."""
        assert self._template
        data = b""
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self._template[1], count - len(data))
            if not part:
                raise ConnectionResetError
            data += part
        return data


async def run_work(
    workers: Workers | None,
    work: Callable[..., Slices[T]],
    *arguments: Any,
    deadline: float,
    characters: int,
    inline: int = SMALL,
) -> T:
    """Run work where it harms nobody: short work here, long work in a worker, or in slices without workers.

    workers: workers of the server; None: there are none, as in a command.
    work: generator function of a module.
    arguments: arguments of the work.
    deadline: latest time, of time.monotonic().
    characters: length of the text.
    inline: largest length of work that runs here.

    Raises what `Workers.run` and the work raise.
    """
    if characters <= inline:
        return at_once(work(*arguments))
    if characters <= SMALL or workers is None or not workers.usable:
        return await in_slices(work(*arguments), deadline)
    return await workers.run(work, *arguments, deadline=deadline, characters=characters)


def _start_template() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process that forks workers, without secrets of the server in its environment."""
    ours, theirs = socket.socketpair()
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.defpath}
    # a process with one thread may fork
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.schedule.worker", str(theirs.fileno())],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the server
        )
    ours.setblocking(False)
    return process, ours


def _error_of(name: str, message: str) -> Exception:
    """Return the exception in the answer of a worker."""
    if name == STARVED:
        return TooLarge(TOO_MUCH_MEMORY)
    if name == FAILED:
        return RuntimeError(f"work failed in a worker:\n{message}")
    kind = find_class(name)
    return kind(message) if issubclass(kind, ConvoyError) else RuntimeError(message)


def _loop_time(deadline: float) -> float | None:
    """Return a deadline of time.monotonic() in the time of the event loop; None: no deadline."""
    if deadline == float("inf"):
        return None
    return deadline - time.monotonic() + asyncio.get_running_loop().time()
