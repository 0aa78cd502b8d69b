"""Routes of reading tools: one for each shape, and detection and language lists of two tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict

from documents.formats.html import read_html
from engine.api import in_slices, one_slice
from server.answering.texts import TRANSLATION, TranslationTask, accept_texts, resolve_pair, translate_texts
from server.answering.translation import candidates
from server.contracts.reading.shape import ReadingRequest, ToolShape
from server.contracts.reading.shapes import SHAPES
from server.http.openapi import JSON, TEXTS, errors, in_query, request_of
from server.http.parameters import parameters, while_connected
from server.http.responses import json_response
from server.http.schemas import check_sizes, texts_of
from server.languages import name_of, outward, resolve_code
from server.state import AppState, deadline_of, refuse_while_draining, state_of


class ReadingError(BaseModel):
    """An error in the shape of a tool."""

    model_config = ConfigDict(extra="allow")


READING_ERRORS: Final = errors(400, 413, 429, 503, 504, model=ReadingError)
OBJECT_ANSWER: Final[dict[str, Any]] = {"responses": READING_ERRORS, "response_model": dict[str, Any]}

mtran = APIRouter()
google = APIRouter()


def reading_router(plugins: Set[str]) -> APIRouter:
    """Return a router with the routes of the plug-ins that the settings name."""
    router = APIRouter(tags=["Reading tools"])
    for shape in SHAPES:
        if plugins & set(shape.plugins):
            _add_routes(router, shape)
    for name, more_routes in (("mtran", mtran), ("google", google)):
        if name in plugins:
            router.include_router(more_routes)
    return router


def _add_routes(router: APIRouter, shape: ToolShape) -> None:
    """Add the routes of a tool's shape: POST, GET with a query string, or both."""
    endpoint = _endpoint(shape)
    body = request_of(shape.fields, list(shape.required), shape.example, shape.kinds, repeated=shape.repeated)
    for content in body["requestBody"]["content"].values() if shape.either else ():
        content["schema"]["anyOf"] = [
            {"required": [name], "properties": {name: kind}} for name, kind in shape.either.items()
        ]
    if "POST" in shape.methods:
        router.add_api_route(
            shape.path,
            endpoint,
            methods=["POST"],
            name=shape.name,
            openapi_extra=body,
            **_answers(shape),
        )
    if "GET" in shape.methods:
        query = {"parameters": in_query(shape.fields, shape.required, shape.repeated)}
        name = f"{shape.name}_by_query"
        router.add_api_route(
            shape.path,
            endpoint,
            methods=["GET"],
            name=name,
            openapi_extra=query,
            **_answers(shape),
        )


def _answers(shape: ToolShape) -> dict[str, Any]:
    """Return the description of a shape's answers, for FastAPI."""
    if shape.media == JSON:
        return {"responses": READING_ERRORS}
    good: dict[int | str, Any] = {200: {"content": {shape.media: {}}}}
    return {"responses": good | READING_ERRORS, "response_class": Response}


def _endpoint(shape: ToolShape) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that answers requests of a tool's shape."""

    async def endpoint(request: Request) -> Response:
        """Translate texts, in the format of the tool."""
        refuse_while_draining(request)
        state = state_of(request)
        deadline = deadline_of(request, state)
        fields = shape.read(await parameters(request, state.settings.body_limit, shape.repeated))
        source, target = resolve_pair(state.service, fields.source, await _target(state, fields, deadline))
        texts = await accept_texts(request, fields.texts, tags=fields.html)
        options = TRANSLATION
        if shape.alternatives:
            options = replace(options, alternatives=min(shape.alternatives, _spare_beams(state)))
        task = TranslationTask(texts, source, target, deadline, options, read_html if fields.html else None)
        answer = await while_connected(request, translate_texts(state, task))
        content = shape.write(replace(fields, target=target), answer)
        if shape.media != JSON:
            return Response(content, media_type=shape.media)
        return await json_response(content, deadline)

    return endpoint


async def _target(state: AppState, fields: ReadingRequest, deadline: float) -> str:
    """Return the target language; or the second choice, if the text is in the target language already."""
    if not fields.otherwise:
        return fields.target
    text = "\n".join(check_sizes(fields.texts, state.settings.char_limit, state.settings.batch_limit))
    (best, *_) = await in_slices(one_slice(candidates, state.service, text), deadline)
    target = resolve_code(fields.target, {language.code for language in state.service.languages()})
    return fields.otherwise if best["language"] == outward(target) else fields.target


def _spare_beams(state: AppState) -> int:
    """Return the number of alternatives that the default beam search of every translation model finds."""
    beams = [info.options.beam_size for info in state.service.models() if info.task == "translate"]
    return max(0, min(beams, default=1) - 1)


async def _detect(request: Request, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the languages of a text, the most likely first, and the parameters of the request."""
    state = state_of(request)
    settings = state.settings
    values = await parameters(request, settings.body_limit)
    texts = check_sizes(texts_of({"q": values.get(name)}), settings.char_limit, settings.batch_limit)
    detecting = in_slices(one_slice(candidates, state.service, "\n".join(texts)), deadline_of(request, state))
    return await while_connected(request, detecting), values


@mtran.post(
    "/mtran/detect",
    openapi_extra=request_of({"text": TEXTS}, ["text"], {"text": "Guten Morgen!"}, (JSON,)),
    **OBJECT_ANSWER,
)
async def mtran_detect(request: Request) -> JSONResponse:
    """Detect the language of a text, like MTranServer."""
    ranked, _ = await _detect(request, "text")
    return JSONResponse({"language": ranked[0]["language"]})


@mtran.get("/__heartbeat__", response_class=PlainTextResponse)
async def mtran_heartbeat() -> PlainTextResponse:
    """Answer that the process is alive."""
    return PlainTextResponse("Ready")


@mtran.get("/__lbheartbeat__", response_class=PlainTextResponse)
async def mtran_balancer_heartbeat() -> PlainTextResponse:
    """Answer a load balancer that the process is alive."""
    return PlainTextResponse("Ready")


@google.post(
    "/language/translate/v2/detect",
    openapi_extra=request_of({"q": TEXTS}, ["q"], {"q": "Guten Morgen!"}),
    **OBJECT_ANSWER,
)
async def google_detect(request: Request) -> JSONResponse:
    """Detect the language of a text, or of an array of texts together, like Google's version 2."""
    ranked, values = await _detect(request, "q")
    best = {
        "language": ranked[0]["language"],
        "confidence": ranked[0]["confidence"] / 100,
        "isReliable": False,
    }
    count = len(values["q"]) if isinstance(values["q"], list) else 1
    return JSONResponse({"data": {"detections": [[best]] * count}})


@google.get("/language/translate/v2/languages", **OBJECT_ANSWER)
async def google_languages(request: Request) -> JSONResponse:
    """List the languages of the models, with English names if `target` is given."""
    codes = [language.code for language in state_of(request).service.languages()]
    with_names = bool(request.query_params.get("target"))
    items = [{"language": outward(code)} | ({"name": name_of(code)} if with_names else {}) for code in codes]
    return JSONResponse({"data": {"languages": items}})
