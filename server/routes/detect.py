"""POST /detect and GET /languages, as LibreTranslate has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine.api import Service
from server.house import house_of
from server.intake import parameters, while_connected
from server.languages import name_of, outward
from server.routes.docs import body_of
from server.schemas import check_sizes, texts_of

NOTHING: Final = {"confidence": 0.0, "language": "en"}  # LibreTranslate's answer for text without letters

router = APIRouter()


@router.post("/detect", openapi_extra=body_of())
async def detect(request: Request) -> JSONResponse:
    """Likely languages of a text, or of an array of texts together, best first; confidence from 0 to 100."""
    house = house_of(request)
    q = texts_of(await parameters(request, house.settings.body_limit))
    texts = check_sizes(q, house.settings.char_limit, house.settings.batch_limit)
    return JSONResponse(await while_connected(request, candidates(house.service, texts)))


@router.get("/languages")
async def languages(request: Request) -> JSONResponse:
    """Languages of the loaded models. Each is also a target of its own: such text is answered unchanged."""
    return JSONResponse(
        [
            {
                "code": outward(language.code),
                "name": name_of(language.code),
                "targets": sorted({outward(code) for code in (language.code, *language.targets)}),
            }
            for language in house_of(request).service.languages()
        ]
    )


async def candidates(service: Service, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Languages of texts taken together, because short ones alone say little."""
    found = await asyncio.to_thread(service.detect, "\n".join(texts))
    ranked = [
        {"confidence": round(share, 1), "language": outward(code)} for code, share in found if share >= 0.05
    ]
    return ranked or [NOTHING]


async def detected(service: Service, texts: Sequence[str]) -> dict[str, Any]:
    return (await candidates(service, texts))[0]
