"""The methods of the service, health and reflection, and the server on its port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from starlette.types import ASGIApp

from engine.api import ConfigError
from server.grpc.bridge import Bridge, CallFailed
from server.grpc.codec import BadMessage, parse_message, read_request, write_response
from server.grpc.messages import METHODS, PACKAGE, SERVICE, STREAMED_METHODS, make_pool, message_classes
from server.settings import ServerSettings
from server.state import AppState

logger = logging.getLogger(__name__)

SERVICE_NAME: Final = f"{PACKAGE}.{SERVICE}"
MESSAGE_OVERHEAD: Final = 65_536  # bytes that a message may have more than an HTTP body
HEALTH_SECONDS: Final = 0.5  # seconds between two checks of readiness


class SymbolPool:
    """A pool of descriptors that finds methods as symbols too, which `grpcurl describe` needs."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file


class Methods:
    """The methods of the service. Each sends a request to the application and converts its answer."""

    def __init__(self, app: ASGIApp, classes: dict[str, Any]) -> None:
        self._bridge, self._classes = Bridge(app), classes

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return self._classes["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        ready = await self._is_ready(context, "/v2/health/ready")
        return self._classes["ServerReadyResponse"](ready=ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        ready = await self._is_ready(context, f"{_model_path(request.name, request.version)}/ready")
        return self._classes["ModelReadyResponse"](ready=ready)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        answer = await self._bridge.send_request(context, "GET", "/v2")
        return self._classes["ServerMetadataResponse"](**answer.json())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        answer = await self._bridge.send_request(context, "GET", _model_path(request.name, request.version))
        return self._classes["ModelMetadataResponse"](**answer.json())

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        body, head_bytes = read_request(request)
        path = f"{_model_path(request.model_name, request.model_version)}/infer"
        answer = await self._bridge.send_request(context, "POST", path, body, head_bytes)
        return write_response(self._classes, answer, raw=bool(request.raw_input_contents))

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answer the requests of a stream in turn. A failed request gets an error message; the stream
        continues."""
        stream_response = self._classes["ModelStreamInferResponse"]
        async for request in requests:
            try:
                yield stream_response(infer_response=await self.ModelInfer(request, context))
            except (BadMessage, CallFailed) as error:
                yield stream_response(
                    error_message=str(error),
                    infer_response=self._classes["ModelInferResponse"](id=request.id),
                )

    async def _is_ready(self, context: Any, path: str) -> bool:
        """Return False if a readiness route answers 503. Raises CallFailed on other errors."""
        try:
            await self._bridge.send_request(context, "GET", path)
        except CallFailed as error:
            if error.code is grpc.StatusCode.UNAVAILABLE:
                return False
            raise
        return True


@asynccontextmanager
async def serving_grpc(app: ASGIApp, state: AppState) -> AsyncIterator[int]:
    """Serve gRPC while the application runs. At the end running calls are finished first.

    app: application that answers.
    state: shared state of the routes, with the settings.

    Yields the port. Raises ConfigError if the port can't be opened.
    """
    settings = state.settings
    pool = make_pool()
    limit = settings.body_limit + MESSAGE_OVERHEAD
    options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", int(settings.frontends > 1))])
    classes = message_classes(pool)
    server.add_generic_rpc_handlers((_handlers(Methods(app, classes), classes),))
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)  # for reflection
    reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME), server, pool=SymbolPool(pool))
    port = _listen(server, settings)
    await server.start()
    logger.info("gRPC on %s:%d", settings.host, port)
    health_task = asyncio.create_task(_update_health(servicer, state))
    try:
        yield port
    finally:
        health_task.cancel()
        await servicer.enter_graceful_shutdown()
        await server.stop(settings.drain_timeout)


def _handlers(methods: Methods, classes: dict[str, Any]) -> Any:
    """Return gRPC's handler of the service, with a handler for each method."""
    handlers = {}
    for name, (request, response) in METHODS.items():
        streams = name in STREAMED_METHODS
        make = grpc.stream_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        method = getattr(methods, name)
        handlers[name] = make(
            _stream(method, classes[request]) if streams else _unary(method, classes[request]),
            request_deserializer=None,  # its errors would have the status UNKNOWN
            response_serializer=classes[response].SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)


def _stream(method: Callable[[Any, Any], AsyncIterator[Any]], kind: Any) -> Callable[[Any, Any], Any]:
    """Parse the requests of a stream. A request that can't be parsed ends the call."""

    async def call(raw: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        requests = (parse_message(kind, message) async for message in raw)
        try:
            async for response in method(requests, context):
                yield response
        except BadMessage as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    return call


def _unary(method: Callable[[Any, Any], Awaitable[Any]], kind: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    """Parse the request of a call. An error ends the call with its status."""

    async def call(raw: bytes, context: Any) -> Any:
        try:
            return await method(parse_message(kind, raw), context)
        except BadMessage as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except CallFailed as error:
            await context.abort(error.code, str(error))

    return call


def _model_path(name: str, version: str) -> str:
    """Return the path of a model's routes. Raises CallFailed on a name that would lead to another route."""
    if not name or "/" in name or "/" in version:
        raise CallFailed(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name[:100]}'")
    return f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"


def _listen(server: Any, settings: ServerSettings) -> int:
    """Open the port, with the certificate of HTTPS if there is one, and return it. Raises ConfigError."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.grpc_port}"
    try:
        if settings.ssl_certfile is None:
            return int(server.add_insecure_port(address))
        key = (settings.ssl_keyfile or settings.ssl_certfile).read_bytes()
        pair = (key, settings.ssl_certfile.read_bytes())
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"can't serve gRPC on {address}: {error}") from error


async def _update_health(servicer: Any, state: AppState) -> None:
    """Update the status of grpc.health.v1, of the server and of the service, without end."""
    status = health_pb2.HealthCheckResponse
    while True:
        for name in ("", SERVICE_NAME):
            await servicer.set(name, status.SERVING if state.ready else status.NOT_SERVING)
        await asyncio.sleep(HEALTH_SECONDS)
