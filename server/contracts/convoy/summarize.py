"""POST /summarize: mirrors /translate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from engine.api import ModelRoute, in_slices
from server.answering.partly import respond
from server.answering.results import OnPartial, results_of
from server.answering.texts import pick_summarizer
from server.callers.access import QUERY_KEY_FIELDS, charge
from server.http.openapi import STREAMED, SummarizeAnswer, body_of, errors, fields_of, in_query
from server.http.parameters import parameters
from server.http.schemas import (
    SummarizeFields,
    SummarizeRequest,
    alternatives_of,
    as_asked,
    check_sizes,
    extras,
    is_short,
    text_limit,
    text_options,
    texts_of,
    validate,
)
from server.http.unread import unread_of
from server.state import AppState, deadline_of, refuse_while_draining, state_of

FAILURES: Final = (400, 404, 413, 429, 503, 504)
READ: Final = frozenset((*SummarizeRequest.model_fields, "q", "alternatives", *QUERY_KEY_FIELDS))

router = APIRouter()


@dataclass(frozen=True, slots=True)
class SummarizeCall:
    """A checked request.

    texts: in the order of the request.
    batch: whether the request had an array of texts.
    route: the model that summarizes.
    alternatives: number of other answers to each text.
    options: the other fields of the request.
    deadline: a time.monotonic() by which the answer must be there.
    warnings: by the names of fields that were not read.
    """

    texts: list[str]
    batch: bool
    route: ModelRoute
    alternatives: int
    options: SummarizeFields
    deadline: float
    warnings: dict[str, str]


@router.post(
    "/summarize",
    response_model=SummarizeAnswer,
    responses=STREAMED | errors(*FAILURES),
    openapi_extra=body_of(SummarizeRequest),
)
async def summarize(request: Request) -> Response:
    """Summarize a text, or each of an array (JSON only).

    A text longer than the model reads is refused, unless the model was made for beginnings, or `truncate` or
    a `strategy` is given: "truncate" uses its beginning (`truncated` is true), "parts" summarizes it in
    `parts` that end with sentences and joins what they give, "refine" summarizes that again, `rounds` times,
    until one summary is left. `stream` as in /translate.
    """
    call = await _checked(request)
    return await respond(request, call, _answer, stream=bool(call.options.stream))


@router.get(
    "/summarize/stream",
    tags=["Streaming"],
    response_class=Response,
    responses=STREAMED | errors(*FAILURES),
    openapi_extra={"parameters": in_query(*fields_of(SummarizeRequest))},
)
async def summarize_stream(request: Request) -> Response:
    """Summarize as POST /summarize with `stream`: parameters in the query string, the answer as events.

    It is for EventSource, which can only ask by query string.
    """
    refuse_while_draining(request)
    return await respond(request, await _checked(request), _answer, stream=True)


async def _checked(request: Request) -> SummarizeCall:
    """Read and check a request, and charge it."""
    state = state_of(request)
    settings, deadline = state.settings, deadline_of(request, state)
    values = await parameters(request, settings.body_limit)
    q = texts_of(values)
    texts = check_sizes(q, text_limit(values, settings.char_limit), settings.batch_limit)
    options = validate(SummarizeRequest, values)
    route = await pick_summarizer(state.service, texts, options.source, options.model)
    alternatives = alternatives_of(values, route.infos[0].limits.beams, settings.alternatives_limit)
    batch = not isinstance(q, str)
    if not (batch and options.partial):
        await charge(request, texts, options.prefix)
    return SummarizeCall(
        texts=texts,
        batch=batch,
        route=route,
        alternatives=alternatives,
        options=options,
        deadline=deadline,
        warnings=unread_of(values, READ),
    )


async def _answer(
    state: AppState, call: SummarizeCall, on_partial: OnPartial | None = None
) -> dict[str, Any]:
    wish = call.options
    options = text_options(wish, call.alternatives)
    results = await results_of(state, call.route, call.texts, options, call.deadline, on_partial)
    state.metrics.record_work(call.route.name, results)
    lists: dict[str, list[Any]] = {
        "summaryText": [result.text for result in results],
        "truncated": [result.truncated for result in results],
    }
    if options.strategy is not None:
        lists["parts"] = [result.parts for result in results]
        lists["rounds"] = [result.rounds for result in results]
    if call.alternatives:
        lists["alternatives"] = [result.alternatives[: call.alternatives] for result in results]
    more = in_slices(extras(wish, results, batch=call.batch), call.deadline, small=is_short(results))
    return as_asked(lists, batch=call.batch) | await more
