"""The state that all routes share: the service, its settings and metrics, and readiness."""

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

from engine.api import (
    BundleError,
    ConvoyError,
    InvalidRequest,
    ModelInfo,
    Service,
    State,
    Stopping,
    Workers,
    slice_figures,
)
from server.cache import Cache
from server.contract import RequestNames
from server.observing.context import current_owner
from server.observing.metrics import Metrics
from server.process.peers import Peers, ProcessContext
from server.process.watchdog import LoopLag
from server.settings import ServerSettings

if TYPE_CHECKING:
    from engine.api import RemoteService

logger = logging.getLogger(__name__)

STUCK_SECONDS = 5.0  # a slice of work takes milliseconds; a longer one stops the requests behind it
RETRY_SECONDS = 1.0  # seconds between two canary translations of a model


@dataclass(eq=False, slots=True)
class AppState:
    """The state that all routes share, as `app.state.convoy`.

    draining: whether the server has got SIGTERM and refuses new requests.
    in_flight: number of requests not yet answered.
    loaded_at_start: names of the models loaded at the start, which must answer a canary first.
    proven: names of those models that have answered.
    tasks: running reloads.
    context: context of a front end whose engines are other processes; None: this is the only process.
    remote: the service, if its models are in other processes.
    cache: cache of answers; None: there is none.
    lag: measured delays of the event loop.
    workers: processes for the work on long texts.
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
    workers: Workers = field(default_factory=partial(Workers, owner=current_owner))
    names: RequestNames = RequestNames()

    def __post_init__(self, context: ProcessContext | None) -> None:
        # an upstream that is down does not make the server unready
        remote = {info.name for info in self.service.models() if info.remote}
        entries = self.service.repository_entries().items()
        self.loaded_at_start = frozenset(n for n, e in entries if e.state is State.LOADED) - remote
        self.peers = Peers(context, self.obey) if context else None
        self.remote = cast("RemoteService", self.service) if context else None
        self.cache = Cache(self.settings.cache_bytes) if self.settings.cache_bytes else None

    @property
    def ready_here(self) -> bool:
        """Whether this process is ready."""
        return not (self.draining or self.stuck) and self.service.healthy() and not self.to_prove

    @property
    def ready(self) -> bool:
        """Whether this process and all other front ends are ready."""
        return self.ready_here and (self.peers is None or self.peers.ready())

    @property
    def stuck(self) -> bool:
        """Whether a slice of work stops the other requests that need slices."""
        return slice_figures().stalled > STUCK_SECONDS

    @property
    def to_prove(self) -> frozenset[str]:
        """Names of models loaded at the start that are still served and have not yet answered."""
        return (self.loaded_at_start - self.proven) & {info.name for info in self.service.models()}

    async def order(self, verb: str, name: str) -> ModelInfo:
        """Reload, load or unload a model, in all front ends.

        verb: name of a method of `Service`: "reload", "load" or "unload".
        name: name of the model.

        Raises what the method raises, and BundleError when another front end fails to follow a reload.
        """
        verbs = {"reload": self.service.reload, "load": self.service.load, "unload": self.service.unload}
        try:
            info = await self._run_order(verb, name, partial(verbs[verb], name))
            others = self.peers if verb == "reload" else None
            faults = await others.order(f"{info.digest} {name}") if others else []
        finally:
            if self.remote and verb == "reload":
                # engine processes may free the old bundle, which no front end uses any more
                await asyncio.to_thread(self.remote.settle, name)
        if faults:
            raise BundleError(f"{'; '.join(faults)} (the others have done it: try again)")
        return info

    async def obey(self, order: str) -> None:
        """Execute an order of another process.

        order: "" to reload all models; or the digest of a bundle that the engines have reloaded, and the
            model's name.
        """
        if not order:
            await self._reload_all()
            return
        assert self.remote
        digest, _, name = order.partition(" ")
        await self._run_order("reload", name, partial(self.remote.follow, name, digest))

    async def _run_order(self, verb: str, name: str, execute: Callable[[], ModelInfo]) -> ModelInfo:
        """Run an order in this process, and log its outcome."""
        try:
            info = await asyncio.to_thread(execute)
        except ConvoyError as error:
            outcome = "keeps the old bundle" if verb == "reload" else f"is not {verb}ed"
            logger.error("%s %s: %s", name, outcome, error)  # noqa: TRY400
            raise
        if self.cache and verb == "reload":
            self.cache.clear()
        logger.info("%sed %s", verb, name)
        return info

    def reload_all(self) -> None:
        """Start to reload every model, one after the other. Call it in the event loop's thread."""
        task = asyncio.get_running_loop().create_task(self._reload_all())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _reload_all(self) -> None:
        """Reload every model; failures are logged."""
        for info in self.service.models():
            with suppress(ConvoyError):
                await self.order("reload", info.name)

    async def watch_models(self) -> None:
        """Follow changes in the folders of models, until cancelled."""
        if self.remote:  # engine processes watch the folders
            await self.remote.keep_up()
        await watch_folders(self.service, self.settings.watch)

    async def prove_models(self) -> None:
        """Translate a canary with each model loaded at the start; repeat until all have answered."""
        for name in sorted(self.loaded_at_start):
            while name in self.to_prove:
                try:
                    await self.service.canary(name)
                    self.proven.add(name)
                except ConvoyError as error:
                    logger.warning("%s is not ready: %s", name, error)
                    await asyncio.sleep(RETRY_SECONDS)


async def watch_folders(service: Service, seconds: float) -> None:
    """Rescan the folders of models regularly, until the service stops.

    service: service of this process.
    seconds: seconds between two scans; 0: never.
    """
    while seconds:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(service.rescan_folders)
        except Stopping:
            return
        except Exception:
            logger.exception("can't scan the folders of models")


def state_of(request: Request) -> AppState:
    state = request.app.state.convoy
    assert isinstance(state, AppState)
    return state


def refuse_while_draining(request: Request) -> None:
    """Raise Stopping while the server drains; for GET routes that do as much work as a POST."""
    if state_of(request).draining:
        raise Stopping()


def deadline_of(request: Request, state: AppState) -> float:
    """Return the latest time of a request's answer, of time.monotonic().

    The header X-Request-Timeout, in seconds, shortens the server's limit. Raises InvalidRequest when it is
    not a positive number.
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
