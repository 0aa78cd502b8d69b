"""POST /summarize: mirrors /translate."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from server.house import deadline_of, house_of
from server.intake import parameters, while_connected
from server.languages import inward
from server.routes.docs import body_of
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


@router.post("/summarize", openapi_extra=body_of(SummarizeRequest))
async def summarize(request: Request) -> JSONResponse:
    """Summarize a text, or each of an array (JSON only).

    A text longer than the model reads is refused, unless `truncate` is set; then its beginning is used and
    `truncated` is true.
    """
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
    results = await while_connected(
        request, house.service.run(model, texts, text_options(wish, alternatives), deadline)
    )
    house.metrics.answered(model, results)
    lists: dict[str, list[Any]] = {
        "summaryText": [result.text for result in results],
        "truncated": [result.truncated for result in results],
    }
    if alternatives:
        lists["alternatives"] = [result.alternatives[:alternatives] for result in results]
    answer = lists if batch else {name: values[0] for name, values in lists.items()}
    return JSONResponse(answer | extras(wish, results, batch=batch))
