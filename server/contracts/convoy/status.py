"""Health, version, models and metrics of the server."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from documents import FORMATS
from engine.api import program_revision, program_version
from server.answering.orders import ORDER_ERRORS, order
from server.awaited import awaited_models, describe_awaited, summary
from server.errors import Refusal
from server.files.documents import files_of
from server.http.openapi import ModelAnswer, VersionAnswer, errors
from server.http.schemas import describe
from server.languages import inward, name_of, outward
from server.state import state_of

router = APIRouter()


@router.get("/health", tags=["LibreTranslate"], response_model=dict[str, str])
async def health() -> JSONResponse:
    """Answer that the process is alive."""
    return JSONResponse({"status": "ok"})


@router.get("/health/ready", response_model=dict[str, str], responses=errors(503))
async def ready(request: Request) -> JSONResponse:
    """Answer 200 when requests can be answered, otherwise 503 with the reason.

    The server is ready if it is not stopping, each model loaded at the start has translated a test sentence,
    all engines run, no request blocks the work on other texts, all front ends are ready, and translated files
    (if enabled) can be stored. `fetching` and `failed` name models that it serves later, or that could not be
    fetched, with the remedy.
    """
    state = state_of(request)
    if state.draining:
        raise Refusal("not_ready", "the server is stopping")
    if state.to_prove:
        raise Refusal("not_ready", "models are being tested")
    if state.stuck:
        raise Refusal("not_ready", "a request blocks the work on other texts")
    if not state.ready_here:
        raise Refusal("not_ready", "an engine has stopped")
    if not state.ready:
        raise Refusal("not_ready", "another front end is not ready")
    if state.settings.files and not files_of(request).store.usable:
        raise Refusal("not_ready", "the folder of translated files can't be written to")
    awaited = summary(awaited_models(state.settings.fetch_state))
    if not state.service.models():
        missing = "; ".join(f"{key}: {text}" for key, text in awaited.items())
        raise Refusal("not_ready", f"there is no model yet; {missing or 'it is being loaded'}")
    return JSONResponse({"status": "ready"} | awaited)


@router.get("/version", response_model=VersionAnswer)
async def version() -> JSONResponse:
    return JSONResponse({"name": "convoy", "version": program_version(), "revision": program_revision()})


@router.get("/models", response_model=list[ModelAnswer])
async def models(request: Request) -> JSONResponse:
    """List the models with their limits and decoding defaults, and whether each is loaded.

    Models that are being fetched, or could not be fetched, have no task; `fault` and `remedy` explain it.
    """
    state = state_of(request)
    entries, infos = state.service.repository_entries(), state.service.models()
    described = [describe(info, entries[info.name]) for info in infos if info.name in entries]
    awaited = describe_awaited(awaited_models(state.settings.fetch_state))
    return JSONResponse(described + awaited)


@router.post("/models/{name}/reload", response_model=ModelAnswer, responses=ORDER_ERRORS)
async def reload(request: Request, name: str) -> JSONResponse:
    """Reload a model's bundle, with the operator's `Authorization: Bearer`.

    Running requests finish with the old model. A bundle that is damaged or can't translate is refused, and
    the old model stays.
    """
    return await order(request, "reload", name)


@router.post("/models/{name}/load", response_model=ModelAnswer, responses=ORDER_ERRORS)
async def load(request: Request, name: str) -> JSONResponse:
    """Bring a model into memory, as its first use would, with the operator's `Authorization: Bearer`."""
    return await order(request, "load", name)


@router.post("/models/{name}/unload", response_model=ModelAnswer, responses=ORDER_ERRORS)
async def unload(request: Request, name: str) -> JSONResponse:
    """Free a model's memory once its requests are answered, with the operator's `Authorization: Bearer`.

    The next request for the model loads it again.
    """
    return await order(request, "unload", name)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus. If the operator has set a token, send `Authorization: Bearer`."""
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/spec", tags=["LibreTranslate"], response_model=dict[str, Any])
async def spec(request: Request) -> JSONResponse:
    """Return this description under LibreTranslate's path and title, by which Dialect recognizes a server."""
    description = request.app.openapi()
    return JSONResponse({**description, "info": {**description["info"], "title": "LibreTranslate"}})


@router.get("/frontend/settings", tags=["LibreTranslate"], response_model=dict[str, Any])
async def frontend_settings(request: Request) -> JSONResponse:
    """Return the settings for LibreTranslate's web page."""
    state, access = state_of(request), request.app.state.access
    settings = state.settings
    targets = [code for language in state.service.languages() for code in language.targets]
    target = inward(settings.frontend_target) or next(iter(targets), "")
    source = settings.frontend_source
    origin = request.headers.get("origin", "")
    # our own page sends its origin only with a POST
    if request.headers.get("sec-fetch-site") == "same-origin":
        origin = f"{request.url.scheme}://{request.url.netloc}"
    return JSONResponse(
        {
            "charLimit": settings.char_limit,
            "frontendTimeout": settings.frontend_timeout,
            "apiKeys": access.keys,
            "keyRequired": access.needs_key(origin),
            "suggestions": settings.suggestions is not None,
            "filesTranslation": settings.files,
            "supportedFilesFormat": list(FORMATS) if settings.files else [],
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"} if source == "auto" else _language(source),
                "target": _language(target) if target else None,
            },
        }
    )


def _language(code: str) -> dict[str, str]:
    return {"code": outward(inward(code)), "name": name_of(inward(code))}
