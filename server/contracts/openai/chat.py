"""POST /v1/chat/completions: the last user message is the text, a system message may name the task."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.answering.chats import accept_chat, read_messages
from server.contracts.openai.answers import (
    COMPLETED,
    CompletionAnswer,
    CompletionShape,
    respond,
)
from server.contracts.openai.tasks import CompletionFields, read_fields
from server.http.openapi import JSON, properties_of, request_of

router = APIRouter(prefix="/v1", tags=["OpenAI"])

PART: Final = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"type": "string", "enum": ["text"]}, "text": {"type": "string", "minLength": 1}},
}
MESSAGES: Final = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"type": "string"},
            "content": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": PART}]},
        },
    },
    "contains": {"properties": {"role": {"const": "user"}}, "required": ["role"]},
    "description": "The last one of the role `user` is the text; those of `system` or `developer` may name "
    "languages: Translate from German to English.",
}


def _message(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


def _delta(text: str, first: bool) -> dict[str, Any]:
    role = {"role": "assistant"} if first else {}
    return {"delta": role | ({"content": text} if text else {})}


def _logprobs(tokens: list[str], scores: list[float]) -> dict[str, Any]:
    content = [
        {"token": token, "logprob": score, "bytes": list(token.encode()), "top_logprobs": []}
        for token, score in zip(tokens, scores, strict=True)
    ]
    return {"content": content, "refusal": None}


SHAPE: Final = CompletionShape(
    "chatcmpl-", "chat.completion", "chat.completion.chunk", _message, _delta, _logprobs
)


@router.post(
    "/chat/completions",
    response_model=CompletionAnswer,
    responses=COMPLETED,
    openapi_extra=request_of(
        {"messages": MESSAGES} | properties_of(CompletionFields),
        ["messages"],
        {
            "model": "convoy",
            "messages": [
                {"role": "system", "content": "Translate from German to English"},
                {"role": "user", "content": "Guten Morgen!"},
            ],
        },
        (JSON,),
    ),
)
async def chat_completions(request: Request) -> Response:
    """Translate or summarize the last user message, depending on the model or a system message.

    Earlier messages are ignored.
    """
    values, fields = await read_fields(request)
    system, text = read_messages(values.get("messages"))
    return await respond(
        request, await accept_chat(request, fields.chat(system), [text]), values, fields, SHAPE
    )
