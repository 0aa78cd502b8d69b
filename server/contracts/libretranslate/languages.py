"""POST /detect and GET /languages, like LibreTranslate's."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine.api import Service, in_slices, one_slice
from server.answering.translation import candidates
from server.contract import Codes
from server.http.openapi import DetectedLanguage, LanguageAnswer, body_of, errors
from server.http.parameters import parameters, while_connected
from server.http.schemas import check_sizes, texts_of
from server.languages import name_of, outward
from server.state import deadline_of, state_of

router = APIRouter(tags=["LibreTranslate"])


@router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    responses=errors(400, 413, 504),
    openapi_extra=body_of(),
)
async def detect(request: Request) -> JSONResponse:
    """Detect likely languages of a text, or of an array of texts together.

    The best comes first; confidence is from 0 to 100.
    """
    state = state_of(request)
    q = texts_of(await parameters(request, state.settings.body_limit))
    texts = check_sizes(q, state.settings.char_limit, state.settings.batch_limit)
    # detection joins the texts of an array, because short texts are unreliable
    work = in_slices(one_slice(candidates, state.service, "\n".join(texts)), deadline_of(request, state))
    return JSONResponse(await while_connected(request, work))


@router.post("/languages", response_model=list[LanguageAnswer], operation_id="languages_by_post")
@router.get("/languages", response_model=list[LanguageAnswer])
async def languages(request: Request) -> JSONResponse:
    """List the languages of the loaded models; clients of Argos send a POST.

    Each language is also its own target: such a text is answered unchanged.
    """
    return JSONResponse(
        [
            {
                "code": outward(language.code),
                "name": name_of(language.code),
                "targets": sorted({outward(code) for code in (language.code, *language.targets)}),
            }
            for language in state_of(request).service.languages()
        ]
    )


def served_codes(service: Service) -> Codes:
    """Return the codes of languages that LibreTranslate's fields may name."""
    codes = frozenset(outward(language.code) for language in service.languages())
    return {"auto": codes | {"auto"}, "target": codes}
