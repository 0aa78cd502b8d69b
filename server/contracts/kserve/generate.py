"""Triton's generate extension: one text in JSON, answered as a whole or as a stream."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from engine.api import ConvoyError, InvalidRequest, ModelInfo, Partial
from server.answering.events import Answering, Deltas, Dialect, Event, events
from server.answering.results import OnPartial, results_of
from server.contracts.kserve.models import (
    ERRORS,
    accept_request,
    head_of,
    info_of,
    message_of,
    of_model,
    warnings_of,
)
from server.contracts.kserve.tensors import MODEL_VERSION
from server.http.openapi import EVENTS, JSON, request_of
from server.http.parameters import while_connected
from server.http.responses import json_response
from server.state import state_of

STREAM: Final[dict[int | str, dict[str, Any]]] = ERRORS | {
    200: {"description": "The answer in parts, as server-sent events.", "content": EVENTS}
}

router = APIRouter(prefix="/v2", tags=["KServe"])


class GenerationAnswer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    model_version: str
    id: str | None = None
    text_output: str
    parameters: dict[str, str] | None = None


GENERATE: Final = request_of(
    {
        "id": {"type": "string"},
        "text_input": {"type": "string"},
        "parameters": {"type": "object", "description": "Decoding options; timeout in microseconds."},
    },
    ["text_input"],
    {"text_input": "Guten Morgen!", "parameters": {"beam_size": 1}},
    (JSON,),
)


@of_model(router.post, "/generate", response_model=GenerationAnswer, responses=ERRORS, openapi_extra=GENERATE)
async def generate(request: Request, model: str, version: str = MODEL_VERSION) -> Response:
    """Answer one text, like Triton's extension."""
    answer, _, _ = await _generation(request, info_of(request, model, version))
    return await json_response(await while_connected(request, answer(None)))


@of_model(router.post, "/generate_stream", response_class=Response, responses=STREAM, openapi_extra=GENERATE)
async def generate_stream(request: Request, model: str, version: str = MODEL_VERSION) -> Response:
    """Answer like `generate`, by server-sent events.

    Each `text_output` is the new part of the text; all parts together are the answer of `generate`. An error
    after the first event is an event {"error": "..."}, with the status 200.

    With the parameter `stream` false, there is one event with the whole text.
    """
    answer, head, streams = await _generation(request, info_of(request, model, version))
    answering = answer if streams else lambda on_partial: answer(None)  # without partials: one event
    return await events(request, answering, GeneratedChunks(head))


class GeneratedChunks(Dialect):
    """Events of Triton's stream: each has the fields of `head` and the new part of the text."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head, self._deltas = head, Deltas()

    def partial(self, partial: Partial) -> list[Event]:
        new = self._deltas.next(0, partial.text)
        return [self._event(new)] if new else []

    def result(self, answer: dict[str, Any]) -> list[Event]:
        text = str(answer["text_output"])
        new = self._deltas.next(0, text)
        # a stream has at least one event, so an empty text has an event too
        return [self._event(new)] if new or not text else []

    def error(self, error: ConvoyError) -> list[Event]:
        return [("", {"error": str(error)})]

    def _event(self, new: str) -> Event:
        return "", self._head | {"text_output": new}


async def _generation(request: Request, info: ModelInfo) -> tuple[Answering, dict[str, Any], bool]:
    """Return the function that answers a request, the common fields of its events, and whether to stream."""
    # this route has no binary tensors after the JSON
    state, (body, _) = state_of(request), await message_of(request)
    text = body.get("text_input")
    if not isinstance(text, str):
        raise InvalidRequest("text_input must be a string")
    head = head_of(info, body)
    options, deadline = await accept_request(request, info, [text], body)

    route = state.service.route(info.name)

    async def answer(on_partial: OnPartial | None) -> dict[str, Any]:
        results = await results_of(state, route, [text], options, deadline, on_partial)
        state.metrics.record_work(route, len(text), results)
        return head | {"text_output": results[0].text} | warnings_of(info, body)

    # only an explicit `"stream": false` prevents the stream
    return answer, head, (body.get("parameters") or {}).get("stream") is not False
