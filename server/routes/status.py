"""What the server says of itself."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from server.errors import failure
from server.house import house_of
from server.languages import name_of, outward
from server.schemas import describe

DISTRIBUTION: Final = "convoy-server"

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> JSONResponse:
    """Whether the process lives."""
    return JSONResponse({"status": "ok"})


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready")
async def ready(request: Request) -> JSONResponse:
    """Whether every model has translated a canary, every engine runs, and the server is not stopping."""
    house = house_of(request)
    if house.ready:
        return JSONResponse({"status": "ready"})
    if house.draining:
        return failure("the server is stopping", 503)
    return failure("an engine has stopped" if house.sung else "models are being tried out", 503)


@router.get("/version")
async def version() -> JSONResponse:
    return JSONResponse({"name": "convoy", "version": version_text()})


def version_text() -> str:
    return metadata.version(DISTRIBUTION)


@router.get("/models")
async def models(request: Request) -> JSONResponse:
    """Loaded models with their limits and decoding defaults."""
    return JSONResponse([describe(info) for info in house_of(request).service.models()])


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    return Response(house_of(request).metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/frontend/settings")
async def frontend_settings(request: Request) -> JSONResponse:
    """What LibreTranslate's web page asks for."""
    house = house_of(request)
    targets = [code for language in house.service.languages() for code in language.targets]
    target: dict[str, Any] | None = None
    if targets:
        target = {"code": outward(targets[0]), "name": name_of(targets[0])}
    return JSONResponse(
        {
            "charLimit": house.settings.char_limit,
            "frontendTimeout": 500,
            "apiKeys": False,
            "keyRequired": False,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {"source": {"code": "auto", "name": "Auto Detect"}, "target": target},
        }
    )
