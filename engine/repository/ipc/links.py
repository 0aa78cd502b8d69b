"""The engine processes, as a front end sees them: which of them is asked, and what happens when one goes."""

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
from engine.repository.ipc.frames import LinkEnd
from engine.repository.ipc.messages import (
    MODEL_NUMBERS,
    OPTION_NUMBERS,
    AskedGroup,
    Cancel,
    CertainTokens,
    EngineLoad,
    JobFailure,
    JobResult,
    Numbers,
    Obeyed,
    Offer,
    OfferedModel,
    Order,
    Told,
    UsedModel,
    UsedOptions,
    error_of,
    result_of,
)
from engine.schedule.stats import Stats
from engine.types import DecodeOptions, Outcome, Request

logger = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 0.05  # between two tries
MAX_TRIES: Final = 2  # of a request: one that ends an engine must not end them all
NUMBERED_OPTIONS: Final = 8  # different ones of a group that are worth a number each
RETRY_SECONDS: Final = 1.0  # that an engine process takes to come back, about
LOST: Final = "the engine of this model has gone and comes back: send the request again"
ELSEWHERE: Final = (Stopping.code, DeviceLost.code)  # of failures that another engine may mend


@dataclass(eq=False, slots=True)
class Asking:
    """Requests of one deadline for an engine, by job.

    model, digest: name of the model, and the bundle that made the tokens.
    follow_up: as of `Engine.submit`.
    asked: links that were asked before.
    told: whether somebody has heard of certain tokens.
    """

    model: str
    digest: str
    requests: dict[int, Request]
    follow_up: bool
    asked: frozenset[EngineLink] = frozenset()
    told: bool = False


class Links:
    """Links to all engine processes. What is said of the loop is true of all but `soon`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """paths: of the sockets, one of each engine process."""
        self.links = [EngineLink(path, self) for path in paths]
        self.changed = asyncio.Event()  # whether an offer has come, or gone, since somebody cleared it
        self._where: dict[Request, tuple[EngineLink, int, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Connect, and go on connecting, in this event loop from now on."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._tasks = [self._loop.create_task(link.keep_connected()) for link in self.links]

    def close(self) -> None:
        """End all links."""
        for task in self._tasks:
            task.cancel()
        for link in self.links:
            link.close()

    def soon(self, call: Callable[..., object], *values: object) -> None:
        """Call something in the event loop: at once where this is the loop's thread."""
        if threading.get_ident() == self._thread:
            call(*values)
        elif self._loop:
            try:
                self._loop.call_soon_threadsafe(call, *values)
            except RuntimeError:  # the loop is closed: nobody waits any more
                logger.debug("a call came after its event loop was closed")

    def wait_for(self, order: str, name: str) -> None:
        """Have every engine process obey, one after the other, from another thread.

        order: a verb of `engine.repository.ipc.orders`.
        name: the model's name.

        Raises what the first one refuses with, before another is told; what a later one refuses with comes
        after all have been.
        """
        assert self._loop
        asyncio.run_coroutine_threadsafe(self._order_all(order, name), self._loop).result()

    async def _order_all(self, verb: str, name: str) -> None:
        connected = [link for link in self.links if link.connected]
        if not connected:
            raise Unavailable(LOST, RETRY_SECONDS)
        faults = list[Exception]()
        for link in connected:
            try:
                await link.order(verb, name)
            except Exception as error:
                if link is connected[0]:
                    raise
                faults.append(error)
        if faults:
            raise faults[0]

    @property
    def connected(self) -> bool:
        """Whether any link stands and has said what it offers."""
        return any(link.connected for link in self.links)

    def offered(self) -> dict[str, list[OfferedModel]]:
        """List what all engine processes offer, by the models' names, in their order."""
        models: dict[str, list[OfferedModel]] = {}
        for link in self.links:
            for model in list(link.models.values()):
                models.setdefault(model.info.name, []).append(model)
        return models

    def offers(self, model: str, digest: str) -> bool:
        """Tell whether any engine decodes tokens of this bundle.

        model: the model's name.
        digest: of the bundle.
        """
        return any(link.offers(model, digest) for link in self.links)

    def under_way(self, model: str, digest: str) -> list[Request]:
        """List the requests for a bundle that no engine has answered yet. For any thread."""
        groups = (asking for link in self.links for asking in list(link._groups.values()))
        of_bundle = (asking for asking in groups if (asking.model, asking.digest) == (model, digest))
        return [request for asking in of_bundle for request in list(asking.requests.values())]

    def stats(self) -> dict[str, list[Stats]]:
        """List what the engines of each model have said last."""
        found: dict[str, list[Stats]] = {}
        for link in self.links:
            for load in list(link.loads.values()):
                found.setdefault(load.model, []).append(load.stats)
        return found

    def ask(self, asking: Asking) -> None:
        """Ask the engine with the most room of those not asked yet. Raises Unavailable where none is."""
        model, digest, asked = asking.model, asking.digest, asking.asked
        fit = [link for link in self.links if link not in asked and link.offers(model, digest)]
        if not fit:
            raise Unavailable(LOST, RETRY_SECONDS)
        link = fit[0] if len(fit) == 1 else min(fit, key=lambda one: one.burden(model))
        asking.asked |= {link}
        number = link.ask(asking)
        self._where |= {request: (link, number, job) for job, request in asking.requests.items()}

    def cancel(self, requests: Iterable[Request]) -> None:
        """Give requests up. No reply will come."""
        jobs: dict[tuple[EngineLink, int], list[int]] = {}
        for request in requests:
            request.cancelled = True
            if request in self._where:
                link, number, job = self._where.pop(request)
                link.forget(number, job)
                jobs.setdefault((link, number), []).append(job)
        for (link, number), numbers in jobs.items():
            link.send(Cancel(number, numbers))

    def end(self, request: Request, outcome: Outcome) -> None:
        """Answer a request that no engine has any more."""
        if self._where.pop(request, None):
            request.reply(outcome)

    def retry(self, asking: Asking, outcome: Outcome) -> None:
        """Ask another engine for what this one can't do, where nobody has heard of it yet.

        asking: the requests.
        outcome: what they are answered otherwise.
        """
        if not asking.told and len(asking.asked) < MAX_TRIES:
            asking.follow_up = True  # it has been accepted
            try:
                self.ask(asking)
            except Unavailable:
                logger.debug("no other engine has %s", asking.model)
            else:
                return
        for request in list(asking.requests.values()):
            self.end(request, outcome)


