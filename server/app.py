"""The application, and the server process."""

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from engine.api import Service, share_threads
from server import logs, metrics
from server.access import Access, AccessMiddleware, Doors
from server.allocator import thrifty, trimming
from server.contracts import CONTRACTS
from server.contracts.convoy.status import version_text
from server.metrics import Metrics, Sources
from server.middleware import RequestMiddleware, on_http_exception
from server.openapi import complete_schema, operation_name
from server.peers import Listener, WorkerContext
from server.settings import ServerSettings
from server.state import AppState
from server.tracing import Tracing
from server.watchdog import HttpProtocol

logger = logging.getLogger(__name__)

LOST: Final = 70  # exit code when the device is lost: a supervisor starts the process again
IDLE: Final = 30  # seconds that a connection is kept: clients that poll every 5 s would lose a race at 5
LAST_MOMENT: Final = 5.0  # seconds that requests cut short get to be answered
SWITCH: Final = 0.001  # seconds that Python lets one thread run while others wait: engines need few
TICKS: Final = 10  # of uvicorn's, a second together: between two copies of a worker's figures


def create_app(
    service: Service, settings: ServerSettings, metrics: Metrics, worker: WorkerContext | None = None
) -> FastAPI:
    """Build the application around a service that is not yet started.

    `app.state.convoy` holds what routes share.

    worker: of this process among several workers.

    Raises ConfigError when the keys can't be read.
    """
    access = Access(settings)
    state = AppState(service, settings, metrics, worker=worker)
    if state.peers:
        access.count_with(state.peers.count)
    size, lag = state.cache.size if state.cache else int, state.lag.longest
    sources = Sources(service.stats, service.memory, lambda: state.ready, size, lag, service.shelf_entries)
    metrics.watch(sources)
    tracing = Tracing.to(settings.traces) if settings.traces else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        tasks = [asyncio.create_task(state.prove_models())]
        if settings.watch:
            tasks.append(asyncio.create_task(state.watch_folders()))
        # only there may signals be caught
        if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, state.reload_all)
        if state.peers:
            state.peers.join()
        async with state.lag.watching(), trimming():
            yield
        for task in tasks:
            task.cancel()
        await state.documents.close()
        if state.peers:
            state.peers.leave()
        patience = LAST_MOMENT if service.device_lost() else settings.drain_timeout
        await asyncio.to_thread(service.stop, drain=True, timeout=patience)
        await access.quotas.close()
        if tracing:
            await asyncio.to_thread(tracing.close)

    # /docs from this machine: a server without a way out still shows its page
    app = FastAPIOffline(
        redoc_url=None,
        title="Convoy",
        version=version_text(),
        lifespan=lifespan,
        generate_unique_id_function=operation_name,
    )
    app.state.convoy, app.state.access = state, access
    app.add_middleware(AccessMiddleware, access=access, contracts=CONTRACTS)
    app.add_middleware(RequestMiddleware, state=state, tracing=tracing)  # added last: outermost
    app.add_exception_handler(HTTPException, on_http_exception)
    for router in chain.from_iterable(contract.routers for contract in CONTRACTS):
        app.include_router(router)
    _describe(app, settings)
    return app


def _describe(app: FastAPI, settings: ServerSettings) -> None:
    """Have the description in OpenAPI tell this server's limits, and who may ask what."""
    doors, plain = Doors(CONTRACTS), app.openapi
    limits = {
        "texts": settings.batch_limit,
        "characters": settings.char_limit,
        "phrases": settings.phrase_limit,
        "tags": settings.tag_limit,
        "bytes": settings.body_limit,
        "file bytes": settings.file_limit,
    }

    def who(method: str, path: str) -> str:
        if doors.token_setting(re.sub(r"\{[^}]*\}", "x", path)):
            return "operator"
        return "anybody" if doors.is_open(method, path) else "key"

    def openapi() -> dict[str, Any]:
        return app.openapi_schema if app.openapi_schema else complete_schema(plain(), limits, who)

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend it


