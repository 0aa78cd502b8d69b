"""GET /translate/stream and GET /summarize/stream: for EventSource, which can only ask by query string."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.api import Stopping
from server.events import events
from server.house import house_of
from server.routes import summarize, translate
from server.routes.docs import STREAMED, errors

FAILURES: Final = (400, 404, 413, 429, 503, 504)
STOPPING: Final = "the server is stopping: send the request again, elsewhere or later"

router = APIRouter()


@router.get(
    "/translate/stream", tags=["Streaming"], response_class=Response, responses=STREAMED | errors(*FAILURES)
)
async def translate_stream(request: Request) -> Response:
    """Like POST /translate with `stream`: parameters in the query string, the answer as events."""
    _open(request)
    return await events(request, (await translate.prepared(request))[0])


@router.get(
    "/summarize/stream", tags=["Streaming"], response_class=Response, responses=STREAMED | errors(*FAILURES)
)
async def summarize_stream(request: Request) -> Response:
    """Like POST /summarize with `stream`: parameters in the query string, the answer as events."""
    _open(request)
    return await events(request, (await summarize.prepared(request))[0])


def _open(request: Request) -> None:
    """The gate refuses new POST requests while the server drains; this is as much work as those."""
    if house_of(request).draining:
        raise Stopping(STOPPING)
