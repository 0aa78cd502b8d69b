"""The web application, and the process that serves it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import uvicorn
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from engine.api import (
    ConfigError,
    Service,
    connect_service,
    kernels_name,
    program_version,
    share_threads,
)
from server.callers.access import Access, AccessMiddleware, PathRules
from server.contract import Contract, request_names
from server.contracts import contract_of, served_contracts
from server.files.documents import serving_files, waiting_files
from server.http.claims import ClaimsMiddleware
from server.http.completing import complete_schema, option_limits
from server.http.middleware import RequestMiddleware, http_exceptions
from server.http.openapi import operation_name
from server.http.protocol import HttpProtocol
from server.observing import instruments, logs
from server.observing.figures import Sources
from server.observing.metrics import Metrics
from server.observing.tracing import Tracing
from server.process.allocator import spare_collector, thrifty, trimming
from server.process.peers import LAST_SECONDS, Listener, ProcessContext
from server.settings import ServerSettings
from server.state import AppState

logger = logging.getLogger(__name__)

LOST_CODE: Final = 70  # exit code when the device is lost: a supervisor starts the process again
# idle connections: with 5 s, clients that poll every 5 s would often meet a closing connection
KEEP_ALIVE_SECONDS: Final = 30
SWITCH_SECONDS: Final = 0.001  # Python's switch interval: engine threads need the lock often but briefly
REFRESH_TICKS: Final = 10  # uvicorn's ticks (one second together) between two copies of a front end's metrics


def create_app(
    service: Service, settings: ServerSettings, metrics: Metrics, context: ProcessContext | None = None
) -> FastAPI:
    """Build the application around a service that is not yet started.

    service: service with the models.
    settings: settings of the server.
    metrics: metrics that requests and models are recorded in.
    context: context of a front end, whose models are in other processes; None: this is the only process.

    Routes share `app.state.convoy`, an AppState.

    Raises ConfigError when the keys can't be read.
    """
    access = Access(settings)
    contracts = served_contracts(settings.plugins)
    state = AppState(service, settings, metrics, context=context, names=request_names(contracts))
    if state.peers:
        access.count_with(state.peers.count)
    # int() returns 0, the size without a cache
    size, lag = state.cache.size if state.cache else int, state.lag.longest
    sources = Sources(
        lambda: state.ready, size, lag, workers=state.workers, waiting_files=lambda: waiting_files(app)
    )
    if context is None:  # engine processes report their own engines
        sources = replace(
            sources, stats=service.stats, devices=service.devices, stored=service.repository_entries
        )
    metrics.watch(sources)
    tracing = Tracing.configured(settings.traces)

    # serves the files of /docs itself: the page needs no access to the internet
    app = FastAPIOffline(
        docs_url=None,  # a route of ours
        redoc_url=None,
        title="Convoy",
        version=program_version(),
        lifespan=_lifespan(access, state, tracing),
        generate_unique_id_function=operation_name,
    )
    app.state.convoy, app.state.access = state, access
    _add_contracts(app, contracts, tracing)
    return app


def _add_contracts(app: FastAPI, contracts: Sequence[Contract], tracing: Tracing | None) -> None:
    """Add the routes, middleware and API description of contracts to the application."""
    state, access = app.state.convoy, app.state.access
    contract_of_path = partial(contract_of, contracts=contracts)
    if claims := [claim for contract in contracts for claim in contract.claims]:
        app.add_middleware(ClaimsMiddleware, claims=claims, body_limit=state.settings.body_limit)
    app.add_middleware(AccessMiddleware, access=access, contracts=contracts)
    # added last: outermost
    app.add_middleware(RequestMiddleware, state=state, contract_of=contract_of_path, tracing=tracing)
    app.add_exception_handler(HTTPException, http_exceptions(contract_of_path))
    for router in chain.from_iterable(contract.routers for contract in contracts):
        app.include_router(router)
    _extend_openapi(app, state, contracts)


def _lifespan(
    access: Access, state: AppState, tracing: Tracing | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan of the application: it starts the service, and stops it at the end."""
    service, settings = state.service, state.settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Start the service and its background tasks; at the end, drain and stop them."""
        service.workers = state.workers
        service.start()
        await asyncio.to_thread(app.openapi)  # takes longer than a client may wait for another
        while state.remote and not await state.remote.connected() and not state.draining:
            pass  # accept no request before the engines can answer it
        tasks = [asyncio.create_task(state.prove_models()), asyncio.create_task(state.watch_models())]
        # signals can be handled only in the main thread
        if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, state.reload_all)
        if state.peers:
            state.peers.join()
            await state.peers.stand_by(lambda: state.draining)
        async with serving_files(app), state.lag.watching(), trimming(), _grpc(app, state):
            yield
        for task in tasks:
            task.cancel()
        if state.peers:
            state.peers.leave()
        patience = LAST_SECONDS if service.device_lost() else settings.drain_timeout
        await asyncio.to_thread(service.stop, drain=True, timeout=patience)
        service.workers = None
        await state.workers.close()
        await access.quotas.close()
        if tracing:
            await asyncio.to_thread(tracing.close)

    return lifespan


def _extend_openapi(app: FastAPI, state: AppState, contracts: Sequence[Contract]) -> None:
    """Complete the OpenAPI description with the server's limits, languages and security."""
    settings, rules = state.settings, PathRules(contracts)
    describe_app, contract_of_path = app.openapi, partial(contract_of, contracts=contracts)
    limits = {
        "texts": settings.batch_limit,
        "characters": settings.char_limit,
        "phrases": settings.phrase_limit,
        "tags": settings.tag_limit,
        "bytes": settings.body_limit,
        "file bytes": settings.file_limit,
    }

    def who_may_send(method: str, path: str) -> str:
        """Return who may send a request: "anybody", "key" (anybody with a key) or "operator"."""
        setting = rules.token_setting(re.sub(r"\{[^}]*\}", "x", path))
        if setting:  # without a token, orders are refused, and pages are open
            return "operator" if setting == "admin_token" or getattr(settings, setting) else "anybody"
        return "anybody" if rules.is_open(method, path) else "key"

    def openapi() -> dict[str, Any]:
        """Return the description of the API, which is made once."""
        if app.openapi_schema:
            return app.openapi_schema
        options = option_limits(state.service.models(), settings.alternatives_limit)
        codes = {
            kind: codes for contract in contracts for kind, codes in contract.codes(state.service).items()
        }
        return complete_schema(describe_app(), limits, who_may_send, codes, options, contract_of_path)

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


