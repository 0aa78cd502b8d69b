"""The application, its one gate, and the server process."""

from __future__ import annotations

import asyncio
import logging
import os
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
from server.errors import INTERNAL, failure, on_http, on_refusal, refusal
from server.house import House
from server.metrics import Metrics
from server.routes import detect, status, summarize, translate
from server.settings import Settings

logger = logging.getLogger(__name__)

CORS: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"Authorization, Content-Type"),
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-max-age", b"1728000"),
]
ROUTES: Final = (translate, summarize, detect, status)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS"})  # others share a label
STOPPING: Final = "the server is stopping: send the request again, elsewhere or later"
LAST_MOMENT: Final = 5.0  # seconds that requests cut short get to be answered


def create_app(service: Service, settings: Settings, metrics: Metrics) -> FastAPI:
    """The application around a service that is not yet started. `app.state.house` holds what routes share."""
    house = House(service, settings, metrics)
    metrics.watch(service.stats)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        canaries = asyncio.create_task(house.sing())
        yield
        canaries.cancel()
        await asyncio.to_thread(service.stop, drain=True, timeout=settings.drain_timeout)

    # /docs from this machine: a server without a way out still shows its page
    app = FastAPIOffline(redoc_url=None, title="Convoy", version=status.version_text(), lifespan=lifespan)
    app.state.house = house
    app.add_middleware(Gate, house=house)
    app.add_exception_handler(ConvoyError, on_refusal)
    app.add_exception_handler(HTTPException, on_http)
    for routes in ROUTES:
        app.include_router(routes.router)
    return app


class Gate:
    """Around every request: CORS headers, latency, no new work while draining, and the one fault boundary."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app, self._house = app, house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        house, began, seen = self._house, time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal seen
            if message["type"] == "http.response.start":
                seen = message["status"]
                closing = [(b"connection", b"close")] if house.draining else []
                message["headers"] = [*message.get("headers", []), *CORS, *closing]
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
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = getattr(scope.get("route"), "path", "other")
            taken = time.monotonic() - began
            house.metrics.latency.labels(method, route, str(seen)).observe(taken)

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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._house.draining:  # told twice
            self.complete = self._house.in_flight == 0
            self.should_exit = self.force_exit = True
        self._house.draining = True
        self._until = time.monotonic() + self._house.settings.drain_timeout

    async def on_tick(self, counter: int) -> bool:
        house = self._house
        if house.draining and not self.should_exit:
            late = time.monotonic() > self._until
            if late and house.in_flight:
                logger.warning("%d requests are cut short after the drain timeout", house.in_flight)
                self.complete = False
                await asyncio.to_thread(house.service.stop, drain=False, timeout=LAST_MOMENT)
            self.should_exit = late or not house.in_flight
        return await super().on_tick(counter)


def serve(settings: Settings) -> int:
    """Load the models and serve until SIGTERM or SIGINT.

    Returns 0, or 1 when accepted requests were cut short. Raises BundleError or ConfigError when a model
    can't be loaded. Sets up logging; for a process of its own.
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if settings.backend == "onnx":
        share_threads(settings.threads or len(os.sched_getaffinity(0)))
    metrics = Metrics()
    service = Service.open(settings.models, settings.service(), metrics.observer)
    for info in service.models():
        logger.info("loaded %s: %s from %s to %s", info.name, info.task, info.source, info.target)
    app = create_app(service, settings, metrics)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level=settings.log_level,
        access_log=settings.access_log,
        server_header=False,
        timeout_graceful_shutdown=round(LAST_MOMENT),
    )
    server = Server(config, app.state.house)
    server.run()
    return 0 if server.complete else 1
