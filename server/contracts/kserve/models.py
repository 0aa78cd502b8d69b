"""The Open Inference Protocol, version 2 (KServe, Triton), under /v2. Errors are {"error": "..."}."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from engine.api import (
    InvalidRequest,
    ModelInfo,
    RepositoryEntry,
    State,
    TextOptions,
    UnknownModel,
    program_version,
)
from server.answering.orders import ORDER_ERRORS, order
from server.answering.results import results_of
from server.callers.access import charge
from server.contracts.kserve.tensors import (
    INPUT_NAME,
    LENGTH_HEADER,
    MAX_DIMENSIONS,
    MODEL_VERSION,
    OUTPUT_TYPES,
    read_tensors,
    stats_of,
    write_tensors,
)
from server.http.openapi import JSON, errors, request_of
from server.http.parameters import body_of, parse_json, while_connected
from server.http.responses import MEDIA, json_bytes
from server.http.schemas import (
    SummarizeRequest,
    TranslateRequest,
    check_phrases,
    check_sizes,
    phrases_of,
    text_options,
    validate,
)
from server.http.unread import unread_of
from server.state import AppState, deadline_of, state_of

EXTENSIONS: Final = [
    "binary_tensor_data",
    "model_repository",
    "model_configuration",
    "statistics",
    "generate",
]
ERRORS: Final = errors(400, 404, 413, 503, 504)
PLATFORM: Final = "convoy"
# parameters of a request that are no options, including those that clients of Triton send
PARAMETERS: Final = frozenset(
    ("timeout", "stream", "binary_data_output", "priority", "sequence_id", "sequence_start", "sequence_end")
)

router = APIRouter(prefix="/v2", tags=["KServe"])
Handler = Callable[..., Awaitable[Response]]


def of_model(
    verb: Callable[..., Callable[[Handler], Handler]], path: str, **options: Any
) -> Callable[[Handler], Handler]:
    """Return a decorator that adds a route of a model, with and without the version in its path.

    verb: method of a router, such as `router.get`.
    path: path after the model.
    options: arguments of `verb`.
    """

    def register(handler: Handler) -> Handler:
        for model in ("/models/{model}/versions/{version}", "/models/{model}"):
            verb(f"{model}{path}", **options)(handler)
        return handler

    return register


class TensorAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    datatype: str
    shape: list[int]


class ServerAnswer(BaseModel):
    name: str
    version: str
    extensions: list[str]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorAnswer]
    outputs: list[TensorAnswer]


class InferenceAnswer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[TensorAnswer]
    parameters: dict[str, str] | None = None


@router.get("", response_model=ServerAnswer)
async def server() -> JSONResponse:
    return JSONResponse({"name": PLATFORM, "version": program_version(), "extensions": EXTENSIONS})


@router.get("/health/live", response_model=dict[str, bool])
async def live() -> JSONResponse:
    return JSONResponse({"live": True})


@router.get("/health/ready", response_model=dict[str, bool], responses={503: {"model": dict[str, bool]}})
async def ready(request: Request) -> JSONResponse:
    state = state_of(request)
    return JSONResponse({"live": True, "ready": state.ready}, 200 if state.ready else 503)


@router.get("/models", response_model=dict[str, list[str]])
async def models(request: Request) -> JSONResponse:
    return JSONResponse({"models": [info.name for info in state_of(request).service.models()]})


@router.post("/repository/index", response_model=list[dict[str, str]])
async def index(request: Request) -> JSONResponse:
    """List the models like Triton's repository. A model that is not loaded is loaded at its next use."""
    state = state_of(request)
    return JSONResponse(
        [
            {"name": name, "version": MODEL_VERSION} | _state(state, name, entry)
            for name, entry in state.service.repository_entries().items()
        ]
    )


@router.post("/repository/models/{model}/load", response_model=dict[str, Any], responses=ORDER_ERRORS)
async def load(request: Request, model: str) -> JSONResponse:
    """Load a model as `POST /models/MODEL/load` does, with the operator's `Authorization: Bearer`."""
    return await order(request, "load", model)


@router.post("/repository/models/{model}/unload", response_model=dict[str, Any], responses=ORDER_ERRORS)
async def unload(request: Request, model: str) -> JSONResponse:
    """Unload a model as `POST /models/MODEL/unload` does, with the operator's `Authorization: Bearer`."""
    return await order(request, "unload", model)


