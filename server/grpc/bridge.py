"""A call as a request to the application, which checks keys and limits, charges, counts and answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import grpc
from starlette.types import ASGIApp, Message, Scope

MAX_SECONDS: Final = 1e9  # a deadline after more is none
# statuses of HTTP: of gRPC
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
# of a call's metadata, what the application is told
FORWARDED: Final = frozenset({"authorization", "x-api-key", "x-request-id", "x-request-timeout"})


class CallFailed(Exception):
    """An answer that is an error: `code` is gRPC's."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What the application has answered.

    headers: names in lower case.
    body: whole.
    """

    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Bridge:
    """Asks the application on behalf of calls."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(
        self, context: Any, method: str, path: str, body: bytes = b"", head_bytes: int | None = None
    ) -> HttpAnswer:
        """Ask as a client over HTTP would, and wait for the answer; a call that is cancelled goes away.

        context: of the call.
        method: of HTTP.
        path: of the route.
        body: of the request.
        head_bytes: bytes of the body that are JSON, where tensors follow.

        Raises CallFailed on an answer that is an error.
        """
        headers = _headers(context)
        if head_bytes is not None:
            headers["inference-header-content-length"] = str(head_bytes)
        scope = _scope(context, method, path, headers)
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone, answer = asyncio.Event(), _Collected()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, answer.send)
        finally:
            gone.set()
        if answer.status >= 400:
            code = STATUS_CODES.get(answer.status, grpc.StatusCode.INTERNAL)
            raise CallFailed(code, answer.message())
        return HttpAnswer(answer.headers, answer.body)


class _Collected:
    """An answer as it comes."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 500, dict[str, str](), b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")

    def message(self) -> str:
        try:
            values = json.loads(self.body)
            return str(values.get("error") or values)
        except (ValueError, AttributeError):
            return self.body.decode("utf-8", "replace")


def _headers(context: Any) -> dict[str, str]:
    """Keys and ids of a call's metadata, and its deadline, which the application keeps where it is sooner."""
    metadata = context.invocation_metadata() or ()
    headers = {key: value for key, value in metadata if key in FORWARDED and isinstance(value, str)}
    seconds = context.time_remaining()
    if seconds is not None and seconds < MAX_SECONDS:
        limit = headers.get("x-request-timeout")
        if limit is None or not _sooner(limit, seconds):
            headers["x-request-timeout"] = str(max(seconds, 1e-6))
    return headers


def _sooner(limit: str, seconds: float) -> bool:
    """Whether the client's own limit is the shorter; one that is no number is refused by the application."""
    try:
        return float(limit) < seconds
    except ValueError:
        return True


def _scope(context: Any, method: str, path: str, headers: dict[str, str]) -> Scope:
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
    """The address in gRPC's name of a client: ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
