"""What the routes share: the service, its settings and metrics, and whether the house is open."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import InitVar, dataclass, field

from starlette.requests import Request

from engine.api import BundleError, ConvoyError, InvalidRequest, ModelInfo, Service, State
from server.cache import Cache
from server.crew import Crew, Place
from server.metrics import Metrics
from server.settings import Settings

logger = logging.getLogger(__name__)

RETRY = 1.0  # seconds between two tries of a canary


@dataclass(eq=False, slots=True)
class House:
    """draining: after SIGTERM; new work is refused. first: models that were loaded before the start, which
    have to show that they work; others show it when loaded. sung: those of them that have. in_flight:
    requests not yet answered. tasks: reloads under way. place: of this worker among several. cache: answers
    that were given before; None: they are not kept."""

    service: Service
    settings: Settings
    metrics: Metrics
    draining: bool = False
    in_flight: int = 0
    first: frozenset[str] = field(init=False)
    sung: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    place: InitVar[Place | None] = None
    crew: Crew | None = field(init=False)
    cache: Cache | None = field(init=False)

    def __post_init__(self, place: Place | None) -> None:
        self.first = frozenset(n for n, kept in self.service.shelved().items() if kept.state is State.LOADED)
        self.crew = Crew(place, self.obey) if place else None
        self.cache = Cache(self.settings.cache_bytes) if self.settings.cache_bytes else None

    @property
    def alone_ready(self) -> bool:
        """Whether this process is ready."""
        return not self.draining and self.service.healthy() and self.first <= self.sung

    @property
    def ready(self) -> bool:
        """Whether this process and, where there are more, all workers are ready."""
        return self.alone_ready and (self.crew is None or self.crew.ready())

    async def order(self, verb: str, name: str) -> ModelInfo:
        """Reload, load or unload a model, as `Service` has these verbs; here and then in all other workers.
        Raises BundleError also when one of them can't."""
        info = await self._order_here(verb, name)
        faults = await self.crew.order(f"{verb} {name}") if self.crew else []
        if faults:
            raise BundleError(f"{'; '.join(faults)} (the other workers have done it: try again)")
        return info

    async def obey(self, order: str) -> None:
        """What another process asks for: a verb and a model's name, or "" to reload all."""
        verb, _, name = order.partition(" ")
        await (self._order_here(verb, name) if name else self._reload_all())

    async def _order_here(self, verb: str, name: str) -> ModelInfo:
        """In this process. One that is refused is logged."""
        verbs = {"reload": self.service.reload, "load": self.service.load, "unload": self.service.unload}
        try:
            info = await asyncio.to_thread(verbs[verb], name)
        except ConvoyError as error:
            outcome = "goes on with the old bundle" if verb == "reload" else f"is not {verb}ed"
            logger.error("%s %s: %s", name, outcome, error)  # noqa: TRY400
            raise
        if self.cache and verb == "reload":
            self.cache.clear()
        logger.info("%sed %s", verb, name)
        return info

    def reload_all(self) -> None:
        """Reload every model, one after the other, in the background. For the event loop's thread."""
        task = asyncio.get_running_loop().create_task(self._reload_all())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _reload_all(self) -> None:
        for info in self.service.models():
            with suppress(ConvoyError):
                await self._order_here("reload", info.name)

    async def sing(self) -> None:
        """Translate a canary with each of the first models; try again until all have answered."""
        for name in sorted(self.first):
            while name not in self.sung:
                try:
                    await self.service.canary(name)
                    self.sung.add(name)
                except ConvoyError as error:
                    logger.warning("%s is not ready: %s", name, error)
                    await asyncio.sleep(RETRY)


def house_of(request: Request) -> House:
    house = request.app.state.house
    assert isinstance(house, House)
    return house


def deadline_of(request: Request, house: House) -> float:
    """When the request must be answered, as a time.monotonic().

    X-Request-Timeout, in seconds, shortens the server's own limit. Raises InvalidRequest on anything else.
    """
    limit, asked = house.settings.request_timeout, request.headers.get("x-request-timeout")
    if asked is not None:
        try:
            seconds = float(asked)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise InvalidRequest("X-Request-Timeout must be a positive number of seconds")
        limit = min(limit, seconds)
    return time.monotonic() + limit
