"""GET /translate/stream and GET /summarize/stream: for EventSource, which can only ask by query string."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.contracts.convoy import summarize
from server.contracts.libretranslate import translate
from server.events import events
from server.openapi import STREAMED, errors, fields_of, in_query
from server.schemas import SummarizeRequest, TranslateRequest
from server.state import refuse_while_draining

FAILURES: Final = (400, 404, 413, 429, 503, 504)

router = APIRouter()


@router.get(
    "/translate/stream",
    tags=["Streaming"],
    response_class=Response,
    responses=STREAMED | errors(*FAILURES),
    openapi_extra={"parameters": in_query(*fields_of(TranslateRequest, ("source", "target", "format")))},
)
async def translate_stream(request: Request) -> Response:
    """Translate as POST /translate with `stream`: parameters in the query string, the answer as events."""
    refuse_while_draining(request)
    return await events(request, (await translate.prepare(request))[0])


@router.get(
    "/summarize/stream",
    tags=["Streaming"],
    response_class=Response,
    responses=STREAMED | errors(*FAILURES),
    openapi_extra={"parameters": in_query(*fields_of(SummarizeRequest))},
)
async def summarize_stream(request: Request) -> Response:
    """Summarize as POST /summarize with `stream`: parameters in the query string, the answer as events."""
    refuse_while_draining(request)
    return await events(request, (await summarize.prepare(request))[0])
