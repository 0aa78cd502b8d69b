"""Connections of a front end to the engine processes: choice of a process, and retry if one dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.errors import DeviceLost, Stopping, Unavailable
from engine.repository.ipc.frames import FrameConnection
from engine.repository.ipc.messages import (
    MODEL_NUMBERS,
    OPTION_NUMBERS,
    Cancel,
    CertainTokens,
    EngineLoad,
    FromEngine,
    GroupRequest,
    JobFailure,
    JobResult,
    NumberTable,
    Offer,
    OfferedModel,
    Order,
    OrderResult,
    UsedModel,
    UsedOptions,
    error_of,
    result_of,
)
from engine.schedule.stats import Stats
from engine.types import DecodeOptions, Outcome, Request

logger = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 0.05  # seconds between two attempts to connect
MAX_TRIES: Final = 2  # a request that kills an engine process must not kill all of them
NUMBERED_OPTIONS: Final = 8  # a group with more distinct options sends them without numbers
RETRY_SECONDS: Final = 1.0  # seconds that a restart of an engine process takes, about
LOST: Final = "the engine of this model has gone and comes back: send the request again"
RETRIED_CODES: Final = (Stopping.code, DeviceLost.code)  # another engine process may serve the request


@dataclass(eq=False, slots=True)
class PendingGroup:
    """Requests with one deadline, by job, until they are answered.

    model: name of the model.
    digest: digest of the bundle that made the tokens.
    follow_up: parameter of `Engine.submit`.
    tried: connections that the requests were sent to.
    streamed: whether a caller has received certain tokens.
    """

    model: str
    digest: str
    requests: dict[int, Request]
    follow_up: bool
    tried: frozenset[EngineConnection] = frozenset()
    streamed: bool = False


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

    def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        for connection in self.connections:
            connection.close()

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
        connection = min(candidates, key=lambda candidate: candidate.utilization(model))
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


class EngineConnection:
    """The connection to one engine process, which may die and restart.

    connected: whether the process is connected and has sent its offer.
    models: offered models by name; empty while disconnected.
    loads: last EngineLoad of each model; empty while disconnected.
    """

    def __init__(self, path: Path, connections: EngineConnections) -> None:
        self._path, self._connections = path, connections
        self.models: dict[str, OfferedModel] = {}
        self.connected = False
        self.loads: dict[str, EngineLoad] = {}
        self._unreported = Counter[str]()  # requests sent minus answered since the last EngineLoad
        self._frames: FrameConnection | None = None
        self._lost = asyncio.Event()
        self._numbers = itertools.count()
        self._groups: dict[int, PendingGroup] = {}
        self._models, self._options = NumberTable(MODEL_NUMBERS), NumberTable(OPTION_NUMBERS)
        self._orders: dict[int, asyncio.Future[None]] = {}

    async def keep_connected(self) -> None:
        """Connect, and reconnect whenever the connection is lost. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            frames = FrameConnection(FromEngine, self._receive, self._on_lost)
            try:
                await loop.create_unix_connection(lambda frames=frames: frames, str(self._path))  # type: ignore[misc]
            except OSError:
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            self._frames = frames
            await self._lost.wait()

    def close(self) -> None:
        if self._frames:
            self._frames.close()

    def offers(self, model: str, digest: str) -> bool:
        """Return whether the process decodes tokens of a bundle, see `EngineConnections.offers`."""
        offered = self.models.get(model)
        return offered is not None and digest in offered.digests

    def utilization(self, model: str) -> float:
        """Return the number of queued and running requests of a model, per slot."""
        load = self.loads.get(model)
        if load is None:
            return float(self._unreported[model])
        stats = load.stats
        busy = stats.waiting_requests + sum(stats.active) + self._unreported[model]
        return busy / max(1, sum(stats.slots))

    def submit(self, group: PendingGroup) -> int:
        """Send requests as a group; returns the number of the group."""
        assert self._frames
        number = next(self._numbers)
        self._groups[number] = group
        self._unreported[group.model] += len(group.requests)
        requests = list(group.requests.values())
        # a group numbers its jobs from 0, also when the requests are retried
        group.requests = dict(enumerate(requests))
        distinct: dict[DecodeOptions, int] = {}  # index of each
        chosen = [distinct.setdefault(request.options, len(distinct)) for request in requests]
        by_number = len(distinct) <= NUMBERED_OPTIONS
        message = GroupRequest(
            number,
            self._number_of_model(group.model, group.digest),
            [request.source for request in requests],
            [self._number_of(options) if by_number else options for options in distinct],
            chosen,
            None if requests[0].deadline == math.inf else requests[0].deadline,
            any(request.progress for request in requests),
            group.follow_up,
        )
        self._frames.send(message)
        return number

    def remove_job(self, number: int, job: int) -> Request | None:
        """Remove a job of a group; returns its request, None if it is unknown."""
        group = self._groups.get(number)
        request = group.requests.pop(job, None) if group else None
        if group and not group.requests:
            del self._groups[number]
        return request

    def send(self, message: Any) -> None:
        """Send a message if the process is connected."""
        if self._frames:
            self._frames.send(message)

    async def execute(self, verb: str, name: str) -> None:
        """Have the engine process execute an order for a model. Raises the error of the order."""
        number = next(self._numbers)
        self._orders[number] = done = asyncio.get_running_loop().create_future()
        self.send(Order(number, verb, name))
        try:
            await done
        finally:
            self._orders.pop(number, None)

    def _number_of_model(self, model: str, digest: str) -> int:
        number, is_new = self._models.number_of((model, digest))
        if is_new:
            self.send(UsedModel(number, model, digest))
        return number

    def _number_of(self, options: DecodeOptions) -> int:
        number, is_new = self._options.number_of(options)
        if is_new:
            self.send(UsedOptions(number, options))
        return number

    def _receive(self, messages: list[FromEngine]) -> None:
        """Handle the messages of one frame."""
        for message in messages:
            if isinstance(message, JobResult):
                self._reply(message.group, message.job, result_of(message))
            elif isinstance(message, CertainTokens):
                self._report(message)
            elif isinstance(message, EngineLoad):
                self.loads[message.model] = message
                self._unreported[message.model] = 0
            elif isinstance(message, JobFailure):
                self._fail(message)
            elif isinstance(message, Offer):
                self.models = {model.info.name: model for model in message.models}
                self.connected = True
                self._connections.changed.set()
            else:
                self._finish_order(message)
        if self._frames:  # callbacks of the replies may have sent further requests
            self._frames.flush_soon()

    def _reply(self, number: int, job: int, outcome: Outcome) -> None:
        """Answer a job of a group, unless it was cancelled."""
        group = self._groups.get(number)
        request = self.remove_job(number, job)
        if group and request:
            self._unreported[group.model] -= 1
            self._connections.reply(request, outcome)

    def _report(self, message: CertainTokens) -> None:
        """Pass certain tokens of a job to its caller."""
        group = self._groups.get(message.group)
        request = group.requests.get(message.job) if group else None
        if group and request and request.progress:
            group.streamed = True
            request.progress(message.tokens)

    def _fail(self, message: JobFailure) -> None:
        """Retry a failed job, or answer it with its error. Job -1 is the whole group."""
        group = self._groups.get(message.group)
        if group is None:
            return
        error = error_of(message.code, message.message, message.retry_after)
        for job in list(group.requests) if message.job < 0 else [message.job]:
            request = self.remove_job(message.group, job)
            self._unreported[group.model] -= request is not None
            if request and message.code in RETRIED_CODES:  # retried alone, as a group of one job
                self._connections.retry(replace(group, requests={0: request}), error)
            elif request:
                self._connections.reply(request, error)

    def _finish_order(self, message: OrderResult) -> None:
        """End the wait for an order, with its error if it failed."""
        done = self._orders.get(message.number)
        if done and not done.done():
            if message.code:
                done.set_exception(error_of(message.code, message.message))
            else:
                done.set_result(None)

    def _on_lost(self) -> None:
        """Reset the state of a lost process, and retry its requests or answer them with an error."""
        self._frames = None
        self.models, self.loads, self.connected = {}, {}, False
        self._unreported.clear()
        self._models.clear()
        self._options.clear()
        for done in self._orders.values():
            if not done.done():
                done.set_exception(Unavailable(LOST, RETRY_SECONDS))
        self._connections.changed.set()
        self._lost.set()
        for number, group in list(self._groups.items()):
            self._connections.retry(group, Unavailable(LOST, RETRY_SECONDS))
            self._groups.pop(number, None)  # removed last: `RemoteEngine.stop` waits while there are groups
