"""POST /translate: LibreTranslate's contract, and our optional fields."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine.api import InvalidRequest, Language, TextOptions, TextResult
from server.house import House, deadline_of, house_of
from server.html import read_html
from server.intake import parameters, while_connected
from server.languages import inward, name_of, outward
from server.routes.detect import NOTHING, detected
from server.routes.docs import body_of
from server.schemas import (
    SHOWN,
    TranslateFields,
    TranslateRequest,
    alternatives_of,
    check_sizes,
    checked,
    extras,
    text_options,
    texts_of,
)

FORMATS: Final = ("text", "html")

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request. source: None asks for detection. options hold what is no text or language."""

    texts: list[str]
    batch: bool
    source: str | None
    target: str
    html: bool
    alternatives: int
    options: TranslateFields


@router.post("/translate", openapi_extra=body_of(TranslateRequest, ("source", "target", "format")))
async def translate(request: Request) -> JSONResponse:
    """Translate a text, or an array of texts (JSON only) of which all are accepted or none."""
    house = house_of(request)
    deadline = deadline_of(request, house)
    values = await parameters(request, house.settings.body_limit)
    if "json" not in request.headers.get("content-type", "") and isinstance(values.get("q"), str):
        values["q"] = "\n".join(values["q"].splitlines())
    wanted = _wanted(values, house)
    return JSONResponse(await while_connected(request, _answer(house, wanted, deadline)))


async def _answer(house: House, wanted: Wanted, deadline: float) -> dict[str, Any]:
    pages = [await asyncio.to_thread(read_html, text) for text in wanted.texts] if wanted.html else None
    texts = [text for page in pages for text in page.texts] if pages is not None else wanted.texts
    found = await detected(house.service, texts) if wanted.source is None else None
    source = wanted.source or inward(str((found or NOTHING)["language"]))
    model = None
    if wanted.source is not None or found != NOTHING:
        model = _model(house, wanted, source)
    alternatives = 0 if pages is not None else wanted.alternatives
    results = await _run(house, model, texts, text_options(wanted.options, alternatives), deadline)
    if pages is not None:
        rest = iter(results)
        translated = [page.join([next(rest).text for _ in page.texts]) for page in pages]
        others: list[list[str]] = [[] for _ in pages]
    else:
        translated = [result.text for result in results]
        others = [result.alternatives[: wanted.alternatives] for result in results]
    answer: dict[str, Any] = {"translatedText": translated if wanted.batch else translated[0]}
    if found is not None:
        answer["detectedLanguage"] = [found] * len(translated) if wanted.batch else found
    if wanted.alternatives:
        answer["alternatives"] = others if wanted.batch else others[0]
    return answer | extras(wanted.options, results, batch=wanted.batch)


async def _run(
    house: House, model: str | None, texts: list[str], options: TextOptions, deadline: float
) -> list[TextResult]:
    if model is None:
        return [TextResult(text) for text in texts]
    results = await house.service.run(model, texts, options, deadline)
    house.metrics.answered(model, results)
    return results


def _wanted(values: dict[str, Any], house: House) -> Wanted:
    """Checks in LibreTranslate's order, so that a request with several faults gets the same answer."""
    q = texts_of(values)
    source, target = (_code(values, name) for name in ("source", "target"))
    beams = max((i.limits.beams for i in house.service.models() if i.task == "translate"), default=1)
    limit = house.settings.alternatives_limit
    alternatives = alternatives_of(values, beams - 1 if limit == -1 else min(limit, beams - 1))
    texts = check_sizes(q, house.settings.char_limit, house.settings.batch_limit)
    languages = {language.code for language in house.service.languages()}
    for code in (source, target):
        if inward(code) not in languages and not (code is source and code.casefold() == "auto"):
            raise InvalidRequest(f"{code[:SHOWN]} is not supported")
    kind = values.get("format") or "text"
    if kind not in FORMATS:
        raise InvalidRequest(f"{str(kind)[:SHOWN]} format is not supported")
    options = checked(TranslateRequest, values)
    if kind == "html" and (options.scores or options.alignment):
        raise InvalidRequest("Invalid request: scores and alignment are of plain text; use format text")
    return Wanted(
        texts=texts,
        batch=not isinstance(q, str),
        source=None if source.casefold() == "auto" else inward(source),
        target=inward(target),
        html=kind == "html",
        alternatives=alternatives,
        options=options,
    )


def _code(values: dict[str, Any], name: str) -> str:
    code = values.get(name)
    if not code:
        raise InvalidRequest(f"Invalid request: missing {name} parameter")
    if not isinstance(code, str):
        raise InvalidRequest(f"Invalid request: {name} must be a string")
    return code


def _model(house: House, wanted: Wanted, source: str) -> str | None:
    """The model for the request; None when the text is in the target language already."""
    service, target, name = house.service, wanted.target, wanted.options.model
    into = next((language for language in service.languages() if language.code == source), Language("", ()))
    if target not in into.targets and name is None:
        if source == target:
            return None
        raise InvalidRequest(
            f"{name_of(target)} ({outward(target)}) is not available as a target language from "
            f"{name_of(source)} ({outward(source)})"
        )
    return service.pick("translate", source, target, name)
