"""POST /summarize: mirrors /translate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from server.access import charge
from server.events import Tell, Work, events, results_of
from server.house import deadline_of, house_of
from server.intake import parameters, while_connected
from server.languages import inward
from server.routes.docs import STREAMED, SummarizeAnswer, body_of, errors
from server.schemas import (
    SummarizeRequest,
    alternatives_of,
    check_sizes,
    checked,
    extras,
    text_options,
    texts_of,
)

router = APIRouter()


@router.post(
    "/summarize",
    response_model=SummarizeAnswer,
    responses=STREAMED | errors(400, 404, 413, 429, 503, 504),
    openapi_extra=body_of(SummarizeRequest),
)
async def summarize(request: Request) -> Response:
    """Summarize a text, or each of an array (JSON only).

    A text longer than the model reads is refused, unless `truncate` is set; then its beginning is used and
    `truncated` is true. `stream` as in /translate.
    """
    work, stream = await prepared(request)
    return await events(request, work) if stream else JSONResponse(await while_connected(request, work(None)))


async def prepared(request: Request) -> tuple[Work, bool]:
    """What answers a checked request, and whether as a stream."""
    house = house_of(request)
    deadline = deadline_of(request, house)
    values = await parameters(request, house.settings.body_limit)
    q = texts_of(values)
    batch = not isinstance(q, str)
    texts = check_sizes(q, house.settings.char_limit, house.settings.batch_limit)
    wish = checked(SummarizeRequest, values)
    source = inward(wish.source) if wish.source and wish.source.casefold() != "auto" else None
    model = house.service.pick("summarize", source, None, wish.model)
    beams = next(info.limits.beams for info in house.service.models() if info.name == model)
    limit = house.settings.alternatives_limit
    alternatives = alternatives_of(values, beams - 1 if limit == -1 else min(limit, beams - 1))
    await charge(request, texts)

    async def work(tell: Tell | None) -> dict[str, Any]:
        options = text_options(wish, alternatives)
        results = await results_of(house, model, texts, options, deadline, tell)
        house.metrics.answered(model, results)
        lists: dict[str, list[Any]] = {
            "summaryText": [result.text for result in results],
            "truncated": [result.truncated for result in results],
        }
        if alternatives:
            lists["alternatives"] = [result.alternatives[:alternatives] for result in results]
        answer = lists if batch else {name: values[0] for name, values in lists.items()}
        return answer | extras(wish, results, batch=batch)

    return work, wish.stream
