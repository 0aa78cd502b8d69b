"""POST /translate: LibreTranslate's contract, and our optional fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from documents.attributes import AttributedPage, read_with_attributes
from documents.html import Page, read_html
from engine.api import InvalidRequest, in_slices
from server.access import charge
from server.events import Answering, OnPartial, answer_json, events
from server.languages import resolve_code
from server.openapi import STREAMED, TranslateAnswer, body_of, errors
from server.parameters import parameters, while_connected
from server.responses import MEDIA
from server.schemas import (
    SHOWN,
    TranslateFields,
    TranslateRequest,
    alternatives_of,
    check_phrases,
    check_sizes,
    check_tags,
    extras,
    is_short,
    phrases_of,
    text_options,
    texts_of,
    validate,
)
from server.state import AppState, deadline_of, state_of
from server.translation import detected_models, model_for, read_pages, run_each, run_segments

FORMATS: Final = ("text", "html")

router = APIRouter()


@dataclass(frozen=True, slots=True)
class TranslateCall:
    """A checked request.

    source: None asks for detection.
    options: what is no text or language.
    """

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
    work, stream = await prepare(request)
    if stream:
        return await events(request, work)
    return Response(await while_connected(request, answer_json(work)), media_type=MEDIA)


async def prepare(request: Request) -> tuple[Answering, bool]:
    """Check a request; return what answers it, and whether as a stream."""
    state = state_of(request)
    deadline = deadline_of(request, state)
    values = await parameters(request, state.settings.body_limit)
    if "json" not in request.headers.get("content-type", "") and isinstance(values.get("q"), str):
        values["q"] = "\n".join(values["q"].splitlines())
    call = _checked_call(values, state)
    await charge(request, call.texts)
    return partial(_answer, state, call, deadline), call.options.stream


async def _answer(
    state: AppState, call: TranslateCall, deadline: float, on_partial: OnPartial | None
) -> dict[str, Any]:
    reader: Callable[[str], Page | AttributedPage]
    reader = read_with_attributes if call.options.attributes else read_html
    pages = await read_pages(call.texts, reader, deadline) if call.html else None
    samples = [_prose(page) for page in pages] if pages is not None else call.texts
    if call.source is None:
        detections, models = await detected_models(state, samples, call.target, deadline, call.options.model)
    else:
        model = model_for(state, call.source, call.target, call.options.model)
        detections, models = [], [model] * len(samples)
    options = text_options(call.options, 0 if call.html else call.alternatives)
    if pages is not None:
        segments = [segment for page in pages for segment in page.segments]
        each = [m for page, m in zip(pages, models, strict=True) for _ in page.segments]
        translations, results = await run_segments(state, segments, each, options, deadline)
        rest = iter(translations)
        translated = [page.join([next(rest) for _ in page.segments]) for page in pages]
        others: list[list[str]] = [[] for _ in pages]
    else:
        results = await run_each(state, call.texts, models, options, deadline, on_partial)
        translated = [result.text for result in results]
        others = [result.alternatives[: call.alternatives] for result in results]
    lists: dict[str, list[Any]] = {"translatedText": translated}
    if call.source is None:
        lists["detectedLanguage"] = detections
    if call.alternatives:
        lists["alternatives"] = others
    answer = lists if call.batch else {name: values[0] for name, values in lists.items()}
    return answer | await in_slices(
        extras(call.options, results, batch=call.batch), deadline, small=is_short(results)
    )


def _prose(page: Page | AttributedPage) -> str:
    return "\n".join(segment.text for segment in page.segments)


def _checked_call(values: dict[str, Any], state: AppState) -> TranslateCall:
    """Checks in LibreTranslate's order, so that a request with several faults gets the same answer."""
    q = texts_of(values)
    source, target = (_code(values, name) for name in ("source", "target"))
    beams = max((i.limits.beams for i in state.service.models() if i.task == "translate"), default=1)
    limit = state.settings.alternatives_limit
    alternatives = alternatives_of(values, beams - 1 if limit == -1 else min(limit, beams - 1))
    texts = check_sizes(q, state.settings.char_limit, state.settings.batch_limit)
    languages = {language.code for language in state.service.languages()}
    for code in (source, target):
        if resolve_code(code, languages) not in languages and not (
            code is source and code.casefold() == "auto"
        ):
            raise InvalidRequest(f"{code[:SHOWN]} is not supported")
    kind = values.get("format") or "text"
    if kind not in FORMATS:
        raise InvalidRequest(f"{str(kind)[:SHOWN]} format is not supported")
    check_phrases(phrases_of(values), state.settings.phrase_limit)
    options = validate(TranslateRequest, values)
    if kind == "html":
        check_tags(texts, state.settings.tag_limit)
    if kind == "html" and (options.scores or options.alignment):
        raise InvalidRequest("Invalid request: scores and alignment are of plain text; use format text")
    return TranslateCall(
        texts=texts,
        batch=not isinstance(q, str),
        source=None if source.casefold() == "auto" else resolve_code(source, languages),
        target=resolve_code(target, languages),
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