@router.get("/models/stats", response_model=dict[str, Any])
async def all_stats(request: Request) -> JSONResponse:
    state = state_of(request)
    return JSONResponse({"model_stats": stats_of(state, [info.name for info in state.service.models()])})


@of_model(router.get, "/stats", response_model=dict[str, Any], responses=errors(404))
async def stats(request: Request, model: str, version: str = MODEL_VERSION) -> JSONResponse:
    """Return Triton's statistics, counted in sentences; times are sums in nanoseconds."""
    info = info_of(request, model, version)
    return JSONResponse({"model_stats": stats_of(state_of(request), [info.name])})


@of_model(router.get, "/config", response_model=dict[str, Any], responses=errors(404))
async def config(request: Request, model: str, version: str = MODEL_VERSION) -> JSONResponse:
    """Return the parts of Triton's configuration of a model that have a counterpart."""
    info = info_of(request, model, version)
    kinds = {"BYTES": "TYPE_STRING", "FP32": "TYPE_FP32", "BOOL": "TYPE_BOOL"}
    return JSONResponse(
        {
            "name": info.name,
            "platform": PLATFORM,
            "backend": info.backend,
            "max_batch_size": 0,
            "input": [{"name": INPUT_NAME, "data_type": "TYPE_STRING", "dims": [-1]}],
            "output": [
                {"name": n, "data_type": kinds[kind], "dims": [-1]} for n, kind in OUTPUT_TYPES.items()
            ],
        }
    )


@of_model(router.get, "", response_model=ModelMetadata, responses=errors(404))
async def metadata(request: Request, model: str, version: str = MODEL_VERSION) -> JSONResponse:
    info = info_of(request, model, version)
    return JSONResponse(
        {
            "name": info.name,
            "versions": [MODEL_VERSION],
            "platform": PLATFORM,
            "inputs": [{"name": INPUT_NAME, "datatype": "BYTES", "shape": [-1]}],
            "outputs": [{"name": n, "datatype": kind, "shape": [-1]} for n, kind in OUTPUT_TYPES.items()],
        }
    )


MODEL_READY: Final = errors(404) | {503: {"model": dict[str, Any]}}


@of_model(router.get, "/ready", response_model=dict[str, Any], responses=MODEL_READY)
async def model_ready(request: Request, model: str, version: str = MODEL_VERSION) -> JSONResponse:
    info = info_of(request, model, version)
    state = state_of(request)
    # a model loaded at the start must first translate a test sentence (`proven`)
    is_ready = _alive(state) and (info.name in state.proven or info.name not in state.loaded_at_start)
    return JSONResponse({"name": info.name, "ready": is_ready}, 200 if is_ready else 503)


INPUT: Final = {
    "type": "object",
    "required": ["name", "datatype", "shape", "data"],
    "properties": {
        "name": {"type": "string", "enum": [INPUT_NAME]},
        "datatype": {"type": "string", "enum": ["BYTES"]},
        "shape": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
            "minItems": 1,
            "maxItems": MAX_DIMENSIONS,
        },
        "data": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"type": "array"}]}},
        "parameters": {"type": "object"},
    },
}
INFER: Final = request_of(
    {
        "id": {"type": "string"},
        "parameters": {"type": "object", "description": "Decoding options; timeout in microseconds."},
        "inputs": {"type": "array", "minItems": 1, "maxItems": 1, "items": INPUT},
        "outputs": {"type": "array", "items": {"type": "object"}},
    },
    ["inputs"],
    {"inputs": [{"name": INPUT_NAME, "shape": [1], "datatype": "BYTES", "data": ["Guten Morgen!"]}]},
    (JSON,),
)


@of_model(router.post, "/infer", response_model=InferenceAnswer, responses=ERRORS, openapi_extra=INFER)
async def infer(request: Request, model: str, version: str = MODEL_VERSION) -> Response:
    """Translate or summarize a tensor of texts; decoding options are `parameters`."""
    info = info_of(request, model, version)
    body, raw = await message_of(request)
    state = state_of(request)
    tensors = read_tensors(body, raw, info.name, state.settings.batch_limit)
    options, deadline = await accept_request(request, info, tensors.texts, body)
    route = state.service.route(info.name)
    work = results_of(state, route, tensors.texts, options, deadline)
    results = await while_connected(request, work)
    state.metrics.record_work(route, sum(map(len, tensors.texts)), results)
    outputs, packed = write_tensors(tensors, results)
    answer = head_of(info, body) | {"outputs": outputs} | warnings_of(info, body)
    head = await json_bytes(answer, deadline)
    if not packed:
        return Response(head, media_type=MEDIA)
    return Response(
        head + packed, media_type="application/octet-stream", headers={LENGTH_HEADER: str(len(head))}
    )


