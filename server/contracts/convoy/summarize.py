"""POST /summarize, like /translate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request

from engine.api import ModelRoute, in_slices
from server.answering.partly import TextCall, add_text_routes
from server.answering.results import OnPartial, results_of
from server.answering.texts import pick_summarizer
from server.callers.access import charge
from server.http.openapi import SummarizeAnswer
from server.http.parameters import parameters
from server.http.schemas import (
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
from server.state import AppState, deadline_of, state_of

READ: Final = frozenset((*SummarizeRequest.model_fields, "q", "alternatives"))

router = APIRouter()


@dataclass(frozen=True, slots=True)
class SummarizeCall(TextCall):
    """A checked request, and the model that summarizes."""

    route: ModelRoute


async def _checked(request: Request) -> SummarizeCall:
    """Summarize a text, or each of an array (JSON only).

    A text longer than the model reads is refused, unless the model was made for beginnings, or the request
    has `truncate` or a `strategy`: "truncate" reads the beginning (`truncated` is true), "parts" summarizes
    each of the `parts` and joins the summaries, "refine" summarizes these again, `rounds` times, until one is
    left. `stream` works like in /translate.
    """
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
        warnings=unread_of(values, READ, state.names.query_key_fields),
    )


async def _answer(
    state: AppState, call: SummarizeCall, on_partial: OnPartial | None = None
) -> dict[str, Any]:
    """Return the answer to a checked call."""
    fields = call.options
    options = text_options(fields, call.alternatives)
    results = await results_of(state, call.route, call.texts, options, call.deadline, on_partial)
    state.metrics.record_work(call.route, sum(map(len, call.texts)), results)
    lists: dict[str, list[Any]] = {
        "summaryText": [result.text for result in results],
        "truncated": [result.truncated for result in results],
    }
    if options.strategy is not None:
        lists["parts"] = [result.parts for result in results]
        lists["rounds"] = [result.rounds for result in results]
    if call.alternatives:
        lists["alternatives"] = [result.alternatives[: call.alternatives] for result in results]
    optional = in_slices(extras(fields, results, batch=call.batch), call.deadline, small=is_short(results))
    return as_asked(lists, batch=call.batch) | await optional


add_text_routes(
    router, "/summarize", _checked, _answer, response_model=SummarizeAnswer, request_model=SummarizeRequest
)
