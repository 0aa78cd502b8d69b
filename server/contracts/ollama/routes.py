"""Ollama's routes: chat, generate, and the lists that its clients read before."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from engine.api import UnknownModel
from server.answering.chats import (
    ANY_MODEL,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    Chat,
    accept_chat,
    chat_models,
    read_messages,
    stop_texts,
)
from server.answering.events import events
from server.answering.results import OnPartial
from server.contracts.ollama.answers import (
    AnswerLines,
    OllamaAnswer,
    TextFields,
    chat_fields,
    generate_fields,
    now,
)
from server.errors import Refusal
from server.http.openapi import JSON, errors, properties_of, request_of
from server.http.parameters import body_of, parse_json, while_connected
from server.http.responses import json_response
from server.http.schemas import SHOWN_CHARACTERS, validate
from server.http.unread import unread_of
from server.state import AppState, state_of

router = APIRouter(prefix="/api", tags=["Ollama"])

API_VERSION: Final = "0.12.0"  # version of Ollama's interface
LATEST: Final = ":latest"  # clients add this tag to names without one
# values of unsupported fields that request nothing
UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "format": (None, ""),
    "images": (None, []),
    "suffix": (None, ""),
    "tools": (None, []),
}
# fields that have no effect: there is one prompt and one way to load a model
IDLE: Final = frozenset({"context", "keep_alive", "logprobs", "raw", "template", "think", "top_logprobs"})
FAILURES: Final = errors(400, 404, 413, 429, 503, 504)
MESSAGES: Final = {
    "type": "array",
    "items": {"type": "object"},
    "description": "Like OpenAI's chat messages.",
}
OBJECT: Final[dict[str, Any]] = {"response_model": dict[str, Any]}


class ModelOptions(BaseModel):
    """Options of a model; others have no effect, because the search does not sample."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    num_predict: int | None = Field(None, description="Longest translation of a sentence; below 1: no limit.")
    stop: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_STOP_CHARACTERS)], ...],
        Field(max_length=MAX_STOPS),
        BeforeValidator(stop_texts),
    ] = Field((), description="Texts that end an answer.")


class OllamaFields(BaseModel):
    """Fields that chat and generate share."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str = Field(min_length=1, description=f'A model of /api/tags, or "{ANY_MODEL}".')
    stream: StrictBool | None = Field(None, description="Lines of JSON; the default.")
    options: ModelOptions | None = None


class GenerateFields(OllamaFields):
    """Fields of /api/generate."""

    prompt: str | None = Field(None, description="The text; without it, the model is only looked up.")
    system: str | None = Field(None, description="It may name the task and languages.")


@router.post(
    "/chat",
    responses=FAILURES,
    openapi_extra=request_of(
        {"messages": MESSAGES} | properties_of(OllamaFields), ["model", "messages"], None, (JSON,)
    ),
)
async def ollama_chat(request: Request) -> Response:
    """Translate or summarize the last user message, like Ollama's chat."""
    values = await _values(request)
    fields = validate(OllamaFields, values)
    messages = values.get("messages")
    if messages in (None, []):
        return await _respond(request, values, fields, ("", ""), chat_fields)
    return await _respond(request, values, fields, read_messages(messages), chat_fields)


@router.post(
    "/generate",
    responses=FAILURES,
    openapi_extra=request_of(properties_of(GenerateFields), ["model"], None, (JSON,)),
)
async def ollama_generate(request: Request) -> Response:
    """Translate or summarize a prompt, like Ollama's generate."""
    values = await _values(request)
    fields = validate(GenerateFields, values)
    return await _respond(
        request, values, fields, (fields.system or "", fields.prompt or ""), generate_fields
    )


@router.get("/tags", **OBJECT)
async def ollama_tags(request: Request) -> JSONResponse:
    """List the models, and the name for which the messages select the model."""
    return JSONResponse({"models": [_described(name) for name in _names(state_of(request))]})


@router.get("/ps", **OBJECT)
async def ollama_ps(request: Request) -> JSONResponse:
    """List the models in memory, like Ollama."""
    state = state_of(request)
    loaded = [
        info.name for info in chat_models(state.service) if info.name in state.service.repository.loaded
    ]
    return JSONResponse({"models": [_described(name) for name in loaded]})


@router.get("/version", **OBJECT)
async def ollama_version() -> JSONResponse:
    """Name the version of Ollama's interface."""
    return JSONResponse({"version": API_VERSION})


@router.post(
    "/show",
    responses=errors(400, 404),
    openapi_extra=request_of({"model": {"type": "string", "minLength": 1}}, ["model"], None, (JSON,)),
    **OBJECT,
)
async def ollama_show(request: Request) -> JSONResponse:
    """Describe a model, like Ollama."""
    values = await _values(request)
    name = _known_name(state_of(request), str(values.get("model") or values.get("name") or ""))
    described = _described(name)
    facts = {"general.architecture": "convoy", "general.basename": name}
    texts = {"modelfile": "", "parameters": "", "template": "{{ .Prompt }}"}
    more = {"model_info": facts, "capabilities": ["completion"], "modified_at": described["modified_at"]}
    return JSONResponse(texts | {"details": described["details"]} | more)


async def _values(request: Request) -> dict[str, Any]:
    """Return the fields of a request. Raises Refusal for an unsupported field."""
    values = parse_json(await body_of(request, state_of(request).settings.body_limit))
    for name, idle in UNSUPPORTED.items():
        if values.get(name) not in idle:
            raise Refusal("unsupported_parameter", f"{name} is not supported by these models", parameter=name)
    return values


async def _respond(
    request: Request, values: dict[str, Any], fields: OllamaFields, texts: tuple[str, str], shape: TextFields
) -> Response:
    """Answer a request as a whole or as lines.

    request: request of the client.
    values: all fields of the request, known or not.
    fields: validated fields.
    texts: system message and text.
    shape: function that makes the fields with the text of an answer.
    """
    system, text = texts
    name = _known_name(state_of(request), fields.model)
    options = fields.options or ModelOptions.model_validate({})
    read = {"messages", *GenerateFields.model_fields, *UNSUPPORTED, *IDLE}
    answer = OllamaAnswer(fields.model, shape, unread_of(values, read))
    if not text:
        return JSONResponse(answer.empty("load"))
    length = options.num_predict if options.num_predict and options.num_predict > 0 else None
    job = await accept_chat(request, Chat(name, system, max_tokens=length, stop=options.stop), [text])
    if fields.stream is False:
        (result,) = await while_connected(request, job.results())
        return await json_response(answer.whole(result), job.deadline)

    async def answer_job(on_partial: OnPartial | None) -> dict[str, Any]:
        return {"results": await job.results(on_partial)}  # `AnswerLines.result` reads them

    return await events(request, answer_job, AnswerLines(answer))


def _known_name(state: AppState, tagged: str) -> str:
    """Return our name of a model for Ollama's, which has a tag. Raises UnknownModel."""
    name = tagged.removesuffix(LATEST)
    if name not in _names(state):
        raise UnknownModel(f"model '{name[:SHOWN_CHARACTERS]}' not found; /api/tags lists the models")
    return name


def _names(state: AppState) -> list[str]:
    return [ANY_MODEL, *(info.name for info in chat_models(state.service))]


def _described(name: str) -> dict[str, Any]:
    """Return Ollama's description of a model."""
    details = {"parent_model": "", "format": "convoy", "family": "convoy", "families": ["convoy"]}
    return {
        "name": name + LATEST,
        "model": name + LATEST,
        "modified_at": now(),
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": details | {"parameter_size": "", "quantization_level": ""},
    }
