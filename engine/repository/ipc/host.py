"""Offers the models of a service to front ends that connect to a Unix socket.

A group of requests keeps its model loaded, as a use in this process does. Requests of a front end
that disconnects are cancelled.
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
from typing import Any, Final

from engine.errors import ConvoyError, Unavailable
from engine.repository.budget import State, Ticket
from engine.repository.ipc.frames import LinkEnd
from engine.repository.ipc.messages import (
    MODEL_NUMBERS,
    OPTION_NUMBERS,
    Asked,
    AskedGroup,
    Cancel,
    CertainTokens,
    EngineLoad,
    Obeyed,
    Offer,
    OfferedModel,
    Order,
    Told,
    UsedModel,
    UsedOptions,
    told_of,
)
from engine.repository.ipc.orders import Orders
from engine.repository.loading import LoadedModel
from engine.repository.service import Service
from engine.schedule.aio import INLINE_JOBS
from engine.schedule.engine import Engine
from engine.schedule.slices import in_slices, one_slice
from engine.schedule.stats import Stats
from engine.types import DecodeOptions, Outcome, Request

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0  # between two tries of a canary
LOAD_SECONDS: Final = 0.005  # between two words of an engine's load that come with results
OTHER_BUNDLE: Final = "the bundle of this model was replaced: send the request again"


class EngineHost:
    """Listens in an event loop of its own process, beside the threads of the engines."""

    def __init__(self, service: Service) -> None:
        """service: a started one."""
        self.service, self.orders = service, Orders(service)
        entries = service.repository_entries().items()
        self._unproven = {name for name, entry in entries if entry.state is State.LOADED}
        self._front_ends = set[_FrontEnd]()
        self._offer = Offer([])
        self._loads: dict[str, Stats] = {}

    @property
    def connected(self) -> bool:
        """Whether any front end is."""
        return bool(self._front_ends)

    async def listen(self, path: Path) -> asyncio.Server:
        """Accept front ends at a path, from now on."""
        path.unlink(missing_ok=True)  # of a process that was killed
        return await asyncio.get_running_loop().create_unix_server(lambda: _FrontEnd(self).end, str(path))

    async def prove_models(self) -> None:
        """Answer a canary by each model of the start, and offer those that can."""
        for name in sorted(self._unproven & {info.name for info in self.service.models()}):
            try:
                await self.service.canary(name)
                self._unproven.discard(name)
            except ConvoyError as error:
                logger.warning("%s is not ready: %s", name, error)
        self.announce()

    async def go_on(self) -> None:
        """Try again those that could not answer, until all have."""
        while self._unproven:
            await asyncio.sleep(RETRY_SECONDS)
            await self.prove_models()

    def announce(self) -> None:
        """Tell all front ends what is offered and what the engines have to do, where that has changed."""
        entries, older = self.service.repository_entries(), self.orders.older
        models = list[OfferedModel]()
        for facts in self.service.repository.facts():
            name, digests = facts.info.name, [facts.info.digest, *older.get(facts.info.name, {})]
            offered = [] if name in self._unproven else digests
            models.append(OfferedModel(str(facts.path), facts.info, offered, entries[name]))
        if (offer := Offer(models)) != self._offer:
            self._offer = offer
            for front_end in self._front_ends:
                front_end.end.send(offer)
        for name, stats in self.service.stats().items():
            if stats != self._loads.get(name):
                self._loads[name] = stats
                for front_end in self._front_ends:
                    front_end.end.send(EngineLoad(name, stats))

    def join(self, front_end: _FrontEnd) -> None:
        """Offer the models to one more front end."""
        self._front_ends.add(front_end)
        front_end.end.send(self._offer)
        for name, stats in self.service.stats().items():
            front_end.end.send(EngineLoad(name, stats))

    def leave(self, front_end: _FrontEnd) -> None:
        """Forget a front end that has gone."""
        self._front_ends.discard(front_end)

    def engine_of(self, model: LoadedModel, digest: str) -> Engine:
        """Find what decodes tokens of the bundle of this digest, and have what it says sent.

        model: as it is now.
        digest: of the bundle that made the tokens.

        Raises Unavailable where that bundle is no longer there.
        """
        if model.info.digest != digest:
            older = self.orders.older.get(model.info.name, {}).get(digest)
            if older is None:
                raise Unavailable(OTHER_BUNDLE)
            model = older
        assert isinstance(model.engine, Engine)
        model.engine.after_step = self._send_told
        return model.engine

    def _send_told(self) -> None:
        """Send all front ends what an engine has said, from its thread."""
        for front_end in list(self._front_ends):
            front_end.send_told()


@dataclass(eq=False, slots=True)
class _Flight:
    """A group under way.

    options: of each job.
    requests: those not answered yet, by job; none before the model is there.
    cancelled: jobs that were cancelled before that.
    """

    group: AskedGroup
    model: UsedModel
    options: list[DecodeOptions]
    ticket: Ticket
    engine: Engine | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)


class _FrontEnd:
    """One front end: what it names by numbers, and its groups under way."""

    def __init__(self, host: EngineHost) -> None:
        self._host, self._repository, self._loop = host, host.service.repository, asyncio.get_running_loop()
        self._models: dict[int, UsedModel] = {}
        self._options: dict[int, DecodeOptions] = {}
        self._flights: dict[int, _Flight] = {}
        self._lock = threading.Lock()  # guards flights, their requests and what is to be told
        self._outbox, self._answered = list[Told](), dict[str, _Flight]()
        self._news: dict[tuple[int, int], CertainTokens] = {}
        self._loads_told: dict[str, float] = {}  # when, of each model
        self._tasks = set[asyncio.Task[None]]()
        self._gone = False
        self.end = LinkEnd(Asked, self._receive, self._leave)
        host.join(self)

    def _receive(self, messages: list[Asked]) -> None:
        for message in messages:
            if isinstance(message, AskedGroup):
                self._ask(message)
            elif isinstance(message, Cancel):
                self._cancel(message)
            elif isinstance(message, UsedOptions):
                self._options[_bounded(message.number, OPTION_NUMBERS)] = message.options
            elif isinstance(message, UsedModel):
                self._models[_bounded(message.number, MODEL_NUMBERS)] = message
            else:
                self._start(self._obey(message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # groups

    def _ask(self, group: AskedGroup) -> None:
        """Have the group's model, at once or when it is loaded."""
        if len(group.sources) != len(group.chosen) or group.number in self._flights:
            raise ValueError("a group that is none")
        # now, for numbers may be given anew
        options = [o if isinstance(o, DecodeOptions) else self._options[o] for o in group.options]
        model, chosen = self._models[group.model], [options[place] for place in group.chosen]
        flight = self._flights[group.number] = _Flight(group, model, chosen, Ticket((model.name,)))
        try:
            future = self._repository.ask(flight.ticket)
        except ConvoyError as error:
            self._refuse(flight, error)
            return
        if future is None:
            self._submit(flight, None)
        else:
            self._start(self._submit_later(flight, future))

    async def _submit_later(self, flight: _Flight, future: Future[Exception | None]) -> None:
        deadline = flight.group.deadline
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        await asyncio.wait([asyncio.wrap_future(future)], timeout=seconds)
        if self._flights.get(flight.group.number) is flight:
            self._submit(flight, future)

    def _submit(self, flight: _Flight, future: Future[Exception | None] | None) -> None:
        group, number = flight.group, flight.group.number
        deadline = math.inf if group.deadline is None else group.deadline
        for job, (source, options) in enumerate(zip(group.sources, flight.options, strict=True)):
            if job not in flight.cancelled:
                reply = partial(self._tell, flight, job)
                request = flight.requests[job] = Request(source, options, reply, deadline)
                if group.progress:
                    request.progress = partial(self._tell_tokens, number, job)
        try:
            model = self._repository.claim_models(flight.ticket, future)[flight.model.name]
            flight.engine = self._host.engine_of(model, flight.model.digest)
            requests = list(flight.requests.values())
            if len(requests) <= INLINE_JOBS:
                flight.engine.submit(requests, follow_up=group.follow_up)
            else:
                submit = partial(flight.engine.submit, requests, follow_up=group.follow_up)
                self._start(self._submit_beside(flight, submit))
        except ConvoyError as error:
            self._refuse(flight, error)

    async def _submit_beside(self, flight: _Flight, submit: Callable[[], None]) -> None:
        try:
            await in_slices(one_slice(submit))
        except ConvoyError as error:
            if self._flights.get(flight.group.number) is flight:
                self._refuse(flight, error)

    def _refuse(self, flight: _Flight, error: ConvoyError) -> None:
        self._land(flight)
        self.end.send(told_of(flight.group.number, -1, error))

    def _land(self, flight: _Flight) -> None:
        """Let go of the model of a group that is over. For any thread."""
        with self._lock:
            under_way = self._flights.get(flight.group.number) is flight
            if under_way:
                del self._flights[flight.group.number]
        if under_way:
            self._repository.leave(flight.ticket)

    def _cancel(self, message: Cancel) -> None:
        flight = self._flights.get(message.group)
        if flight is None:
            return
        if flight.engine is None:
            flight.cancelled.update(message.jobs)
            over = flight.cancelled.issuperset(range(len(flight.group.sources)))
        else:
            with self._lock:
                found = [flight.requests.pop(job) for job in message.jobs if job in flight.requests]
                over = not flight.requests
            flight.engine.cancel(found)
        if over:
            self._land(flight)

    def _leave(self) -> None:
        self._gone = True
        self._host.leave(self)
        for flight in list(self._flights.values()):
            if flight.engine:
                flight.engine.cancel(list(flight.requests.values()))
            self._land(flight)
        self._host.orders.settle_all(self)

    # what engines say, from their threads

    def _tell(self, flight: _Flight, job: int, outcome: Outcome) -> None:
        """Have an outcome sent, unless nobody waits for it any more."""
        number = flight.group.number
        with self._lock:
            self._news.pop((number, job), None)
            if flight.requests.pop(job, None) is None:
                return
            self._outbox.append(told_of(number, job, outcome))
            self._answered[flight.model.name] = flight
            over = not flight.requests
        if over:
            self._land(flight)

    def _tell_tokens(self, group: int, job: int, tokens: list[int]) -> None:
        """Have certain tokens sent; newer ones of a job take the place of those not sent yet."""
        with self._lock:
            self._news[group, job] = CertainTokens(group, job, tokens)

    def send_told(self) -> None:
        """Send what engines have said since the last time."""
        if not (self._outbox or self._news):
            return
        with self._lock:
            outbox, self._outbox, news, self._news = self._outbox, [], self._news, {}
            answered, self._answered = self._answered, {}
        now = time.monotonic()
        for name, flight in answered.items():
            if now - self._loads_told.get(name, -math.inf) >= LOAD_SECONDS:
                assert flight.engine
                self._loads_told[name] = now
                outbox.append(EngineLoad(name, flight.engine.stats()))
        if not self.end.slow:  # who does not read hears of what comes later
            outbox += news.values()
        self.end.send_now(outbox)

    # orders

    async def _obey(self, order: Order) -> None:
        code = fault = ""
        try:
            await self._host.orders.obey(order.verb, order.name, self)
        except ConvoyError as error:
            code, fault = error.code, str(error)
        self._host.announce()
        if self._gone:
            self._host.orders.settle_all(self)
        else:
            self.end.send(Obeyed(order.number, code, fault))


def _bounded(number: int, count: int) -> int:
    """Raises ValueError on a number that a link may not name."""
    if not 0 <= number < count:
        raise ValueError(f"a number of {number}, and {count} are known")
    return number
