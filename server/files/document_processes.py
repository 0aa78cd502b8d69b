"""Processes that parse and write files for the server, so that a file that hangs can be killed.

Processes start with the first file, and end after IDLE_SECONDS without files.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeVar

from documents.options import USUAL_FILE, FileOptions
from documents.spans import Segment
from documents.worker import LENGTH_BYTES, MAX_PROCESSOR_SECONDS, encode_message, from_lines, to_lines
from engine.api import DeadlineExceeded, InvalidRequest, Overloaded, Places, Slices, TooLarge, in_slices

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

MAX_PROCESSES: Final = 2  # processes for large files
SMALL_BYTES: Final = 65_536  # smaller files have a process of their own, and need not wait for large ones
SMALL_SECONDS: Final = 0.25  # processor time in that process; a file that takes longer counts as large
MAX_OWNER_FILES: Final = 8  # files of one owner that wait for a process or use one
IDLE_SECONDS: Final = 60.0  # an unused process ends after this time
MEMORY_NAME: Final = "memory.tmx"
MAX_ANSWER_BYTES: Final = 1 << 28
LIMITED: Final = -signal.SIGPROF if sys.platform != "win32" else None  # exit code after SMALL_SECONDS
ENDED: Final = f"the file takes more than {MAX_PROCESSOR_SECONDS} s or too much memory to read: split it"


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """A parsed file.

    name: name of the file.
    data: content of the file.
    segments: passages of prose in the file, in order.
    options: options with which it was parsed.
    notices: sentences for the user.
    known: translation of each segment from a translation memory, without text where it has none; empty: no
        memory was asked.
    """

    name: str
    data: bytes
    segments: list[Segment]
    options: FileOptions = USUAL_FILE
    notices: tuple[str, ...] = ()
    known: Sequence[Segment] = ()


class _TakesLong(Exception):
    """A small file takes longer than the others can wait."""


class DocumentProcesses:
    """Processes that parse and write files, shared fairly by owners. For one event loop."""

    def __init__(self, processes: int = MAX_PROCESSES) -> None:
        self._idle: list[tuple[Process, float]] = []
        self._places, self._small_places = Places(processes, max(1, processes - 1)), Places(1)
        self._owners: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of files that wait for a process."""
        return self._places.waiting + self._small_places.waiting

    async def read(
        self,
        name: str,
        data: bytes,
        owner: str,
        deadline: float,
        options: FileOptions = USUAL_FILE,
    ) -> OpenDocument:
        """Parse a file.

        name: name of the file; its ending selects the format.
        data: content of the file.
        owner: name of the visitor whose share of the processes is used.
        deadline: latest time, of time.monotonic().
        options: options for reading and writing the file.

        Raises InvalidRequest, TooLarge, Overloaded when the owner has too many files in work, and
        DeadlineExceeded.
        """
        head = {"verb": "read", "name": name, "options": asdict(options)}
        answer, body = await self._run(head, data, owner, deadline)
        segments = await in_slices(_collect(from_lines(body)), deadline)
        return OpenDocument(name, data, segments, options, tuple(answer["notices"]))

    async def write(
        self,
        document: OpenDocument,
        segments: Sequence[Segment],
        owner: str,
        deadline: float,
        languages: tuple[str, str] = ("", ""),
    ) -> bytes:
        """Return the content of a file with its segments replaced.

        document: parsed file.
        segments: translated prose, in the document's order.
        owner: name of the visitor whose share of the processes is used.
        deadline: latest time, of time.monotonic().
        languages: codes of source and target, for a file with both.

        Raises what `read` raises.
        """
        head = {"verb": "write", "name": document.name, "options": asdict(document.options)}
        return (await self._run_with(head, document.data, segments, owner, deadline, languages))[1]

    async def recall(
        self,
        document: OpenDocument,
        memory: bytes,
        owner: str,
        deadline: float,
        languages: tuple[str, str],
    ) -> OpenDocument:
        """Return a document with the translations that a translation memory has of its segments.

        document: parsed file.
        memory: content of a .tmx file.
        owner, deadline, languages: parameters of `write`.

        Raises what `read` raises.
        """
        head = {"verb": "recall", "name": MEMORY_NAME, "options": {}}
        answer, body = await self._run_with(head, memory, document.segments, owner, deadline, languages)
        known = await in_slices(_collect(from_lines(body)), deadline)
        return replace(document, known=known, notices=(*document.notices, *answer["notices"]))

    async def close(self) -> None:
        """End the idle processes; busy ones end with their requests."""
        if self._sweeping:
            self._sweeping.cancel()
        while self._idle:
            await _end(self._idle.pop()[0])

    async def _run_with(
        self,
        head: dict[str, Any],
        data: bytes,
        segments: Sequence[Segment],
        owner: str,
        deadline: float,
        languages: tuple[str, str],
    ) -> tuple[dict[str, Any], bytes]:
        """Let a process handle a message with a file and segments; see `_run`."""
        head |= {"file": len(data), "source": languages[0], "target": languages[1]}
        lines = await in_slices(_collect(to_lines(segments)), deadline)
        return await self._run(head, b"".join([data, *lines]), owner, deadline)

    async def _run(
        self, head: dict[str, Any], body: bytes, owner: str, deadline: float
    ) -> tuple[dict[str, Any], bytes]:
        """Let a process handle a message, in the owner's turn; return head and content of its answer."""
        if self._owners[owner] >= MAX_OWNER_FILES:
            raise Overloaded(f"{MAX_OWNER_FILES} of your files are in work: try again later", 5.0)
        self._owners[owner] += 1
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                answer, content = await self._run_in_turn(head, body, owner)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while a file was read or written") from None
        finally:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
        if answer.get("error") == "swollen":
            raise TooLarge(answer["message"])
        if answer.get("error"):
            raise InvalidRequest(f"Invalid request: {answer['message']}")
        return answer, content

    async def _run_in_turn(
        self, head: dict[str, Any], body: bytes, owner: str
    ) -> tuple[dict[str, Any], bytes]:
        """Let a process handle a message: a small file that takes long is begun again as a large one."""
        if len(body) <= SMALL_BYTES:
            with suppress(_TakesLong):
                async with self._small_places.turn(owner), self._process() as process:
                    return await _exchange(process, encode_message(head | {"seconds": SMALL_SECONDS}, body))
        async with self._places.turn(owner), self._process() as process:
            return await _exchange(process, encode_message(head, body))

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[Process]:
        """Provide a process; kill it after any error."""
        self._idle = [idle for idle in self._idle if idle[0].returncode is None]  # one may have been killed
        process = self._idle.pop()[0] if self._idle else await _start_process()
        try:
            yield process
        except BaseException:
            await asyncio.shield(_end(process))
            raise
        self._return_to_idle(process)

    def _return_to_idle(self, process: Process) -> None:
        self._idle.append((process, time.monotonic()))
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Kill processes that have been idle for IDLE_SECONDS."""
        self._sweeping = None
        now = time.monotonic()
        rest = [(process, since) for process, since in self._idle if now - since < IDLE_SECONDS]
        for process, since in self._idle:
            if now - since >= IDLE_SECONDS:
                _kill(process)
        self._idle = rest
        if rest:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)


def _collect(items: Iterable[Item]) -> Slices[list[Item]]:
    """Collect items in a list, in slices."""
    collection = []
    for item in items:
        collection.append(item)
        yield
    return collection


async def _start_process() -> Process:
    """Start a process that reads and writes files."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.defpath}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "documents.worker"),
        stdin=PIPE,
        stdout=PIPE,
        env=environment,  # without secrets of the server
        start_new_session=True,  # Ctrl-C reaches only the server
    )


async def _exchange(process: Process, message: bytes) -> tuple[dict[str, Any], bytes]:
    """Send a message to a process, and return its answer.

    Raises TooLarge, _TakesLong if the message has a shorter time, and RuntimeError for a bug.
    """
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(message)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        head = json.loads(await process.stdout.readexactly(length))
        if head["size"] > MAX_ANSWER_BYTES:
            raise TooLarge(ENDED)
        return head, await process.stdout.readexactly(head["size"])
    except (asyncio.IncompleteReadError, ConnectionError):  # a limit killed the process, or it failed
        code = await process.wait()
        if code == LIMITED:
            raise _TakesLong from None
        if code > 0 and code != errno.ENOMEM:
            raise RuntimeError(f"a process for files failed with code {code}") from None
        raise TooLarge(ENDED) from None


async def _end(process: Process) -> None:
    _kill(process)
    await process.wait()


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()


def _loop_time(deadline: float) -> float | None:
    """Return a deadline of time.monotonic() in the time of the event loop; None: no deadline."""
    return deadline - time.monotonic() + asyncio.get_running_loop().time() if deadline < math.inf else None
