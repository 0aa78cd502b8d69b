"""Triton's generate extension: one text in JSON, answered at once or as it grows."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from engine.api import InvalidRequest, ModelInfo, Partial
from server.contracts.kserve.models import ERRORS, accept_request, head_of, info_of, message_of, of_model
from server.contracts.kserve.tensors import VERSION
from server.events import Answering, Dialect, Event, OnPartial, answer_json, events, results_of
from server.openapi import EVENTS, JSON, request_of
from server.parameters import while_connected
from server.responses import MEDIA
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
async def generate(request: Request, model: str, version: str = VERSION) -> Response:
    """Answer one text, as Triton's extension has it."""
    work, _, _ = await _generation(request, info_of(request, model, version))
    return Response(await while_connected(request, answer_json(work)), media_type=MEDIA)


@of_model(router.post, "/generate_stream", response_class=Response, responses=STREAM, openapi_extra=GENERATE)
async def generate_stream(request: Request, model: str, version: str = VERSION) -> Response:
    """Do the same as `generate` by server-sent events.

    Each `text_output` is what is new, so that all of them together are the answer of `generate`. A failure
    after the first event is an event {"error": "..."}, with the status 200.

    The parameter `stream`, false, asks for one event with all of it.
    """
    work, head, streams = await _generation(request, info_of(request, model, version))
    return await events(request, work if streams else lambda on_partial: work(None), Chunks(head))


class Chunks(Dialect):
    """Triton's stream: events without names, each with the next part of the text."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head, self._told = head, ""

    def partial(self, partial: Partial) -> Event | None:
        return self._next(partial.text) if partial.text != self._told else None

    def result(self, answer: dict[str, Any]) -> Event | None:
        text = str(answer["text_output"])
        return self._next(text) if text != self._told or not text else None

    def error_event(self, message: str) -> Event:
        return "", {"error": message}

    def _next(self, text: str) -> Event:
        assert text.startswith(self._told)
        new, self._told = text[len(self._told) :], text
        return "", self._head | {"text_output": new}


async def _generation(request: Request, info: ModelInfo) -> tuple[Answering, dict[str, Any], bool]:
    """What answers a checked request, the head of its answers, and whether they may come in parts."""
    state, (body, _) = state_of(request), await message_of(request)
    text = body.get("text_input")
    if not isinstance(text, str):
        raise InvalidRequest("text_input must be a string")
    head = head_of(info, body)
    options, deadline = await accept_request(request, info, [text], body)

    async def work(on_partial: OnPartial | None) -> dict[str, Any]:
        results = await results_of(state, info.name, [text], options, deadline, on_partial)
        state.metrics.record_work(info.name, results)
        return head | {"text_output": results[0].text}

    return work, head, (body.get("parameters") or {}).get("stream") is not False
