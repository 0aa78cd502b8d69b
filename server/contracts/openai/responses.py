"""POST /v1/responses: the text is the last user message of `input`, instructions name the task."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from engine.api import ConvoyError, Partial, TextResult
from server.answering.chats import ANY_MODEL, accept_chat, read_messages
from server.answering.events import Deltas, Dialect, Event, events
from server.answering.results import OnPartial
from server.contract import Fault
from server.contracts.openai.answers import OpenAIErrorAnswer, error_body, usage_of
from server.contracts.openai.tasks import (
    IDLE,
    UNMET,
    UNSUPPORTED_OF_RESPONSES,
    ResponseFields,
    read_values,
    warnings_of,
)
from server.errors import STATUSES, InvalidParameter
from server.http.openapi import EVENTS, JSON, errors, properties_of, request_of
from server.http.parameters import while_connected
from server.http.responses import json_response
from server.http.schemas import validate
from server.http.unread import with_warnings

router = APIRouter(prefix="/v1", tags=["OpenAI"])

READ: Final = frozenset({"input", *ResponseFields.model_fields, *UNSUPPORTED_OF_RESPONSES, *UNMET, *IDLE})
CONTENT_TYPES: Final = ("input_text", "output_text", "text")
INPUT: Final = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "object"}, "minItems": 1},
    ],
    "description": "A text, or messages: the last one of the role `user` is the text.",
}


class ResponseAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    status: str
    model: str
    output: list[dict[str, Any]]


class ResponseEvents(Dialect):
    """The events of a streamed response; each has its type and number."""

    def __init__(self, head: Mapping[str, Any], item: str, warnings: Mapping[str, str]) -> None:
        self._head, self._item, self._warnings = head, item, warnings
        self._deltas, self._number, self._text = Deltas(), 0, ""

    def partial(self, partial: Partial) -> list[Event]:
        new = self._deltas.next(0, partial.text)
        self._text = partial.text
        return (
            [*self._begin(), self._event("response.output_text.delta", **self._place(), delta=new)]
            if new
            else []
        )

    def result(self, answer: dict[str, Any]) -> list[Event]:
        """Return the rest of the text, the ends of its parts, and the whole response."""
        (result,) = answer["results"]
        part, whole = _part(result.text), _response(self._head, self._item, result)
        place = self._place()
        return [
            *self._begin(),
            *self.partial(Partial(0, result.text)),
            self._event("response.output_text.done", **place, text=result.text),
            self._event("response.content_part.done", **place, part=part),
            self._event("response.output_item.done", output_index=0, item=whole["output"][0]),
            self._event("response.completed", response=with_warnings(whole, self._warnings)),
        ]

    def error(self, error: ConvoyError) -> list[Event]:
        fault = error_body(Fault(str(error), STATUSES[error.code], error.code))["error"]
        values = {"message": fault["message"], "code": fault["code"], "param": fault["param"]}
        return [self._event("error", **values)]

    def _begin(self) -> list[Event]:
        """Return the events before the first words, once."""
        if self._number:
            return []
        running = dict(self._head) | {"status": "in_progress", "output": [], "usage": None}
        item = _item(self._item, "in_progress", [])
        return [
            self._event("response.created", response=running),
            self._event("response.in_progress", response=running),
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **self._place(), part=_part("")),
        ]

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _event(self, name: str, **values: Any) -> Event:
        self._number += 1
        return name, {"type": name, "sequence_number": self._number - 1} | values


@router.post(
    "/responses",
    response_model=ResponseAnswer,
    responses={
        200: {"description": "The answer; with `stream` as server-sent events.", "content": EVENTS},
        **errors(400, 404, 413, 429, 503, 504, model=OpenAIErrorAnswer),
    },
    openapi_extra=request_of(
        {"input": INPUT} | properties_of(ResponseFields),
        ["input"],
        {"model": "convoy", "instructions": "Translate from German to English", "input": "Guten Morgen!"},
        (JSON,),
    ),
)
async def responses(request: Request) -> Response:
    """Translate or summarize the input, depending on the model or the instructions. Nothing is stored."""
    values = await read_values(request, UNSUPPORTED_OF_RESPONSES)
    fields = validate(ResponseFields, values)
    system, text = _read_input(values.get("input"))
    chat = fields.chat("\n".join(filter(None, (fields.instructions or "", system))))
    job = await accept_chat(request, chat, [text])
    item = f"msg_{secrets.token_hex(12)}"
    head = _head(fields)
    warnings = warnings_of(values, READ)
    if not fields.stream:
        (result,) = await while_connected(request, job.results())
        return await json_response(with_warnings(_response(head, item, result), warnings), job.deadline)

    async def answer_job(on_partial: OnPartial | None) -> dict[str, Any]:
        return {"results": await job.results(on_partial)}  # `ResponseEvents.result` reads them

    return await events(request, answer_job, ResponseEvents(head, item, warnings))


def _head(fields: ResponseFields) -> dict[str, Any]:
    """Return the fields of a response that its text does not change."""
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "model": fields.model or ANY_MODEL,
        "error": None,
        "incomplete_details": None,
        "instructions": fields.instructions,
        "metadata": {},
        "parallel_tool_calls": False,
        "temperature": fields.temperature,
        "tool_choice": "none",
        "tools": [],
        "top_p": fields.top_p,
    }


def _read_input(given: Any) -> tuple[str, str]:
    """Return the joined system messages, and the last user message. Raises InvalidParameter."""
    if isinstance(given, str) and given:
        return "", given
    if not isinstance(given, list) or not all(isinstance(message, dict) for message in given):
        raise InvalidParameter(
            "input", "Invalid value for 'input': a text, or an array of messages is needed."
        )
    return read_messages(given, "input", CONTENT_TYPES)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _item(id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "status": status, "content": content}


def _response(head: Mapping[str, Any], item: str, result: TextResult) -> dict[str, Any]:
    """Return a finished response with its text and numbers of tokens."""
    usage = usage_of([result])
    tokens = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
    output = [_item(item, "completed", [_part(result.text)])]
    return dict(head) | {"status": "completed", "output": output, "usage": tokens}
