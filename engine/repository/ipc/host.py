"""Offers the models of a service to front ends that connect to a Unix socket.

A group of requests keeps its model loaded until it is answered. Requests of a front end that disconnects are
cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from engine.errors import ConvoyError, Unavailable
from engine.repository.budget import State, Ticket
from engine.repository.ipc.frames import FrameConnection
from engine.repository.ipc.messages import (
    MODEL_NUMBERS,
    OPTION_NUMBERS,
    Cancel,
    CertainTokens,
    EngineLoad,
    FromEngine,
    GroupRequest,
    Offer,
    OfferedModel,
    Order,
    OrderResult,
    Ping,
    Pong,
    ToEngine,
    UsedModel,
    UsedOptions,
    reply_of,
)
from engine.repository.ipc.orders import Orders
from engine.repository.loading import LoadedModel
from engine.repository.service import Service
from engine.schedule.aio import INLINE_JOBS
from engine.schedule.any_engine import AnyEngine, SteppedEngine
from engine.schedule.slices import in_slices, one_slice
from engine.schedule.stats import Stats
from engine.types import DecodeOptions, Outcome, Request

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0  # seconds between two canaries of a model
LOAD_SECONDS: Final = 0.005  # least seconds between two EngineLoads of a model that are sent with results
OTHER_BUNDLE: Final = "the bundle of this model was replaced: send the request again"


class EngineHost:
    """Server for front ends, in the event loop of a process with the threads of the engines."""

    def __init__(self, service: Service) -> None:
        """service: started service."""
        self.service, self.orders = service, Orders(service)
        entries = service.repository_entries().items()
        remote = {info.name for info in service.models() if info.remote}
        self._unproven = {name for name, entry in entries if entry.state is State.LOADED} - remote
        self._front_ends = set[_FrontEnd]()
        self._offer = Offer([])
        self._loads: dict[str, Stats] = {}

    @property
    def connected(self) -> bool:
        """Whether any front end is connected."""
        return bool(self._front_ends)

    async def listen(self, path: Path) -> asyncio.Server:
        """Start to accept front ends at a path."""
        path.unlink(missing_ok=True)  # a killed process leaves its socket
        return await asyncio.get_running_loop().create_unix_server(lambda: _FrontEnd(self).frames, str(path))

    async def prove_models(self) -> None:
        """Answer a canary by each model loaded at the start, and offer the models that can."""
        for name in sorted(self._unproven & {info.name for info in self.service.models()}):
            try:
                await self.service.canary(name)
                self._unproven.discard(name)
            except ConvoyError as error:
                logger.warning("%s is not ready: %s", name, error)
        self.announce()

    async def retry_models(self) -> None:
        """Repeat the canaries of models that could not answer, until all have answered."""
        while self._unproven:
            await asyncio.sleep(RETRY_SECONDS)
            await self.prove_models()

    def announce(self) -> None:
        """Send the offered models and the load of the engines to all front ends, if they have changed."""
        entries, older = self.service.repository_entries(), self.orders.older
        models = list[OfferedModel]()
        for facts in self.service.repository.facts():
            name, digests = facts.info.name, [facts.info.digest, *older.get(facts.info.name, {})]
            offered = [] if name in self._unproven else digests
            models.append(OfferedModel(str(facts.path), facts.info, offered, entries[name]))
        if (offer := Offer(models)) != self._offer:
            self._offer = offer
            for front_end in self._front_ends:
                front_end.frames.send(offer)
        for name, stats in self.service.stats().items():
            if stats != self._loads.get(name):
                self._loads[name] = stats
                for front_end in self._front_ends:
                    front_end.frames.send(EngineLoad(name, stats))

    def add(self, front_end: _FrontEnd) -> None:
        """Add a front end, and send it the offered models."""
        self._front_ends.add(front_end)
        front_end.frames.send(self._offer)
        for name, stats in self.service.stats().items():
            front_end.frames.send(EngineLoad(name, stats))

    def remove(self, front_end: _FrontEnd) -> None:
        """Remove a front end that has disconnected."""
        self._front_ends.discard(front_end)

    def engine_of(self, model: LoadedModel, digest: str) -> AnyEngine:
        """Return the engine that decodes tokens of a bundle; its replies are sent after each step.

        model: current model.
        digest: digest of the bundle that made the tokens, possibly an older one.

        Raises Unavailable if that bundle is not in memory any more.
        """
        if model.info.digest != digest:
            older = self.orders.older.get(model.info.name, {}).get(digest)
            if older is None:
                raise Unavailable(OTHER_BUNDLE)
            model = older
        engine = cast(SteppedEngine, model.engine)
        engine.after_step = self._flush_all
        return engine

    def _flush_all(self) -> None:
        """Send waiting replies to all front ends. Runs in an engine's thread."""
        for front_end in list(self._front_ends):
            front_end.flush()