@asynccontextmanager
async def _grpc(app: FastAPI, state: AppState) -> AsyncIterator[None]:
    """Serve gRPC if the settings name a port. Raises ConfigError when its library is missing."""
    if state.settings.grpc_port is None:
        yield
        return
    try:
        from server.grpc.servicer import serving_grpc
    except ModuleNotFoundError as error:
        message = f"gRPC needs its library ({error}); run: pip install 'convoy-server[grpc]'"
        raise ConfigError(message) from error
    async with serving_grpc(app, state) as app.state.grpc_port:
        yield


class DrainingServer(uvicorn.Server):
    """Uvicorn server that drains on a signal: it refuses new requests and answers the accepted ones."""

    def __init__(self, config: uvicorn.Config, state: AppState) -> None:
        super().__init__(config)
        self._state = state
        self._drain_until = 0.0
        self.complete = True  # whether every accepted request was answered
        self.device_lost = False
        self.own_process = False  # whether the server may end the process

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to drain, for at most `drain_timeout` seconds; on the second signal, exit at once."""
        if self._state.draining:  # the second signal
            self.complete = self._state.in_flight == 0
            self.should_exit = self.force_exit = True
        elif self.own_process:  # ends the process even if a thread hangs
            _end_after(self._state.settings.drain_timeout + 3 * LAST_SECONDS, 1)
        self._state.draining = True
        self._drain_until = time.monotonic() + self._state.settings.drain_timeout

    async def on_tick(self, counter: int) -> bool:
        """Drain and exit when a device is lost or the drain timeout is over; report to the supervisor."""
        state = self._state
        if state.service.device_lost() and not self.device_lost:
            logger.critical("a device is lost: this process drains and ends with code %d", LOST_CODE)
            self.device_lost = state.draining = True
            self._drain_until = time.monotonic() + LAST_SECONDS
        if state.draining and not self.should_exit:
            timed_out = time.monotonic() > self._drain_until
            if timed_out and state.in_flight:
                logger.warning("%d requests are cancelled after the drain timeout", state.in_flight)
                self.complete = False
                await asyncio.to_thread(state.service.stop, drain=False, timeout=LAST_SECONDS)
            self.should_exit = timed_out or not state.in_flight
        if state.peers:
            state.peers.report(ready=state.ready_here, connections=len(self.server_state.connections))
            if counter % REFRESH_TICKS == 0 and not self.device_lost:  # a lost device raises errors
                state.metrics.refresh()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.own_process:  # garbage collection need not scan routes and schemas
            spare_collector()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.own_process:  # a hanging thread must not keep the process alive
            _end_after(LAST_SECONDS, 0 if self.complete else 1)


def _end_after(seconds: float, code: int) -> None:
    """Exit the process after some seconds, if it has not ended by then."""
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


def run(settings: ServerSettings, context: ProcessContext | None = None) -> int:
    """Load the models and serve in this process until SIGTERM or SIGINT.

    settings: settings of the server.
    context: context of a front end, which loads no model; None: this is the only process.

    Returns 0, or 1 when accepted requests were cancelled; exits the process with 70 when a device is lost.
    Sets up logging and the allocator of the whole process. Raises BundleError or ConfigError when a model
    can't be loaded.
    """
    figures = begin(settings, context)
    if context:
        service: Service = connect_service(context.sockets, settings.service())
    else:
        service = open_service(settings, figures)
    app = create_app(service, settings, figures, context)
    server = DrainingServer(configure(app, settings), app.state.convoy)
    server.own_process = True
    sys.setswitchinterval(SWITCH_SECONDS)
    server.run(_sockets(server, context) if context else None)
    if server.device_lost:
        end_lost()
    return 0 if server.complete else 1


def begin(settings: ServerSettings, context: ProcessContext | None) -> Metrics:
    """Set up logging and the allocator of this process, and return its metrics.

    settings: settings of the server.
    context: context of one of several processes; None: this is the only process.
    """
    logs.set_up(settings, context.name if context else "server")
    if context:
        instruments.share(context.metrics, context.number)
    thrifty()
    figures = Metrics(context.metrics if context else None)
    if context:
        figures.restarts.labels(context.name).inc(context.restarted)
    return figures


def open_service(settings: ServerSettings, figures: Metrics, weights: Path | None = None) -> Service:
    """Load the models in this process.

    settings: settings of the server.
    figures: metrics that the engines record.
    weights: folder in which engine processes share weights; None: they do not.

    Raises BundleError or ConfigError.
    """
    place = settings.place()
    if place.note:
        logger.info("%s", place.note)
    share_threads(place.backend, settings.share)
    placement = replace(settings.service().placement, shared=weights)
    service = Service.open(
        settings.models, replace(settings.service(), placement=placement), figures.observer
    )
    arithmetic = {info.name: info.arithmetic for info in service.models()}
    for name, entry in service.repository_entries().items():
        logger.info(
            "%s %s: about %d MiB of memory, %s", entry.state, name, entry.cost >> 20, arithmetic.get(name)
        )
    if placement.device == "cpu":
        logger.info("instruction set of the CPU kernels: %s", kernels_name())
    return service


def end_lost() -> NoReturn:
    """End the process of a lost device without cleanup: a library could hang or abort on the device."""
    logging.shutdown()
    os._exit(LOST_CODE)


def _sockets(server: DrainingServer, context: ProcessContext) -> list[socket.socket]:
    server.config.backlog = 1  # connections that asyncio accepts in one iteration of the event loop
    return [Listener(context, lambda: len(server.server_state.connections))]


def configure(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """Return Uvicorn's configuration for the settings."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="asyncio",  # uvloop's sockets can't be duplicated, which links to engine processes do
        http=HttpProtocol,
        log_config=None,
        log_level=settings.log_level,
        access_log=False,  # our own log has more fields, and no secrets
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(LAST_SECONDS),
    )
