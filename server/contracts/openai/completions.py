"""POST /v1/completions, and GET /v1/models."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from engine.api import UnknownModel
from server.answering.chats import ANY_MODEL, accept_chat, chat_models
from server.contracts.openai.answers import (
    COMPLETED,
    CompletionAnswer,
    CompletionShape,
    OpenAIErrorAnswer,
    respond,
)
from server.contracts.openai.tasks import CompletionFields, read_fields
from server.errors import InvalidParameter
from server.http.openapi import JSON, errors, properties_of, request_of
from server.http.schemas import SHOWN_CHARACTERS
from server.state import AppState, state_of

router = APIRouter(prefix="/v1", tags=["OpenAI"])

PROMPT: Final = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ],
    "description": "A text, or an array of texts: all are answered or none.",
}
FIELDS: Final = properties_of(CompletionFields)
FIELDS["model"] = FIELDS["model"] | {"not": {"enum": [ANY_MODEL]}}  # it needs a system message


def _text(text: str, first: bool = False) -> dict[str, Any]:
    return {"text": text}


def _logprobs(tokens: list[str], scores: list[float]) -> dict[str, Any]:
    return {"tokens": tokens, "token_logprobs": scores, "top_logprobs": None, "text_offset": None}


SHAPE: Final = CompletionShape("cmpl-", "text_completion", "text_completion", _text, _text, _logprobs)


class OpenAIModel(BaseModel):
    id: str
    object: str
    created: int
    owned_by: str


class OpenAIModels(BaseModel):
    object: str
    data: list[OpenAIModel]


@router.post(
    "/completions",
    response_model=CompletionAnswer,
    responses=COMPLETED,
    openapi_extra=request_of({"prompt": PROMPT} | FIELDS, ["prompt"], None, (JSON,)),
)
async def completions(request: Request) -> Response:
    """Translate or summarize a text, or each of an array, with the named model."""
    values, fields = await read_fields(request)
    prompt = values.get("prompt")
    texts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        message = "Invalid value for 'prompt': it is a text, or an array of texts; tokens are not supported."
        raise InvalidParameter("prompt", message)
    return await respond(request, await accept_chat(request, fields.chat(), texts), values, fields, SHAPE)


@router.get("/models", response_model=OpenAIModels)
async def openai_models(request: Request) -> JSONResponse:
    """List the models, and the name for which a system message selects the model."""
    return JSONResponse({"object": "list", "data": list(_models(state_of(request)).values())})


@router.get("/models/{model}", response_model=OpenAIModel, responses=errors(404, model=OpenAIErrorAnswer))
async def openai_model(request: Request, model: str) -> JSONResponse:
    found = _models(state_of(request)).get(model)
    if found is None:
        raise UnknownModel(f"The model '{model[:SHOWN_CHARACTERS]}' does not exist.")
    return JSONResponse(found)


def _models(state: AppState) -> dict[str, dict[str, Any]]:
    """Return OpenAI's description of each model that translates or summarizes, by name."""
    return {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "convoy"}
        for name in [ANY_MODEL, *(info.name for info in chat_models(state.service))]
    }
