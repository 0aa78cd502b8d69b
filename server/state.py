"""What the routes share: the service, its settings and metrics, and whether the server takes new work."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from engine.api import BundleError, ConvoyError, InvalidRequest, ModelInfo, Service, State, Stopping
from server.cache import Cache
from server.contract import RequestNames
from server.observing.metrics import Metrics
from server.process.peers import Peers, ProcessContext
from server.process.watchdog import LoopLag
from server.settings import ServerSettings

if TYPE_CHECKING:
    from engine.api import RemoteService

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # seconds between two tries of a canary


@dataclass(eq=False, slots=True)
class AppState:
    """What all routes share, as `app.state.convoy`.

    draining: after SIGTERM; new work is refused.
    in_flight: requests not yet answered.
    loaded_at_start: models that have to show that they work; others show it when they are loaded.
    proven: models of the start that have answered.
    tasks: reloads under way.
    context: of a front end whose engines are other processes; None: this is the only process.
    remote: the service, where its models are in other processes.
    cache: answers that were given before; None: none is kept.
    lag: how late the event loop is.
    names: names that requests to any contract may use.
    """

    service: Service
    settings: ServerSettings
    metrics: Metrics
    draining: bool = False
    in_flight: int = 0
    loaded_at_start: frozenset[str] = field(init=False)
    proven: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    context: InitVar[ProcessContext | None] = None
    peers: Peers | None = field(init=False)
    remote: RemoteService | None = field(init=False)
    cache: Cache | None = field(init=False)
    lag: LoopLag = field(default_factory=LoopLag)
    names: RequestNames = RequestNames()

    def __post_init__(self, context: ProcessContext | None) -> None:
        self.loaded_at_start = frozenset(
            n for n, entry in self.service.repository_entries().items() if entry.state is State.LOADED
        )
        self.peers = Peers(context, self.obey) if context else None
        self.remote = cast("RemoteService", self.service) if context else None
        self.cache = Cache(self.settings.cache_bytes) if self.settings.cache_bytes else None

    @property
    def ready_here(self) -> bool:
        """Whether this process is ready."""
        return not self.draining and self.service.healthy() and not self.to_prove

    @property
    def ready(self) -> bool:
        """Whether this process and, where there are more, all front ends are ready."""
        return self.ready_here and (self.peers is None or self.peers.ready())

    @property
    def to_prove(self) -> frozenset[str]:
        """Models of the start that are still served and have not yet answered."""
        return (self.loaded_at_start - self.proven) & {info.name for info in self.service.models()}

    async def order(self, verb: str, name: str) -> ModelInfo:
        """Reload, load or unload a model, as `Service` has these verbs. Raises BundleError also where another
        front end can't take up what the engines have reloaded."""
        verbs = {"reload": self.service.reload, "load": self.service.load, "unload": self.service.unload}
        try:
            info = await self._obey(verb, name, partial(verbs[verb], name))
            others = self.peers if verb == "reload" else None
            faults = await others.order(f"{info.digest} {name}") if others else []
        finally:
            if self.remote and verb == "reload":
                await asyncio.to_thread(self.remote.settle, name)
        if faults:
            raise BundleError(f"{'; '.join(faults)} (the others have done it: try again)")
        return info

    async def obey(self, order: str) -> None:
        """Do what another process asks for: "" to reload all; else to take up a bundle that the engines have
        reloaded, by its digest and the model's name."""
        if not order:
            await self._reload_all()
            return
        assert self.remote
        digest, _, name = order.partition(" ")
        await self._obey("reload", name, partial(self.remote.follow, name, digest))

    async def _obey(self, verb: str, name: str, work: Callable[[], ModelInfo]) -> ModelInfo:
        """In this process. One that is refused is logged."""
        try:
            info = await asyncio.to_thread(work)
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
                await self.order("reload", info.name)

    async def watch_models(self) -> None:
        """Serve what comes into the folders of models and goes from them, without end."""
        if self.remote:  # the engine processes look
            await self.remote.keep_up()
        await watch_folders(self.service, self.settings.watch)

    async def prove_models(self) -> None:
        """Translate a canary with each of the first models; try again until all have answered."""
        for name in sorted(self.loaded_at_start):
            while name in self.to_prove:
                try:
                    await self.service.canary(name)
                    self.proven.add(name)
                except ConvoyError as error:
                    logger.warning("%s is not ready: %s", name, error)
                    await asyncio.sleep(RETRY_SECONDS)


async def watch_folders(service: Service, seconds: float) -> None:
    """Look at the folders of models without end, until the service stops.

    service: the models of this process.
    seconds: between two looks; 0: nobody looks.
    """
    while seconds:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(service.rescan_folders)
        except Stopping:
            return
        except Exception:
            logger.exception("the folders of models could not be looked at")


def state_of(request: Request) -> AppState:
    state = request.app.state.convoy
    assert isinstance(state, AppState)
    return state


def refuse_while_draining(request: Request) -> None:
    """Refuse a request while the server drains, for routes whose GET is as much work as a POST.

    Raises Stopping.
    """
    if state_of(request).draining:
        raise Stopping()


def deadline_of(request: Request, state: AppState) -> float:
    """Compute when the request must be answered, as a time.monotonic().

    X-Request-Timeout, in seconds, shortens the server's own limit. Raises InvalidRequest on anything else.
    """
    limit, header = state.settings.request_timeout, request.headers.get("x-request-timeout")
    if header is not None:
        try:
            seconds = float(header)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise InvalidRequest("X-Request-Timeout must be a positive number of seconds")
        limit = min(limit, seconds)
    return time.monotonic() + limit
