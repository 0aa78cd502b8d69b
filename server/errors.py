"""From errors to HTTP: the one status table, and the only shape an error ever has: {"error": "..."}."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.api import (
    Cancelled,
    ConvoyError,
    DeadlineExceeded,
    ExecutorFailed,
    InvalidRequest,
    Overloaded,
    Stopping,
    TooLarge,
    UnknownModel,
)

STATUS: Final[Mapping[type[ConvoyError], int]] = {
    InvalidRequest: 400,
    UnknownModel: 404,
    TooLarge: 413,
    Overloaded: 429,
    Cancelled: 499,  # nobody reads it: the client has gone
    ExecutorFailed: 500,
    Stopping: 503,
    DeadlineExceeded: 504,
}
INTERNAL: Final = "internal error: see the server's log"


def failure(message: str, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


def refusal(error: ConvoyError) -> JSONResponse:
    """The response for an error; Overloaded says when to come back, in whole seconds."""
    status = next((STATUS[kind] for kind in type(error).mro() if kind in STATUS), 500)
    headers = {"Retry-After": str(math.ceil(error.retry_after))} if isinstance(error, Overloaded) else None
    return failure(str(error), status, headers)


async def on_refusal(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ConvoyError)
    request.app.state.house.metrics.rejections.labels(error.code).inc()
    return refusal(error)


async def on_http(request: Request, error: Exception) -> JSONResponse:
    """404, 405 and the like, in our shape."""
    assert isinstance(error, HTTPException)
    return failure(
        f"{error.detail}: {request.method} {request.url.path[:200]}", error.status_code, error.headers
    )
