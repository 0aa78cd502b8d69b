"""Sends a gRPC call as a request to the application, which checks keys and limits, charges, counts and
answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import grpc
from starlette.types import ASGIApp, Message, Scope

MAX_SECONDS: Final = 1e9  # a longer deadline counts as no deadline
# HTTP status: gRPC status
STATUS_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# metadata of a call that become headers of the request
FORWARDED: Final = frozenset({"authorization", "x-api-key", "x-request-id", "x-request-timeout"})


class CallFailed(Exception):
    """An error answer. `code` is its gRPC status."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer of the application.

    headers: value of each header, by its name in lower case.
    body: whole body.
    """

    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Bridge:
    """Sends calls to the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def send_request(
        self, context: Any, method: str, path: str, body: bytes = b"", head_bytes: int | None = None
    ) -> HttpAnswer:
        """Send a request as an HTTP client would, and return the answer. A cancelled call disconnects.

        context: context of the call.
        method: HTTP method.
        path: path of the route.
        body: body of the request.
        head_bytes: number of JSON bytes at the start of the body, if tensors follow them.

        Raises CallFailed on an error answer.
        """
        headers = _headers(context)
        if head_bytes is not None:
            headers["inference-header-content-length"] = str(head_bytes)
        scope = _scope(context, method, path, headers)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        finished, answer = asyncio.Event(), _Collected()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await finished.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, answer.send)
        finally:
            finished.set()
        if answer.status >= 400:
            code = STATUS_CODES.get(answer.status, grpc.StatusCode.INTERNAL)
            raise CallFailed(code, answer.message())
        return HttpAnswer(answer.headers, answer.body)


class _Collected:
    """Collects the messages of an answer."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 500, dict[str, str](), b""

    async def send(self, message: Message) -> None:
        """Collect a message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")

    def message(self) -> str:
        """Return the error message of the body."""
        try:
            values = json.loads(self.body)
            return str(values.get("error") or values)
        except (ValueError, AttributeError):
            return self.body.decode("utf-8", "replace")


def _headers(context: Any) -> dict[str, str]:
    """Return headers for a call: keys and ids of its metadata, and the sooner of its two deadlines."""
    metadata = context.invocation_metadata() or ()
    headers = {key: value for key, value in metadata if key in FORWARDED and isinstance(value, str)}
    # gRPC's own deadline; the header x-request-timeout is the other one
    seconds = context.time_remaining()
    if seconds is not None and seconds < MAX_SECONDS:
        limit = headers.get("x-request-timeout")
        if limit is None or not _sooner(limit, seconds):
            # the application refuses 0 and negative numbers
            headers["x-request-timeout"] = str(max(seconds, 1e-6))
    return headers


def _sooner(limit: str, seconds: float) -> bool:
    """Return whether the client's own limit is shorter. True if it is no number: the application refuses
    it."""
    try:
        return float(limit) < seconds
    except ValueError:
        return True


def _scope(context: Any, method: str, path: str, headers: dict[str, str]) -> Scope:
    """Return the ASGI scope of a call."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        "client": (_address(context.peer()), 0),
        "server": None,
        "state": {},
    }


def _address(peer: str) -> str:
    """Return the address in gRPC's name of a client: ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
