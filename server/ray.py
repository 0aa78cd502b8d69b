"""The server on a Ray cluster: `serve run server.ray:app` (extra `ray`).

A replica runs the application of `server.app`, with an engine for each model. Ray starts and stops replicas
as the number of waiting requests changes. A front without models reads each request and passes it to one
replica, and once to another if that replica dies before its answer begins. Requests for metrics and orders to
models go to every replica. Settings are those of `convoy serve`, and CONVOY_RAY_<NAME> for Ray's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from engine.api import ConvoyError, Service, share_threads
from server.app import create_app
from server.callers.access import PathRules
from server.contract import path_of
from server.contracts import contract_of, served_contracts
from server.errors import Refusal, error_response
from server.http.parameters import FORM_OVERHEAD, body_of
from server.observing.metrics import Metrics
from server.process.peers import LAST_SECONDS
from server.settings import ServerSettings

logger = logging.getLogger(__name__)

SCOPE: Final = (  # keys of the ASGI scope that are sent to a replica
    "type",
    "asgi",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
)
MAX_TRIES: Final = 2
BUSY: Final = "all replicas are busy: try again later"
LOST: Final = "the replica that had the request ended, and so did the next: send it again"
POLL_SECONDS: Final = 0.05
Head = tuple[int, list[tuple[bytes, bytes]]]


class RaySettings(BaseSettings):
    """Settings of Ray, by environment variables CONVOY_RAY_<NAME>."""

    model_config = SettingsConfigDict(
        env_prefix="CONVOY_RAY_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    min_replicas: int = Field(1, ge=1, description="Least number of replicas.")
    max_replicas: int = Field(2, ge=1, description="Greatest number of replicas.")
    target_requests: float = Field(
        16.0, gt=0, description="Running and waiting requests of a replica above which Ray starts another."
    )
    most_requests: int = Field(
        256, ge=1, description="Greatest number of requests that a replica runs at once."
    )
    most_waiting: int = Field(
        1024, ge=-1, description="Greatest number of requests that wait for a replica; others get 503."
    )
    upscale_delay: float = Field(10.0, ge=0, description="Seconds of load before another replica starts.")
    downscale_delay: float = Field(300.0, ge=0, description="Seconds of low load before a replica stops.")
    cpus: float | None = Field(
        None, gt=0, description="Processors of a replica; default: the number of its threads."
    )
    gpus: float = Field(0.0, ge=0, description="GPUs of a replica; 0.5: two replicas share one.")
    fronts: int = Field(
        2, ge=1, description="Number of fronts. While the only one is started again, no request is answered."
    )


class Replica:
    """The application, called by Ray instead of through connections."""

    async def __init__(self, settings: ServerSettings) -> None:  # type: ignore[misc]  # Ray awaits it
        """Start the application; return when every model is ready. Raises BundleError or ConfigError."""
        figures = Metrics()
        service = await asyncio.to_thread(_open_service, settings, figures)
        inner = create_app(service, settings, figures)
        self._state = inner.state.convoy
        self._app = ProxyHeadersMiddleware(inner, list(settings.trusted_proxies))  # type: ignore[arg-type]
        self._lifespan = inner.router.lifespan_context(inner)
        await self._lifespan.__aenter__()
        while not self._state.ready:
            await asyncio.sleep(POLL_SECONDS)

    async def __del__(self) -> None:
        """Stop the application, after Ray has let running requests finish."""
        self._state.draining = True
        await self._lifespan.__aexit__(None, None, None)

    def check_health(self) -> None:
        """Raise RuntimeError when an engine has stopped; Ray then replaces this replica."""
        if not self._state.service.healthy():
            raise RuntimeError("an engine has stopped")

    async def respond(self, scope: dict[str, Any], body: bytes) -> AsyncIterator[Head | bytes]:
        """Yield status and headers, then the parts of the response's body.

        scope: ASGI scope of the request.
        body: whole body of the request.

        Closing the generator cancels the request.
        """
        parts: asyncio.Queue[Message | None] = asyncio.Queue()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        finished = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await finished.wait()
            return {"type": "http.disconnect"}

        task = asyncio.create_task(self._app(_restore_scope(scope), receive, parts.put))  # type: ignore[arg-type]
        task.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (message := await parts.get()) is not None:
                if message["type"] == "http.response.start":
                    yield message["status"], list(message["headers"])
                elif message.get("body"):
                    yield message["body"]
            task.result()
        finally:
            finished.set()
            _, pending = await asyncio.wait([task], timeout=LAST_SECONDS)
            for late in pending:
                late.cancel()

    async def whole(self, scope: dict[str, Any], body: bytes) -> tuple[str, Head, bytes]:
        """Return this replica's name and its whole response."""
        head, parts = None, []
        async for part in self.respond(scope, body):
            if isinstance(part, bytes):
                parts.append(part)
            else:
                head = part
        assert head is not None
        return serve.get_replica_context().replica_id.unique_id, head, b"".join(parts)


