"""From errors to HTTP: the one status table, and the shape of an error, which follows the route.

{"error": "..."} is LibreTranslate's and KServe's, {"message": "..."} is DeepL's; where under /v2 nobody knows
whose client asks, there are both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from engine.api import (
    Cancelled,
    ConvoyError,
    DeadlineExceeded,
    DeviceLost,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    TooLarge,
    Unavailable,
    UnknownModel,
    WouldBeLate,
)

STATUS: Final[Mapping[type[ConvoyError], int]] = {
    InvalidRequest: 400,
    UnknownModel: 404,
    TooLarge: 413,
    Overloaded: 429,
    Cancelled: 499,  # nobody reads it: the client has gone
    ExecutorFailed: 500,
    Stopping: 503,
    Unavailable: 503,
    DeviceLost: 503,
    WouldBeLate: 503,
    DeadlineExceeded: 504,
}
INTERNAL: Final = "internal error: see the server's log"


DEEPL: Final = ("translate", "languages", "usage", "document", "glossaries", "glossary-language-pairs")
KSERVE: Final = ("health", "models", "repository")
FULL: Final = 503  # what KServe's clients know as "come back later"


class Failure(JSONResponse):
    """An error; its shape and, for KServe, its status are those of the route it answers."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__({"error": message}, status, headers)
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = names_of(path_of(scope))
        if "message" in names:
            self.body = self.render(dict.fromkeys(names, self._message))
            self.headers["content-length"] = str(len(self.body))
        elif self.status_code == STATUS[Overloaded] and path_of(scope).startswith("/v2"):
            self.status_code = FULL
        await super().__call__(scope, receive, send)


def names_of(path: str) -> tuple[str, ...]:
    """The keys of an error's message under a path."""
    first, _, rest = path.strip("/").partition("/")
    room = rest.partition("/")[0]
    if first != "v2" or not room or room in KSERVE:
        return ("error",)
    return ("message",) if room in DEEPL else ("message", "error")


def path_of(scope: Scope) -> str:
    """The path without the prefix that the server is mounted under."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path


def failure(message: str, status: int, headers: Mapping[str, str] | None = None) -> Failure:
    return Failure(message, status, headers)


def refusal(error: ConvoyError) -> Failure:
    """The response for an error; Overloaded says when to come back, in whole seconds."""
    status = next((STATUS[kind] for kind in type(error).mro() if kind in STATUS), 500)
    headers = {"Retry-After": str(math.ceil(error.retry_after))} if isinstance(error, Overloaded) else None
    return failure(str(error), status, headers)


async def on_refusal(request: Request, error: Exception) -> Failure:
    assert isinstance(error, ConvoyError)
    request.app.state.house.metrics.rejections.labels(error.code).inc()
    return refusal(error)


async def on_http(request: Request, error: Exception) -> Failure:
    """404, 405 and the like, in our shape."""
    assert isinstance(error, HTTPException)
    return failure(
        f"{error.detail}: {request.method} {request.url.path[:200]}", error.status_code, error.headers
    )
