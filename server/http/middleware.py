"""Around every request: its context, headers that all answers have, and the one fault boundary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api import ConvoyError, Stopping
from server.contract import Contract, path_of
from server.errors import INTERNAL, Refusal, error_response, http_response
from server.http.cors import METHODS, cors_headers
from server.http.responses import MEDIA
from server.observing.access_log import BodySizes, log_request
from server.observing.context import ID_HEADER, RequestContext, context_of, current
from server.observing.tracing import Tracing
from server.settings import ServerSettings
from server.state import AppState

logger = logging.getLogger(__name__)

# for pages that have no stricter policy of their own: /docs, which has a script in its text
POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
POLICY_HEADER: Final = (b"content-security-policy", POLICY.encode())
JSON_HEADER: Final = (b"content-type", f"{MEDIA}; charset=utf-8".encode())


class RequestMiddleware:
    """Around every request: its context, the headers of all answers, no new work while the server drains, and
    the one place where errors become answers."""

    def __init__(
        self,
        app: ASGIApp,
        state: AppState,
        contract_of: Callable[[str], Contract],
        tracing: Tracing | None = None,
    ) -> None:
        self._app, self._state, self._contract_of, self._tracing = app, state, contract_of, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, began = self._state, time.monotonic()
        if state.settings.url_prefix:  # understood with and without it, as proxies may take it off
            scope["root_path"] = state.settings.url_prefix
        context = context_of(scope)
        token = current.set(context)
        sizes = BodySizes()
        answer = _Answer(scope, send, state, context, sizes)
        if state.settings.access_log:
            receive = sizes.counting(receive)
        state.in_flight += 1
        state.metrics.in_flight.inc()
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            error = await self._error_of(inner, receive, answer)
            if error is not None:
                response = error_response(error, self._contract_of(path_of(scope)))
                await response(inner, receive, answer)
        finally:
            state.in_flight -= 1
            state.metrics.in_flight.dec()
            route = getattr(inner.get("route"), "path", "other")
            seconds = time.monotonic() - began
            outcome = context.outcome_of(answer.status)
            state.metrics.latency.labels(route, context.model, outcome).observe(seconds)
            if state.settings.access_log:
                log_request(scope, context, sizes, answer.status, seconds)
            if self._tracing:
                self._tracing.write(scope, context, route, answer.status)
            current.reset(token)

    async def _error_of(self, scope: Scope, receive: Receive, answer: _Answer) -> ConvoyError | None:
        """Answer a request, or return why there is no answer. Raises what came after its head was sent."""
        try:
            await self._pass(scope, receive, answer)
        except asyncio.CancelledError:  # the server is told twice to stop: it ends this task next
            return None if answer.status else Stopping()
        except ConvoyError as error:
            self._state.metrics.rejections.labels(error.code).inc()
            if answer.status:  # too late for another answer
                raise
            return error
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if answer.status:
                raise
            return ConvoyError(INTERNAL)
        return None

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send)
            return
        check_host(Headers(scope=scope).get("host", ""), self._state.settings)
        if self._state.draining and scope["method"] in ("POST", "PUT", "PATCH"):
            raise Stopping()
        await self._app(scope, receive, send)


class _Answer:
    """What sends an answer: with the headers that all answers have. Uvicorn sends no body for HEAD."""

    def __init__(
        self, scope: Scope, send: Send, state: AppState, context: RequestContext, sizes: BodySizes
    ) -> None:
        self.status = 0  # once the head of the answer is sent
        self._send, self._state, self._sizes = send, state, sizes
        self._headers = [
            *cors_headers(scope, state.settings.cors_origins),
            (ID_HEADER.encode(), context.id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*map(_spelled, message.get("headers", [])), *self._headers]
            present = dict(headers)
            if present.get(b"content-type", b"").startswith(b"text/html"):
                headers += [] if b"content-security-policy" in present else [POLICY_HEADER]
            if self._state.draining:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            self._sizes.sent += len(message.get("body", b""))
        await self._send(message)


def _spelled(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """The header, JSON's with its encoding: some clients, as OmegaT's, read Latin-1 where none is named."""
    return JSON_HEADER if header == (JSON_HEADER[0], MEDIA.encode()) else header


def http_exceptions(
    contract_of: Callable[[str], Contract],
) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    """Make what answers 404, 405 and the like in the shape of a path's contract."""

    async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        request_line = f"{request.method} {request.url.path[:200]}"
        if error.status_code == 405:
            methods = ", ".join(_methods_of(request))
            error.headers = {"Allow": methods}
            request_line += f", which takes {methods}"
        return http_response(error, request_line, contract_of(path_of(request.scope)))

    return on_http_exception


def _methods_of(request: Request) -> list[str]:
    """The methods of all routes of a request's path; HEAD is answered as GET is."""
    scope = {name: request.scope[name] for name in ("type", "path", "root_path")}

    def answers(method: str) -> bool:
        asked = {**scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(asked)[0] is Match.FULL for route in request.app.routes)

    return [*filter(answers, METHODS)]


def check_host(host: str, settings: ServerSettings) -> None:
    """Raise Refusal when the name that a client asks by is none of this server's.

    Else a web page whose name points here for a moment (DNS rebinding) would be served as this server's own.
    """
    names = settings.hosts
    if names is None or not host:
        return
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.casefold() in names or _is_address(name):
        return
    raise Refusal(
        "wrong_host",
        f"this server is not {name[:200]}: ask by its address, or add the name to CONVOY_ALLOWED_HOSTS",
    )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
