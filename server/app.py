"""The application, its one gate, and the server process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api import ConvoyError, Service, Stopping, share_threads
from server import logs, metrics
from server.access import Access, Door, on_refused
from server.allocator import thrifty
from server.cors import cors_headers
from server.crew import Listener, Place
from server.errors import INTERNAL, failure, on_http, on_refusal, refusal
from server.house import House
from server.metrics import Metrics, Sources
from server.notes import HEADER, current, note_of
from server.refused import Refused
from server.routes import (
    deepl,
    detect,
    files,
    generate,
    glossaries,
    jobs,
    kserve,
    score,
    status,
    stream,
    summarize,
    translate,
    web,
)
from server.settings import Settings
from server.tracing import Tracing

logger = logging.getLogger(__name__)

ROUTES: Final = (
    translate,
    summarize,
    stream,
    score,
    detect,
    files,
    deepl,
    glossaries,
    jobs,
    kserve,
    generate,
    status,
    web,
)
STOPPING: Final = "the server is stopping: send the request again, elsewhere or later"
LOST: Final = 70  # exit code when the device is lost: a supervisor starts the process again
LAST_MOMENT: Final = 5.0  # seconds that requests cut short get to be answered
TICKS: Final = 10  # of uvicorn's, a second together: between two copies of a worker's figures


def create_app(service: Service, settings: Settings, metrics: Metrics, place: Place | None = None) -> FastAPI:
    """The application around a service that is not yet started. `app.state.house` holds what routes share.
    place: of this process among several workers.

    Raises ConfigError when the keys can't be read.
    """
    access = Access(settings)
    house = House(service, settings, metrics, place=place)
    cached = house.cache.size if house.cache else int
    metrics.watch(Sources(service.stats, service.memory, lambda: house.ready, cached, service.shelved))
    tracing = Tracing.to(settings.traces) if settings.traces else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        canaries = asyncio.create_task(house.sing())
        if threading.current_thread() is threading.main_thread():  # only there may signals be caught
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, house.reload_all)
        if house.crew:
            house.crew.join()
        yield
        canaries.cancel()
        if house.crew:
            house.crew.leave()
        patience = LAST_MOMENT if service.lost() else settings.drain_timeout
        await asyncio.to_thread(service.stop, drain=True, timeout=patience)
        await access.quotas.close()
        if tracing:
            await asyncio.to_thread(tracing.close)

    # /docs from this machine: a server without a way out still shows its page
    app = FastAPIOffline(redoc_url=None, title="Convoy", version=status.version_text(), lifespan=lifespan)
    app.state.house, app.state.access = house, access
    app.add_middleware(Door, access=access, metrics=metrics)
    app.add_middleware(Gate, house=house, tracing=tracing)  # added last: outermost
    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(ConvoyError, on_refusal)
    app.add_exception_handler(HTTPException, on_http)
    for routes in ROUTES:
        app.include_router(routes.router)
    return app


class Gate:
    """Around every request: its note, CORS headers, no new work while draining, the one fault boundary."""

    def __init__(self, app: ASGIApp, house: House, tracing: Tracing | None = None) -> None:
        self._app, self._house, self._tracing = app, house, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        house, began, seen = self._house, time.monotonic(), 0
        if house.settings.url_prefix:  # understood with and without it, as proxies may take it off
            scope["root_path"] = house.settings.url_prefix
        cors = cors_headers(scope, house.settings.cors_origins)
        note = note_of(scope)
        token = current.set(note)
        own = [*cors, (HEADER.encode(), note.id.encode())]

        async def answer(message: Message) -> None:
            nonlocal seen
            if message["type"] == "http.response.start":
                seen = message["status"]
                closing = [(b"connection", b"close")] if house.draining else []
                message["headers"] = [*message.get("headers", []), *own, *closing]
            await send(message)

        house.in_flight += 1
        house.metrics.in_flight.inc()
        try:
            await self._pass(scope, receive, answer)
        except asyncio.CancelledError:  # the server is told twice to stop: it ends this task next
            if not seen:
                await refusal(Stopping(STOPPING))(scope, receive, answer)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if seen:  # too late for another answer
                raise
            await failure(INTERNAL, 500)(scope, receive, answer)
        finally:
            house.in_flight -= 1
            house.metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "other")
            taken = time.monotonic() - began
            house.metrics.latency.labels(route, note.model, note.ended(seen)).observe(taken)
            if self._tracing:
                self._tracing.write(scope, note, route, seen)
            current.reset(token)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        if self._house.draining and scope["method"] == "POST":
            error = Stopping(STOPPING)
            self._house.metrics.rejections.labels(error.code).inc()
            app = refusal(error)
        await app(scope, receive, send)


class Server(uvicorn.Server):
    """Uvicorn that, told to stop, refuses new work and answers what it has accepted before it closes."""

    def __init__(self, config: uvicorn.Config, house: House) -> None:
        super().__init__(config)
        self._house = house
        self._until = 0.0
        self.complete = True  # whether everything accepted was answered
        self.lost = False  # whether a device is

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._house.draining:  # told twice
            self.complete = self._house.in_flight == 0
            self.should_exit = self.force_exit = True
        self._house.draining = True
        self._until = time.monotonic() + self._house.settings.drain_timeout

    async def on_tick(self, counter: int) -> bool:
        house = self._house
        if house.service.lost() and not self.lost:
            logger.critical("a device is lost: this process answers what it can and ends with %d", LOST)
            self.lost = house.draining = True
            self._until = time.monotonic() + LAST_MOMENT
        if house.draining and not self.should_exit:
            late = time.monotonic() > self._until
            if late and house.in_flight:
                logger.warning("%d requests are cut short after the drain timeout", house.in_flight)
                self.complete = False
                await asyncio.to_thread(house.service.stop, drain=False, timeout=LAST_MOMENT)
            self.should_exit = late or not house.in_flight
        if house.crew:
            house.crew.tell(ready=house.alone_ready, connections=len(self.server_state.connections))
            if counter % TICKS == 0 and not self.lost:  # what asks a lost device raises
                house.metrics.refresh()
        return await super().on_tick(counter)


def serve(settings: Settings) -> int:
    """Load the models and serve until SIGTERM or SIGINT.

    Returns 0, or 1 when accepted requests were cut short; ends the process with 70 when a device is lost.
    Raises BundleError or ConfigError when a model can't be loaded. Sets up logging; for a process of its own.
    """
    if settings.workers == 1:
        return run(settings)
    from server.workers import supervise  # it starts processes that `run`

    return supervise(settings)


def run(settings: Settings, place: Place | None = None) -> int:
    """As `serve`, in this process. place: of a worker among several."""
    logs.set_up(settings)
    if place:
        metrics.share(place.metrics, place.number)
    thrifty()
    if settings.backend.startswith("onnx"):
        share_threads(settings.share)
    figures = Metrics(place.metrics if place else None)
    service = Service.open(settings.models, settings.service(), figures.observer)
    for name, kept in service.shelved().items():
        logger.info("%s %s: about %d MiB of memory", kept.state, name, kept.cost >> 20)
    app = create_app(service, settings, figures, place)
    server = Server(configure(app, settings), app.state.house)
    server.run(_sockets(server, place) if place else None)
    if server.lost:
        logging.shutdown()
        os._exit(LOST)  # libraries that would tidy up on a lost device may hang or abort
    return 0 if server.complete else 1


def _sockets(server: Server, place: Place) -> list[socket.socket]:
    server.config.backlog = 1  # connections that asyncio accepts in one turn
    return [Listener(place, lambda: len(server.server_state.connections))]


def configure(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Uvicorn's share of the settings. Its access log gets no query strings: they may hold keys and texts."""
    logging.getLogger("uvicorn.access").addFilter(without_query)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.access_log,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        timeout_graceful_shutdown=round(LAST_MOMENT),
    )


def without_query(record: logging.LogRecord) -> bool:
    """A filter that keeps every record. Uvicorn's arguments: client, method, path?query, version, status."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, *rest = record.args
        told = str(path).partition("?")[0]
        folder, found, _ = told.partition("/download_file/")  # to know the name is to be let in
        record.args = (client, method, f"{folder}{found}..." if found else told, *rest)
    return True