class Front:
    """Passes requests to replicas; it has no model."""

    def __init__(self, replicas: Any, settings: ServerSettings) -> None:
        self._replicas, self._streams = replicas, replicas.options(stream=True)
        self._contracts = served_contracts(settings.plugins)
        self._rules = PathRules(self._contracts)
        self._limit = max(settings.body_limit, settings.file_limit + FORM_OVERHEAD)

    async def __call__(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except ConvoyError as error:
            return error_response(error, contract_of(path_of(request.scope), self._contracts))

    async def _answer(self, request: Request) -> Response:
        """Pass a request to one replica, or an order or /metrics to all. Raises ConvoyError."""
        body = await body_of(request, self._limit)
        scope = {name: request.scope[name] for name in SCOPE if name in request.scope}
        try:
            if scope["path"] == "/metrics" or (scope["method"] == "POST" and self._is_order(path_of(scope))):
                return await self._ask_all(scope, body)
            return await self._ask_one(scope, body)
        except BackPressureError:
            raise Refusal("unavailable", BUSY, {"Retry-After": "1"}) from None
        except RayActorError:
            raise Refusal("unavailable", LOST, {"Retry-After": "1"}) from None

    def _is_order(self, path: str) -> bool:
        """Return whether a path is an order to models, which every replica must execute."""
        return self._rules.token_setting(path) == "admin_token"

    async def _ask_one(self, scope: dict[str, Any], body: bytes) -> Response:
        """Return the response of a replica; of another if the first dies early. Raises RayActorError."""
        for attempt in range(1, MAX_TRIES + 1):
            parts = self._streams.respond.remote(scope, body)
            try:
                status, headers = await anext(parts)
                break
            except RayActorError:
                logger.warning("a replica died during %s %s", scope["method"], scope["path"])
                if attempt == MAX_TRIES:
                    raise
            except asyncio.CancelledError:
                parts.cancel()
                raise
        answer = StreamingResponse(_relay(parts), status)
        answer.raw_headers = headers
        return answer

    async def _ask_all(self, scope: dict[str, Any], body: bytes) -> Response:
        """Send a request to all; return the first error, or the first response, or the metrics of all."""
        answers = await self._replicas.broadcast("whole", scope, body).results_async()
        failed = [answer for answer in answers if answer[1][0] != 200]
        # an answer of `whole`: name of the replica, status and headers, body
        name, (status, headers), content = (failed or answers)[0]
        if scope["path"] == "/metrics" and not failed:
            content = together({name: content.decode() for name, _, content in answers})
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            headers.append((b"content-length", str(len(content)).encode()))
        answer = Response(content, status)
        answer.raw_headers = headers
        return answer


class _Together(Collector):
    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return list(self._metrics.values())


def together(texts: Mapping[str, str]) -> bytes:
    """Merge the metrics of several replicas into one text, with the replica as a label of each series.

    texts: metrics in Prometheus' text format, by replica.
    """
    families: dict[str, Metric] = {}
    for replica, text in texts.items():
        for metric in text_string_to_metric_families(text):
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, sample.labels | {"replica": replica}, sample.value)
    registry = CollectorRegistry()
    registry.register(_Together(families))
    return generate_latest(registry)


def build(settings: ServerSettings, ray: RaySettings) -> serve.Application:
    """Return the Ray Serve application. A new version replaces replicas one by one, without lost requests.

    settings: settings of the server.
    ray: settings of Ray.
    """
    replicas = serve.deployment(
        Replica,
        name="convoy",
        ray_actor_options={"num_cpus": ray.cpus or settings.share, "num_gpus": ray.gpus},
        max_ongoing_requests=ray.most_requests,
        max_queued_requests=ray.most_waiting,
        autoscaling_config={
            "min_replicas": ray.min_replicas,
            "max_replicas": max(ray.min_replicas, ray.max_replicas),
            "target_ongoing_requests": ray.target_requests,
            "upscale_delay_s": ray.upscale_delay,
            "downscale_delay_s": ray.downscale_delay,
        },
        graceful_shutdown_timeout_s=settings.drain_timeout,
        health_check_period_s=5.0,
    )
    front = serve.deployment(
        Front,
        name="front",
        num_replicas=ray.fronts,
        ray_actor_options={"num_cpus": 0.1},
        max_ongoing_requests=ray.most_requests * max(ray.min_replicas, ray.max_replicas) + ray.most_waiting,
        graceful_shutdown_timeout_s=settings.drain_timeout,
    )
    return front.bind(replicas.bind(settings), settings)


async def _relay(parts: Any) -> AsyncIterator[bytes]:
    """Yield the parts of a response; cancel the rest when the client disconnects."""
    try:
        async for part in parts:
            yield part
    finally:
        parts.cancel()


def _restore_scope(scope: dict[str, Any]) -> Scope:
    """Return a scope with the tuples that ASGI requires."""
    return scope | {"headers": [tuple(pair) for pair in scope["headers"]], "state": {}}


def _open_service(settings: ServerSettings, figures: Metrics) -> Service:
    share_threads(settings.place().backend, settings.share)
    return Service.open(settings.models, settings.service(), figures.observer)


def __getattr__(name: str) -> serve.Application:
    """Build `app` on first access, so that tests can import this module and build other applications."""
    if name == "app":
        environment: dict[str, Any] = {}  # both read their values from the environment
        return build(ServerSettings(**environment), RaySettings(**environment))
    raise AttributeError(name)
