"""POST /summarize: mirrors /translate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.api import in_slices, one_slice
from server.access import charge
from server.events import Answering, OnPartial, answer_json, events, results_of
from server.languages import resolve_code
from server.openapi import STREAMED, SummarizeAnswer, body_of, errors
from server.parameters import parameters, while_connected
from server.responses import MEDIA
from server.schemas import (
    SummarizeFields,
    SummarizeRequest,
    alternatives_of,
    check_sizes,
    extras,
    is_short,
    text_options,
    texts_of,
    validate,
)
from server.state import AppState, deadline_of, state_of

router = APIRouter()


@router.post(
    "/summarize",
    response_model=SummarizeAnswer,
    responses=STREAMED | errors(400, 404, 413, 429, 503, 504),
    openapi_extra=body_of(SummarizeRequest),
)
async def summarize(request: Request) -> Response:
    """Summarize a text, or each of an array (JSON only).

    A text longer than the model reads is refused, unless the model was made for beginnings, or `truncate` or
    a `strategy` is given: "truncate" uses its beginning (`truncated` is true), "parts" summarizes it in
    `parts` that end with sentences and joins what they give, "refine" summarizes that again, `rounds` times,
    until one summary is left. `stream` as in /translate.
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
    q = texts_of(values)
    batch = not isinstance(q, str)
    texts = check_sizes(q, state.settings.char_limit, state.settings.batch_limit)
    wish = validate(SummarizeRequest, values)
    model = await _model(state, wish, texts)
    beams = next(info.limits.beams for info in state.service.models() if info.name == model)
    limit = state.settings.alternatives_limit
    alternatives = alternatives_of(values, beams - 1 if limit == -1 else min(limit, beams - 1))
    await charge(request, texts)

    async def work(on_partial: OnPartial | None) -> dict[str, Any]:
        options = text_options(wish, alternatives)
        results = await results_of(state, model, texts, options, deadline, on_partial)
        state.metrics.record_work(model, results)
        lists: dict[str, list[Any]] = {
            "summaryText": [result.text for result in results],
            "truncated": [result.truncated for result in results],
        }
        if wish.strategy is not None:
            lists["parts"] = [result.parts for result in results]
            lists["rounds"] = [result.rounds for result in results]
        if alternatives:
            lists["alternatives"] = [result.alternatives[:alternatives] for result in results]
        answer = lists if batch else {name: values[0] for name, values in lists.items()}
        return answer | await in_slices(extras(wish, results, batch=batch), deadline, small=is_short(results))

    return work, wish.stream


async def _model(state: AppState, wish: SummarizeFields, texts: Sequence[str]) -> str:
    """The named model, else the first for the text's language that is likely to read the longest text whole.

    The language is detected where none is given and models are of several.
    """
    service = state.service
    if wish.source and wish.source.casefold() != "auto":
        codes = {code for info in service.models() for code in info.directions.sources}
        source: str | None = resolve_code(wish.source, codes)
    else:
        models = [info for info in service.models() if info.task == "summarize"]
        spoken = list(dict.fromkeys(code for info in models for code in info.directions.sources))
        source = None
        if wish.model is None and len(spoken) > 1:
            detection = await in_slices(one_slice(service.detect, texts[0], spoken))
            source = detection.ranked[0][0] if detection.other is None else None
    return service.pick("summarize", source, None, wish.model, characters=max(map(len, texts), default=0))