class DrainingServer(uvicorn.Server):
    """Uvicorn that, told to stop, refuses new work and answers what it has accepted before it closes."""

    def __init__(self, config: uvicorn.Config, state: AppState) -> None:
        super().__init__(config)
        self._state = state
        self._until = 0.0
        self.complete = True  # whether everything accepted was answered
        self.device_lost = False  # whether a device is
        self.own_process = False  # which it may end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._state.draining:  # told twice
            self.complete = self._state.in_flight == 0
            self.should_exit = self.force_exit = True
        elif self.own_process:  # whatever holds a thread by then
            _end_after(self._state.settings.drain_timeout + 3 * LAST_MOMENT, 1)
        self._state.draining = True
        self._until = time.monotonic() + self._state.settings.drain_timeout

    async def on_tick(self, counter: int) -> bool:
        state = self._state
        if state.service.device_lost() and not self.device_lost:
            logger.critical("a device is lost: this process answers what it can and ends with %d", LOST)
            self.device_lost = state.draining = True
            self._until = time.monotonic() + LAST_MOMENT
        if state.draining and not self.should_exit:
            late = time.monotonic() > self._until
            if late and state.in_flight:
                logger.warning("%d requests are cut short after the drain timeout", state.in_flight)
                self.complete = False
                await asyncio.to_thread(state.service.stop, drain=False, timeout=LAST_MOMENT)
            self.should_exit = late or not state.in_flight
        if state.peers:
            state.peers.tell(ready=state.ready_here, connections=len(self.server_state.connections))
            if counter % TICKS == 0 and not self.device_lost:  # what asks a lost device raises
                state.metrics.refresh()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.own_process:  # a thread that hangs must not keep the process
            _end_after(LAST_MOMENT, 0 if self.complete else 1)


def _end_after(seconds: float, code: int) -> None:
    """End the process, with its threads, if it has not ended by itself."""
    timer = threading.Timer(seconds, os._exit, [code])
    timer.daemon = True
    timer.start()


def run(settings: ServerSettings, worker: WorkerContext | None = None) -> int:
    """Load the models and serve in this process until SIGTERM or SIGINT.

    worker: of a worker among several.

    Returns 0, or 1 when accepted requests were cut short; ends the process with 70 when a device is lost.
    Raises BundleError or ConfigError when a model can't be loaded. Sets up logging; for a process of its own.
    """
    logs.set_up(settings)
    if worker:
        metrics.share(worker.metrics, worker.number)
    thrifty()
    share_threads(settings.backend, settings.share)
    figures = Metrics(worker.metrics if worker else None)
    service = Service.open(settings.models, settings.service(), figures.observer)
    for name, entry in service.shelf_entries().items():
        logger.info("%s %s: about %d MiB of memory", entry.state, name, entry.cost >> 20)
    app = create_app(service, settings, figures, worker)
    server = DrainingServer(configure(app, settings), app.state.convoy)
    server.own_process = True
    sys.setswitchinterval(SWITCH)
    server.run(_sockets(server, worker) if worker else None)
    if server.device_lost:
        logging.shutdown()
        os._exit(LOST)  # libraries that would tidy up on a lost device may hang or abort
    return 0 if server.complete else 1


def _sockets(server: DrainingServer, worker: WorkerContext) -> list[socket.socket]:
    server.config.backlog = 1  # connections that asyncio accepts in one turn
    return [Listener(worker, lambda: len(server.server_state.connections))]


def configure(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """Configure Uvicorn by its share of the settings.

    Its access log gets no query strings: they may hold keys and texts.
    """
    logging.getLogger("uvicorn.access").addFilter(without_query)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=HttpProtocol,
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.access_log,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=round(LAST_MOMENT),
    )


def without_query(record: logging.LogRecord) -> bool:
    """Keep every record, but its path without the query.

    Uvicorn's arguments: client, method, path?query, version, status.
    """
    if isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, *rest = record.args
        plain_path = str(path).partition("?")[0]
        folder, separator, _ = plain_path.partition("/download_file/")  # to know the name is to be let in
        record.args = (client, method, f"{folder}{separator}..." if separator else plain_path, *rest)
    return True
