"""The connection of a front end to one engine process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from engine.errors import DeadlineExceeded, DeviceLost, Stopping, Unavailable
from engine.repository.ipc.frames import FrameConnection
from engine.repository.ipc.groups import PendingGroup, Silence
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
    Ping,
    UsedModel,
    UsedOptions,
    error_of,
    result_of,
)
from engine.types import DecodeOptions, Outcome, Request

logger = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 0.05  # seconds between two attempts to connect
NUMBERED_OPTIONS: Final = 8  # a group with more distinct options sends them without numbers
RETRY_SECONDS: Final = 1.0  # seconds that a restart of an engine process takes, about
LOST: Final = "the engine of this model has gone and comes back: send the request again"
LATE: Final = "the deadline passed, and the engine process does not respond"
# ticks without a message after which an order fails; a process that loads a model answers Pings more slowly
ORDER_TICKS: Final = 40
RETRIED_CODES: Final = (Stopping.code, DeviceLost.code)  # another engine process may serve the request


class Callers(Protocol):
    """All connections of a front end, as one connection uses them.

    changed: event that is set when an offer was received or lost.
    """

    changed: asyncio.Event

    def reply(self, request: Request, outcome: Outcome) -> None:
        """Answer a request, unless it was cancelled."""

    def can_move(self, group: PendingGroup) -> bool:
        """Return whether another process that runs may answer the requests of a stopped one."""

    def retry(self, group: PendingGroup, outcome: Outcome) -> None:
        """Send a group to another engine process, or answer its requests."""


class EngineConnection:
    """The connection to one engine process, which may die and restart.

    connected: whether the process is connected and has sent its offer.
    models: offered models by name; empty while disconnected.
    loads: last EngineLoad of each model; empty while disconnected.
    silence: silence of the process, which may be stopped.
    """

    def __init__(self, path: Path, connections: Callers) -> None:
        self._path, self._connections = path, connections
        self.models: dict[str, OfferedModel] = {}
        self.connected = False
        self.loads: dict[str, EngineLoad] = {}
        self.silence = Silence()
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
        """Return whether the process decodes tokens of a bundle (`EngineConnections.offers`)."""
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

    def tick(self) -> None:
        """Send a Ping if an answer is due. Move the requests of a stopped process, or end them if late.

        An order for a stopped process fails with its connection, so that the process settles a late reload.
        """
        if self.silence.tick(expecting=bool(self._groups or self._orders)):
            self.send(Ping())
        if self._orders and self.silence.ticks >= ORDER_TICKS and self._frames:
            logger.warning("an engine process does not respond: its orders fail")
            self._frames.close()
        for number, group in list(self._groups.items()) if self.silence.long else ():
            if group.late:
                self._withdraw(number, group)
                for request in list(group.requests.values()):
                    self._connections.reply(request, DeadlineExceeded(LATE))
            elif self._connections.can_move(group):
                logger.warning("an engine process does not respond: another one answers its requests")
                self._withdraw(number, group)
                self._connections.retry(group, Unavailable(LOST, RETRY_SECONDS))

    def _withdraw(self, number: int, group: PendingGroup) -> None:
        """Cancel a group, which the process drops when it continues."""
        self._groups.pop(number, None)
        self._unreported[group.model] -= len(group.requests)
        self.send(Cancel(number, list(group.requests)))

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
        self.silence.ticks = 0
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
            elif isinstance(message, OrderResult):
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
        self.models, self.loads, self.connected, self.silence.ticks = {}, {}, False, 0
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