@dataclass(eq=False, slots=True)
class _Flight:
    """A group in flight.

    options: decoding options of each job.
    requests: unanswered requests by job; empty before the model is loaded.
    cancelled: jobs that were cancelled before the model was loaded.
    """

    group: GroupRequest
    model: UsedModel
    options: list[DecodeOptions]
    ticket: Ticket
    engine: AnyEngine | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)


class _FrontEnd:
    """One front end: the models and options that it has numbered, and its groups in flight."""

    def __init__(self, host: EngineHost) -> None:
        self._host, self._repository, self._loop = host, host.service.repository, asyncio.get_running_loop()
        self._models: dict[int, UsedModel] = {}
        self._options: dict[int, DecodeOptions] = {}
        self._flights: dict[int, _Flight] = {}
        self._lock = threading.Lock()  # guards the flights, their requests and the outbox
        # messages for the next `flush`, and the group of each model that was answered last
        self._outbox, self._replied = list[FromEngine](), dict[str, _Flight]()
        self._tokens: dict[tuple[int, int], CertainTokens] = {}
        self._load_sent_at: dict[str, float] = {}  # time of the last EngineLoad, by model
        self._tasks = set[asyncio.Task[None]]()
        self._disconnected = False
        self.frames = FrameConnection(ToEngine, self._receive, self._on_lost)
        host.add(self)

    def _receive(self, messages: list[ToEngine]) -> None:
        """Handle the messages of one frame."""
        for message in messages:
            if isinstance(message, GroupRequest):
                self._acquire_model(message)
            elif isinstance(message, Cancel):
                self._cancel(message)
            elif isinstance(message, UsedOptions):
                self._options[_bounded(message.number, OPTION_NUMBERS)] = message.options
            elif isinstance(message, UsedModel):
                self._models[_bounded(message.number, MODEL_NUMBERS)] = message
            elif isinstance(message, Ping):
                self.frames.send(Pong())
            else:
                self._start_task(self._execute(message))

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task, with a reference to it until it ends."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # groups

    def _acquire_model(self, group: GroupRequest) -> None:
        """Submit a group as soon as its model is loaded."""
        if len(group.sources) != len(group.chosen) or group.number in self._flights:
            raise ValueError("an invalid group of requests")
        # resolved now, as later messages may reuse the numbers
        options = [o if isinstance(o, DecodeOptions) else self._options[o] for o in group.options]
        model, chosen = self._models[group.model], [options[index] for index in group.chosen]
        flight = self._flights[group.number] = _Flight(group, model, chosen, Ticket((model.name,)))
        try:
            future = self._repository.acquire(flight.ticket)
        except ConvoyError as error:
            self._refuse(flight, error)
            return
        if future is None:
            self._submit(flight, None)
        else:
            self._start_task(self._submit_later(flight, future))

    async def _submit_later(self, flight: _Flight, future: Future[Exception | None]) -> None:
        """Submit a group when its model is loaded, or refuse it at its deadline."""
        deadline = flight.group.deadline
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        await asyncio.wait([asyncio.wrap_future(future)], timeout=seconds)
        if self._flights.get(flight.group.number) is flight:
            self._submit(flight, future)

    def _submit(self, flight: _Flight, future: Future[Exception | None] | None) -> None:
        """Submit a group to the engine of its bundle, or refuse it if the model could not be loaded."""
        group, number = flight.group, flight.group.number
        deadline = math.inf if group.deadline is None else group.deadline
        for job, (source, options) in enumerate(zip(group.sources, flight.options, strict=True)):
            if job not in flight.cancelled:
                reply = partial(self._reply, flight, job)
                request = flight.requests[job] = Request(source, options, reply, deadline)
                if group.progress:
                    request.progress = partial(self._report_tokens, number, job)
        try:
            model = self._repository.claim_models(flight.ticket, future)[flight.model.name]
            flight.engine = self._host.engine_of(model, flight.model.digest)
            requests = list(flight.requests.values())
            if len(requests) <= INLINE_JOBS:
                flight.engine.submit(requests, follow_up=group.follow_up)
            else:
                submit = partial(flight.engine.submit, requests, follow_up=group.follow_up)
                self._start_task(self._submit_outside_loop(flight, submit))
        except ConvoyError as error:
            self._refuse(flight, error)

    async def _submit_outside_loop(self, flight: _Flight, submit: Callable[[], None]) -> None:
        """Submit a large group outside of the event loop."""
        try:
            await in_slices(one_slice(submit))
        except ConvoyError as error:
            if self._flights.get(flight.group.number) is flight:
                self._refuse(flight, error)

    def _refuse(self, flight: _Flight, error: ConvoyError) -> None:
        """Answer a whole group with an error."""
        self._finish(flight)
        self.frames.send(reply_of(flight.group.number, -1, error))

    def _finish(self, flight: _Flight) -> None:
        """Release the model of a group that has ended. For any thread."""
        with self._lock:
            in_flight = self._flights.get(flight.group.number) is flight
            if in_flight:
                del self._flights[flight.group.number]
        if in_flight:
            self._repository.release(flight.ticket)

    def _cancel(self, message: Cancel) -> None:
        """Cancel jobs of a group, and end the group if no job is left."""
        flight = self._flights.get(message.group)
        if flight is None:
            return
        if flight.engine is None:
            flight.cancelled.update(message.jobs)
            ended = flight.cancelled.issuperset(range(len(flight.group.sources)))
        else:
            with self._lock:
                cancelled = [flight.requests.pop(job) for job in message.jobs if job in flight.requests]
                ended = not flight.requests
            flight.engine.cancel(cancelled)
        if ended:
            self._finish(flight)

    def _on_lost(self) -> None:
        """Cancel all groups of the front end that has disconnected, and settle its reloads."""
        self._disconnected = True
        self._host.remove(self)
        for flight in list(self._flights.values()):
            if flight.engine:
                flight.engine.cancel(list(flight.requests.values()))
            self._finish(flight)
        self._host.orders.settle_all(self)

    # called by engines' threads

    def _reply(self, flight: _Flight, job: int, outcome: Outcome) -> None:
        """Put the outcome of a job into the outbox, unless the job was cancelled."""
        number = flight.group.number
        with self._lock:
            self._tokens.pop((number, job), None)
            if flight.requests.pop(job, None) is None:
                return
            self._outbox.append(reply_of(number, job, outcome))
            self._replied[flight.model.name] = flight
            ended = not flight.requests
        if ended:
            self._finish(flight)

    def _report_tokens(self, group: int, job: int, tokens: list[int]) -> None:
        """Store the certain tokens of a job until the next `flush`."""
        with self._lock:
            self._tokens[group, job] = CertainTokens(group, job, tokens)

    def flush(self) -> None:
        """Send the replies and tokens that wait."""
        if not (self._outbox or self._tokens):
            return
        with self._lock:
            outbox, self._outbox, tokens, self._tokens = self._outbox, [], self._tokens, {}
            replied, self._replied = self._replied, {}
        now = time.monotonic()
        for name, flight in replied.items():
            if now - self._load_sent_at.get(name, -math.inf) >= LOAD_SECONDS:
                assert flight.engine
                self._load_sent_at[name] = now
                outbox.append(EngineLoad(name, flight.engine.stats()))
        if not self.frames.slow:  # a slow front end gets newer tokens later
            outbox += tokens.values()
        self.frames.send_now(outbox)

    # orders

    async def _execute(self, order: Order) -> None:
        """Execute an order and send its result."""
        code = fault = ""
        try:
            await self._host.orders.execute(order.verb, order.name, self)
        except ConvoyError as error:
            code, fault = error.code, str(error)
        self._host.announce()
        if self._disconnected:
            self._host.orders.settle_all(self)
        else:
            self.frames.send(OrderResult(order.number, code, fault))


def _bounded(number: int, count: int) -> int:
    """Return a number of a message. Raises ValueError if it is out of range."""
    if not 0 <= number < count:
        raise ValueError(f"number {number} is not below {count}")
    return number
