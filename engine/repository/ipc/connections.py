"""Connections of a front end to the engine processes: choice of a process, and retry if one dies or stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from engine.errors import Unavailable
from engine.repository.ipc.connection import LOST, RETRY_SECONDS, EngineConnection
from engine.repository.ipc.groups import TICK_SECONDS, PendingGroup
from engine.repository.ipc.messages import Cancel, OfferedModel
from engine.schedule.stats import Stats
from engine.types import Outcome, Request

logger = logging.getLogger(__name__)

MAX_TRIES: Final = 2  # a request that kills an engine process must not kill all of them


class EngineConnections:
    """Connections to all engine processes. For the event loop's thread, except `call_soon` and `execute`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """paths: paths of the sockets, one for each engine process."""
        self.connections = [EngineConnection(path, self) for path in paths]
        self.changed = asyncio.Event()  # set when an offer was received or lost
        # connection, number of the group and number of the job of each unanswered request
        self._sent: dict[Request, tuple[EngineConnection, int, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Connect in this event loop, and reconnect when a process has restarted."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._tasks = [self._loop.create_task(connection.keep_connected()) for connection in self.connections]
        self._tasks.append(self._loop.create_task(self._tick()))

    def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        for connection in self.connections:
            connection.close()

    async def _tick(self) -> None:
        """Look for stopped processes, and move their requests. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for connection in self.connections:
                connection.tick()

    def call_soon(self, call: Callable[..., object], *values: object) -> None:
        """Call a function in the event loop; at once if this is the loop's thread."""
        if threading.get_ident() == self._thread:
            call(*values)
        elif self._loop:
            try:
                self._loop.call_soon_threadsafe(call, *values)
            except RuntimeError:  # the loop is closed, so that nothing awaits the call
                logger.debug("a call came after its event loop was closed")

    def execute(self, order: str, name: str) -> None:
        """Have every engine process execute an order, one after the other. Not for the event loop's thread.

        order: verb of `engine.repository.ipc.orders`.
        name: name of the model.

        An error of the first process is raised at once; an error of another one after all have executed it.
        """
        assert self._loop
        asyncio.run_coroutine_threadsafe(self._execute_all(order, name), self._loop).result()

    async def _execute_all(self, verb: str, name: str) -> None:
        """Have every connected process execute an order, see `execute`."""
        connected = [connection for connection in self.connections if connection.connected]
        if not connected:
            raise Unavailable(LOST, RETRY_SECONDS)
        errors = list[Exception]()
        for connection in connected:
            try:
                await connection.execute(verb, name)
            except Exception as error:
                if connection is connected[0]:
                    raise
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def connected(self) -> bool:
        """Whether any process is connected and has sent its offer."""
        return any(connection.connected for connection in self.connections)

    def offered(self) -> dict[str, list[OfferedModel]]:
        """Return the offers of all engine processes by name of the model."""
        models: dict[str, list[OfferedModel]] = {}
        for connection in self.connections:
            for model in list(connection.models.values()):
                models.setdefault(model.info.name, []).append(model)
        return models

    def offers(self, model: str, digest: str) -> bool:
        """Return whether any engine process decodes tokens of a bundle.

        model: name of the model.
        digest: digest of the bundle.
        """
        return any(connection.offers(model, digest) for connection in self.connections)

    def unanswered(self, model: str, digest: str) -> list[Request]:
        """Return the requests for a bundle that are not answered yet. For any thread."""
        groups = (group for connection in self.connections for group in list(connection._groups.values()))
        of_bundle = (group for group in groups if (group.model, group.digest) == (model, digest))
        return [request for group in of_bundle for request in list(group.requests.values())]

    def stats(self) -> dict[str, list[Stats]]:
        """Return the last statistics of each engine, by name of the model."""
        stats: dict[str, list[Stats]] = {}
        for connection in self.connections:
            for load in list(connection.loads.values()):
                stats.setdefault(load.model, []).append(load.stats)
        return stats

    def submit(self, group: PendingGroup) -> None:
        """Send a group to the least busy engine that was not tried. Raises Unavailable if there is none."""
        model, digest, tried = group.model, group.digest, group.tried
        candidates = [c for c in self.connections if c not in tried and c.offers(model, digest)]
        if not candidates:
            raise Unavailable(LOST, RETRY_SECONDS)
        connection = min(candidates, key=lambda one: (one.silence.long, one.utilization(model)))
        group.tried |= {connection}
        number = connection.submit(group)
        self._sent |= {request: (connection, number, job) for job, request in group.requests.items()}

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel requests. They get no reply."""
        jobs: dict[tuple[EngineConnection, int], list[int]] = {}
        for request in requests:
            request.cancelled = True
            if request in self._sent:
                connection, number, job = self._sent.pop(request)
                connection.remove_job(number, job)
                jobs.setdefault((connection, number), []).append(job)
        for (connection, number), numbers in jobs.items():
            connection.send(Cancel(number, numbers))

    def reply(self, request: Request, outcome: Outcome) -> None:
        """Answer a request, unless it was cancelled."""
        if self._sent.pop(request, None):
            request.reply(outcome)

    def can_move(self, group: PendingGroup) -> bool:
        """Return whether another process that runs may answer the requests of a stopped one."""
        running = (c for c in self.connections if c not in group.tried and not c.silence.long)
        another = any(c.offers(group.model, group.digest) for c in running)
        return another and not group.streamed and len(group.tried) < MAX_TRIES

    def retry(self, group: PendingGroup, outcome: Outcome) -> None:
        """Send a group to another engine process, unless some of it was streamed or MAX_TRIES have failed.

        group: requests that a process has not answered.
        outcome: answer to the requests if they are not sent again.
        """
        if not group.streamed and len(group.tried) < MAX_TRIES:
            group.follow_up = True  # the requests were accepted before
            try:
                self.submit(group)
            except Unavailable:
                logger.debug("no other engine has %s", group.model)
            else:
                return
        for request in list(group.requests.values()):
            self.reply(request, outcome)