async def message_of(request: Request) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of a body and the binary tensors after it. Triton's client sends no Content-Type."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise InvalidRequest("compressed requests are not supported: send the body uncompressed")
    raw = await body_of(request, state_of(request).settings.body_limit)
    size, header = len(raw), request.headers.get(LENGTH_HEADER)
    if header is not None:
        if not (header.isascii() and header.isdecimal() and len(header) < 16) or int(header) > size:
            raise InvalidRequest(f"{LENGTH_HEADER} must be a number of bytes of the body")
        size = int(header)
    return parse_json(raw[:size]), raw[size:]


async def accept_request(
    request: Request, info: ModelInfo, texts: list[str], body: dict[str, Any]
) -> tuple[TextOptions, float]:
    """Check a request's texts and parameters, and charge it; return its options and its deadline.

    request: request of the client.
    info: model that answers.
    texts: texts of the request's tensor.
    body: JSON of the request, with its `parameters`.

    The deadline is a time of time.monotonic().
    """
    state = state_of(request)
    deadline = deadline_of(request, state)
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidRequest("parameters must be an object")
    timeout = parameters.get("timeout")
    if timeout:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 2**63:
            raise InvalidRequest("timeout must be a positive number of microseconds")
        deadline = min(deadline, time.monotonic() + timeout / 1e6)
    kind = TranslateRequest if info.task == "translate" else SummarizeRequest
    check_phrases(phrases_of(parameters), state.settings.phrase_limit)
    # the path has already selected the model
    fields = validate(kind, {"follow_form": False, **parameters, "model": None})
    options = text_options(fields, 0)
    check_sizes(texts, state.settings.char_limit, state.settings.batch_limit)
    await charge(request, texts, fields.prefix)
    return options, deadline


def head_of(info: ModelInfo, body: dict[str, Any]) -> dict[str, Any]:
    id = body.get("id")
    if id is not None and not isinstance(id, str):
        raise InvalidRequest("id must be a string")
    return {"model_name": info.name, "model_version": MODEL_VERSION} | ({"id": id} if id else {})


def warnings_of(info: ModelInfo, body: dict[str, Any]) -> dict[str, Any]:
    """Return the `parameters` of an answer, with warnings about the request's unknown parameters, if any."""
    kind = TranslateRequest if info.task == "translate" else SummarizeRequest
    warnings = unread_of(body.get("parameters") or {}, PARAMETERS.union(kind.model_fields))
    return (
        {"parameters": {"warnings": "; ".join(f"{name} {warning}" for name, warning in warnings.items())}}
        if warnings
        else {}
    )


def info_of(request: Request, model: str, version: str = MODEL_VERSION) -> ModelInfo:
    """Return the description of a model. Raises UnknownModel.

    request: request of the client.
    model: name of the model.
    version: version of the model, which must be MODEL_VERSION.
    """
    infos = state_of(request).service.models()
    for info in infos:
        if info.name == model and version == MODEL_VERSION:
            return info
    names = ", ".join(info.name for info in infos)
    raise UnknownModel(
        f"Request for unknown model: '{model[:100]}', version {version[:20]}; "
        f"there are {names}, each in version {MODEL_VERSION}"
    )


def _alive(state: AppState) -> bool:
    return not state.draining and state.service.healthy()


def _state(state: AppState, name: str, entry: RepositoryEntry) -> dict[str, str]:
    """Return Triton's name of a model's state, and the reason."""
    if entry.state in (State.LOADING, State.UNLOADING):
        return {"state": entry.state.upper(), "reason": ""}
    if entry.state is State.UNLOADED:
        return {
            "state": "UNAVAILABLE",
            "reason": "unloaded" + (": the last load failed" if entry.fault else ""),
        }
    # a model loaded at the start must first translate a test sentence (`proven`)
    proven = _alive(state) and (name in state.proven or name not in state.loaded_at_start)
    return {"state": "READY" if proven else "UNAVAILABLE", "reason": ""}
