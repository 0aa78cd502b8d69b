"""POST /detect and GET /languages, as LibreTranslate has them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from server.house import house_of
from server.intake import parameters, while_connected
from server.languages import name_of, outward
from server.routes.docs import DetectedLanguage, LanguageAnswer, body_of, errors
from server.schemas import check_sizes, texts_of
from server.translation import candidates

router = APIRouter(tags=["LibreTranslate"])


@router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    responses=errors(400, 413),
    openapi_extra=body_of(),
)
async def detect(request: Request) -> JSONResponse:
    """Likely languages of a text, or of an array of texts together, best first; confidence from 0 to 100."""
    house = house_of(request)
    q = texts_of(await parameters(request, house.settings.body_limit))
    texts = check_sizes(q, house.settings.char_limit, house.settings.batch_limit)
    # an array is one text, because short ones alone say little
    work = asyncio.to_thread(candidates, house.service, "\n".join(texts))
    return JSONResponse(await while_connected(request, work))


@router.get("/languages", response_model=list[LanguageAnswer])
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
