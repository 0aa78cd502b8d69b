"""POST /v1/chat/completions: the last user message is the text, a system message may name the task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.answering.chats import accept_chat
from server.contracts.openai.answers import (
    COMPLETED,
    CompletionAnswer,
    CompletionShape,
    respond,
)
from server.contracts.openai.tasks import CompletionFields, read_fields
from server.errors import InvalidParameter
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


SHAPE: Final = CompletionShape("chatcmpl-", "chat.completion", "chat.completion.chunk", _message, _delta)


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


def read_messages(
    messages: Any, place: str = "messages", kinds: Collection[str] = ("text",)
) -> tuple[str, str]:
    """Return the joined system messages, and the last user message.

    messages: value of the request's field.
    place: name of the field.
    kinds: types of parts that hold texts.

    Raises InvalidParameter.
    """
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _invalid(place, "an array of objects with role and content is needed")
    system = [
        _text_of(message.get("content"), f"{place}.[{number}].content", kinds)
        for number, message in enumerate(messages)
        if message.get("role") in ("system", "developer")
    ]
    users = [number for number, message in enumerate(messages) if message.get("role") == "user"]
    if not users:
        raise _invalid(place, "there is no message of the role user")
    text = _text_of(messages[users[-1]].get("content"), f"{place}.[{users[-1]}].content", kinds)
    if not text:
        raise _invalid(f"{place}.[{users[-1]}].content", "the text is empty")
    return "\n".join(system), text


def _text_of(content: Any, place: str, kinds: Collection[str]) -> str:
    """Return the content of a message, which is a text or an array of text parts."""
    if isinstance(content, str):
        return content
    # an invalid part becomes {}, which has no type
    parts = (
        [part if isinstance(part, dict) else {} for part in content] if isinstance(content, list) else [{}]
    )
    texts = [part.get("text") for part in parts if part.get("type") in kinds]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise _invalid(place, "it is a text, or an array of parts of the type text")
    return "\n".join(map(str, texts))


def _invalid(parameter: str, message: str) -> InvalidParameter:
    return InvalidParameter(parameter, f"Invalid value for '{parameter}': {message}.")