class EngineLink:
    """The link to one engine process, which may come and go.

    connected: whether it stands, and has said what it offers.
    models: what it offers, by name; none while it is away.
    loads: what the engines of its models have said last, likewise.
    """

    def __init__(self, path: Path, links: Links) -> None:
        self._path, self._links = path, links
        self.models: dict[str, OfferedModel] = {}
        self.connected = False
        self.loads: dict[str, EngineLoad] = {}
        self._since = Counter[str]()  # requests that were sent less those answered, since the last load
        self._end: LinkEnd | None = None
        self._lost = asyncio.Event()
        self._numbers = itertools.count()
        self._groups: dict[int, Asking] = {}
        self._models, self._options = Numbers(MODEL_NUMBERS), Numbers(OPTION_NUMBERS)
        self._orders: dict[int, asyncio.Future[None]] = {}

    async def keep_connected(self) -> None:
        """Connect again whenever the other end has gone, without end."""
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            end = LinkEnd(Told, self._receive, self._lose)
            try:
                await loop.create_unix_connection(lambda end=end: end, str(self._path))  # type: ignore[misc]
            except OSError:
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            self._end = end
            await self._lost.wait()

    def close(self) -> None:
        if self._end:
            self._end.close()

    def offers(self, model: str, digest: str) -> bool:
        """Tell whether it decodes tokens of this bundle.

        model: the model's name.
        digest: of the bundle.
        """
        offered = self.models.get(model)
        return offered is not None and digest in offered.digests

    def burden(self, model: str) -> float:
        """Tell how full an engine is: requests that wait or are active, beside its slots."""
        load = self.loads.get(model)
        if load is None:
            return float(self._since[model])
        stats = load.stats
        busy = stats.waiting_requests + sum(stats.active) + self._since[model]
        return busy / max(1, sum(stats.slots))

    def ask(self, asking: Asking) -> int:
        """Hand requests over; returns the number of the group that they make."""
        assert self._end
        number = next(self._numbers)
        self._groups[number] = asking
        self._since[asking.model] += len(asking.requests)
        requests = list(asking.requests.values())
        # jobs are counted from 0 here as there: those of a second try are numbered anew
        asking.requests = dict(enumerate(requests))
        places: dict[DecodeOptions, int] = {}
        chosen = [places.setdefault(request.options, len(places)) for request in requests]
        few = len(places) <= NUMBERED_OPTIONS
        group = AskedGroup(
            number,
            self._number_of_model(asking.model, asking.digest),
            [request.source for request in requests],
            [self._number_of(options) if few else options for options in places],
            chosen,
            None if requests[0].deadline == math.inf else requests[0].deadline,
            any(request.progress for request in requests),
            asking.follow_up,
        )
        self._end.send(group)
        return number

    def forget(self, number: int, job: int) -> Request | None:
        """Forget a job of a group, if it is known."""
        asking = self._groups.get(number)
        request = asking.requests.pop(job, None) if asking else None
        if asking and not asking.requests:
            del self._groups[number]
        return request

    def send(self, message: Any) -> None:
        """Send a message, where the link stands."""
        if self._end:
            self._end.send(message)

    async def order(self, verb: str, name: str) -> None:
        """Have the engine process do something with a model. Raises what stands against it."""
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

    def _receive(self, messages: list[Told]) -> None:
        for message in messages:
            if isinstance(message, JobResult):
                self._reply(message.group, message.job, result_of(message))
            elif isinstance(message, CertainTokens):
                self._report(message)
            elif isinstance(message, EngineLoad):
                self.loads[message.model] = message
                self._since[message.model] = 0
            elif isinstance(message, JobFailure):
                self._fail(message)
            elif isinstance(message, Offer):
                self.models = {model.info.name: model for model in message.models}
                self.connected = True
                self._links.changed.set()
            else:
                self._note_obeyed(message)
        if self._end:  # those who were told may ask for more
            self._end.flush_soon()

    def _reply(self, number: int, job: int, outcome: Outcome) -> None:
        asking = self._groups.get(number)
        request = self.forget(number, job)
        if asking and request:
            self._since[asking.model] -= 1
            self._links.end(request, outcome)

    def _report(self, message: CertainTokens) -> None:
        asking = self._groups.get(message.group)
        request = asking.requests.get(message.job) if asking else None
        if asking and request and request.progress:
            asking.told = True
            request.progress(message.tokens)

    def _fail(self, message: JobFailure) -> None:
        """A failure of job -1 is of the whole group."""
        asking = self._groups.get(message.group)
        if asking is None:
            return
        error = error_of(message.code, message.message, message.retry_after)
        for job in list(asking.requests) if message.job < 0 else [message.job]:
            request = self.forget(message.group, job)
            self._since[asking.model] -= request is not None
            if request and message.code in ELSEWHERE:
                self._links.retry(replace(asking, requests={0: request}), error)
            elif request:
                self._links.end(request, error)

    def _note_obeyed(self, message: Obeyed) -> None:
        done = self._orders.get(message.number)
        if done and not done.done():
            if message.code:
                done.set_exception(error_of(message.code, message.message))
            else:
                done.set_result(None)

    def _lose(self) -> None:
        """The engine process has gone: others are asked for what it had, else its requests are answered."""
        self._end = None
        self.models, self.loads, self.connected = {}, {}, False
        self._since.clear()
        self._models.clear()
        self._options.clear()
        for done in self._orders.values():
            if not done.done():
                done.set_exception(Unavailable(LOST, RETRY_SECONDS))
        self._links.changed.set()
        self._lost.set()
        for number, asking in list(self._groups.items()):
            self._links.retry(asking, Unavailable(LOST, RETRY_SECONDS))
            self._groups.pop(number, None)  # not before: who drains looks whether there are any
