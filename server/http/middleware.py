"""The outermost middleware: context of a request, common headers, and the only error boundary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

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
from server.http.forms import check_fields
from server.http.hosts import check_host
from server.http.responses import MEDIA
from server.observing.access_log import BodySizes, key_of, log_request, shown_path
from server.observing.context import ID_HEADER, RequestContext, context_of, current, route_of
from server.observing.tracing import Tracing
from server.state import AppState

logger = logging.getLogger(__name__)

MAX_PATH: Final = 4_096  # characters; each route compares the path with its pattern
# for pages without a stricter policy of their own: /docs, which has an inline script
POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
POLICY_HEADER: Final = (b"content-security-policy", POLICY.encode())
JSON_HEADER: Final = (b"content-type", f"{MEDIA}; charset=utf-8".encode())


class RequestMiddleware:
    """Sets up the context of each request, adds common headers, and turns errors into responses.

    While the server drains it refuses new work.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: AppState,
        contract_of: Callable[[str], Contract],
        tracing: Tracing | None = None,
    ) -> None:
        self._app, self._state, self._contract_of, self._tracing = app, state, contract_of, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and record its metrics, log line and trace."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = self._state
        if state.settings.url_prefix:  # requests may lack the prefix, because proxies may remove it
            scope["root_path"] = state.settings.url_prefix
        context = context_of(scope)
        token = current.set(context)
        span = self._tracing.begin(scope, context) if self._tracing else None
        sizes = BodySizes()
        answer = _Answer(scope, send, state, context, sizes)
        if state.settings.access_log:
            receive = sizes.counting(receive)
        state.in_flight += 1
        state.metrics.in_flight.inc()
        # routes answer HEAD like GET
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            error = await self._error_of(inner, receive, answer)
            if error is not None:
                response = error_response(error, self._contract_of(path_of(scope)))
                await response(inner, receive, answer)
        finally:
            state.in_flight -= 1
            state.metrics.in_flight.dec()
            route = route_of(inner)
            seconds = time.monotonic() - context.started
            outcome = context.outcome_of(answer.status)
            state.metrics.latency.labels(route, context.model, outcome).observe(seconds)
            visitor = scope.get("state", {}).get("visitor")
            if state.settings.metrics_by_key and visitor:
                state.metrics.record_key(key_of(visitor.name), outcome, visitor.charged)
            if state.settings.access_log:
                log_request(scope, context, sizes, answer.status, seconds)
            if self._tracing and span:
                self._tracing.end(span, scope, context, route, answer.status)
            current.reset(token)

    async def _error_of(self, scope: Scope, receive: Receive, answer: _Answer) -> ConvoyError | None:
        """Answer a request, or return the error to answer with. Raises errors after the response began."""
        try:
            await self._dispatch(scope, receive, answer)
        except asyncio.CancelledError:  # a second stop signal cancels running requests
            return None if answer.status else Stopping()
        except ConvoyError as error:
            self._state.metrics.record_rejection(error.code, scope)
            if answer.status:  # the response has started
                raise
            return error
        except Exception:
            logger.exception("%s %s failed", quote(scope["method"]), shown_path(scope["path"]))
            if answer.status:
                raise
            return ConvoyError(INTERNAL)
        return None

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer OPTIONS, check the host, refuse new work while draining; pass other requests on."""
        if scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send)
            return
        if len(scope["path"]) > MAX_PATH:
            message = f"the path is longer than {MAX_PATH} characters: send texts in the body"
            raise Refusal("long_path", message)
        check_fields(scope["query_string"])
        check_host(Headers(scope=scope).get("host", ""), self._state.settings)
        if self._state.draining and scope["method"] in ("POST", "PUT", "PATCH"):
            raise Stopping()
        await self._app(scope, receive, send)


class _Answer:
    """A `send` that adds the common headers. Uvicorn sends no body for HEAD."""

    def __init__(
        self, scope: Scope, send: Send, state: AppState, context: RequestContext, sizes: BodySizes
    ) -> None:
        self.status = 0  # status of the response, once its head is sent
        self._send, self._state, self._sizes = send, state, sizes
        self._headers = [
            *cors_headers(scope, state.settings.cors_origins),
            (ID_HEADER.encode(), context.id.encode()),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, message: Message) -> None:
        """Send a message of the response, with the common headers if it is the first."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*map(_with_charset, message.get("headers", [])), *self._headers]
            by_name = dict(headers)
            if by_name.get(b"content-type", b"").startswith(b"text/html"):
                headers += [] if b"content-security-policy" in by_name else [POLICY_HEADER]
            if self._state.draining:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            self._sizes.sent += len(message.get("body", b""))
        await self._send(message)


def _with_charset(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return a header, with the charset of JSON: some clients (OmegaT) assume Latin-1 without it."""
    return JSON_HEADER if header == (JSON_HEADER[0], MEDIA.encode()) else header


def http_exceptions(
    contract_of: Callable[[str], Contract],
) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    """Return a handler that answers 404, 405 and similar errors in the shape of a path's contract."""

    async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
        """Answer the error of a route; 405 names the methods of the path."""
        assert isinstance(error, HTTPException)
        request_line = f"{request.method} {request.url.path[:200]}"
        if error.status_code == 405:
            methods = ", ".join(_methods_of(request))
            error.headers = {"Allow": methods}
            request_line += f", which takes {methods}"
        return http_response(error, request_line, contract_of(path_of(request.scope)))

    return on_http_exception


def _methods_of(request: Request) -> list[str]:
    """Return the methods of all routes of a request's path. HEAD is answered like GET."""
    scope = {name: request.scope[name] for name in ("type", "path", "root_path")}

    def answers(method: str) -> bool:
        tried = {**scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(tried)[0] is Match.FULL for route in request.app.routes)

    return [*filter(answers, METHODS)]
