"""POST /translate: LibreTranslate's contract, and our optional fields."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from documents.html import Page, read_html
from engine.api import InvalidRequest
from server.access import charge
from server.events import Tell, Work, events
from server.house import House, deadline_of, house_of
from server.intake import parameters, while_connected
from server.languages import inward
from server.routes.docs import STREAMED, TranslateAnswer, body_of, errors
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
from server.translation import detected_models, model_for, run_each, run_segments

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


@router.post(
    "/translate",
    tags=["LibreTranslate"],
    response_model=TranslateAnswer,
    responses=STREAMED | errors(400, 404, 413, 429, 503, 504),
    openapi_extra=body_of(TranslateRequest, ("source", "target", "format")),
)
async def translate(request: Request) -> Response:
    """Translate a text, or an array of texts (JSON only) of which all are accepted or none.

    With `stream` the answer comes as server-sent events: `partial` ones with what it is certain to begin
    with, then `result` with all of it.
    """
    work, stream = await prepared(request)
    return await events(request, work) if stream else JSONResponse(await while_connected(request, work(None)))


async def prepared(request: Request) -> tuple[Work, bool]:
    """What answers a checked request, and whether as a stream."""
    house = house_of(request)
    deadline = deadline_of(request, house)
    values = await parameters(request, house.settings.body_limit)
    if "json" not in request.headers.get("content-type", "") and isinstance(values.get("q"), str):
        values["q"] = "\n".join(values["q"].splitlines())
    wanted = _wanted(values, house)
    await charge(request, wanted.texts)
    return partial(_answer, house, wanted, deadline), wanted.options.stream


async def _answer(house: House, wanted: Wanted, deadline: float, tell: Tell | None) -> dict[str, Any]:
    pages = [await asyncio.to_thread(read_html, text) for text in wanted.texts] if wanted.html else None
    samples = [_prose(page) for page in pages] if pages is not None else wanted.texts
    if wanted.source is None:
        found, models = await detected_models(house, samples, wanted.target, wanted.options.model)
    else:
        model = model_for(house, wanted.source, wanted.target, wanted.options.model)
        found, models = [], [model] * len(samples)
    options = text_options(wanted.options, 0 if wanted.html else wanted.alternatives)
    if pages is not None:
        segments = [segment for page in pages for segment in page.segments]
        each = [m for page, m in zip(pages, models, strict=True) for _ in page.segments]
        done, results = await run_segments(house, segments, each, options, deadline)
        rest = iter(done)
        translated = [page.join([next(rest) for _ in page.segments]) for page in pages]
        others: list[list[str]] = [[] for _ in pages]
    else:
        results = await run_each(house, wanted.texts, models, options, deadline, tell)
        translated = [result.text for result in results]
        others = [result.alternatives[: wanted.alternatives] for result in results]
    lists: dict[str, list[Any]] = {"translatedText": translated}
    if wanted.source is None:
        lists["detectedLanguage"] = found
    if wanted.alternatives:
        lists["alternatives"] = others
    answer = lists if wanted.batch else {name: values[0] for name, values in lists.items()}
    return answer | extras(wanted.options, results, batch=wanted.batch)


def _prose(page: Page) -> str:
    return "\n".join(segment.text for segment in page.segments)


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
