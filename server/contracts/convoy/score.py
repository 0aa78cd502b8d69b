"""POST /score: how probable a model finds texts."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from engine.api import (
    InvalidRequest,
    ModelRoute,
    Service,
    TextScore,
    UnknownModel,
    each,
    in_slices,
    one_slice,
    perplexity,
    slowest,
)
from server.callers.access import charge
from server.http.openapi import TEXTS, errors, lenient, request_of
from server.http.parameters import parameters, while_connected
from server.http.responses import json_response
from server.http.schemas import check_sizes, finite, texts_of, validate
from server.http.unread import unread_of, with_warnings
from server.languages import resolve_code
from server.observing.context import note_model
from server.state import deadline_of, state_of

LANGUAGE_MODEL: Final = "language-model"
SOURCES: Final = {
    "description": "Source of each text in `q`, a text or an array like `q`; none for a language model.",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "null"},
    ],
}
EXAMPLE: Final = {
    "q": "Where is the station?",
    "source_text": "Wo ist der Bahnhof?",
    "source": "de",
    "target": "en",
}

router = APIRouter()


class ScoreRequest(BaseModel):
    """Fields of /score, without `q` and `source_text`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = Field(None, description="A model's name; else the first that fits.")
    source: str | None = Field(None, description="Language of the sources; else any.")
    target: str | None = Field(None, description="Language of the texts; else any.")
    timings: bool = Field(False, description="Also answer seconds waited, encoded and decoded.")


READ: Final = frozenset((*ScoreRequest.model_fields, "q", "source_text"))


class TokenScores(BaseModel):
    """Natural logarithms; end-of-sentence is a text's last token."""

    score: float | None
    perplexity: float | None
    words: int
    tokens: list[str]
    tokenScores: list[float]


class ScoreAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str
    scores: TokenScores | list[TokenScores]
    perplexity: float | None = Field(description="Of all tokens together.")
    timings: dict[str, float] | None = None


@router.post(
    "/score",
    response_model=ScoreAnswer,
    responses=errors(400, 404, 413, 429, 503, 504),
    openapi_extra=request_of(
        {"q": TEXTS, "source_text": SOURCES} | lenient(ScoreRequest.model_json_schema()["properties"]),
        ["q"],
        EXAMPLE,
    ),
)
async def score(request: Request) -> Response:
    """Score a text, or each of an array (JSON only).

    The answer is the log-probability of each, token by token, and the perplexity.

    A language model scores texts by themselves; with `source_text` a translating model scores them as
    translations. Texts are never split or shortened: one that is too long for the model is refused.
    """
    state = state_of(request)
    deadline = deadline_of(request, state)
    values = await parameters(request, state.settings.body_limit)
    q = texts_of(values)
    texts = check_sizes(q, state.settings.char_limit, state.settings.batch_limit)
    sources = _sources(values, q)
    if sources is not None:
        source_texts = sources[0] if isinstance(q, str) else sources
        check_sizes(source_texts, state.settings.char_limit, state.settings.batch_limit)
    fields = validate(ScoreRequest, values)
    route = _pick_model(state.service, fields, translated=sources is not None)
    await charge(request, [*texts, *(sources or [])])
    note_model(route.models)
    results = await while_connected(request, state.service.score(route, texts, sources, deadline))
    state.metrics.record_work(route, sum(map(len, texts)), results)
    scores = await in_slices(each(one_slice(_score, result) for result in results), deadline)
    total = math.fsum(result.total for result in results)
    answer: dict[str, Any] = {
        "model": route.name,
        "scores": scores[0] if isinstance(q, str) else scores,
        "perplexity": finite(perplexity(total, sum(len(result.tokens) for result in results))),
    }
    if fields.timings:
        answer["timings"] = slowest([result.timings for result in results])._asdict()
    return await json_response(
        with_warnings(answer, unread_of(values, READ, state.names.query_key_fields)), deadline
    )


def _sources(values: dict[str, Any], q: str | list[str]) -> list[str] | None:
    """Return `source_text` as a list; None when it is missing."""
    value = values.get("source_text")
    if value is None:
        return None
    if isinstance(q, str) and isinstance(value, str):
        return [value]
    if isinstance(q, list) and isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    raise InvalidRequest("Invalid request: source_text must be a string or an array of strings, as q is")


def _pick_model(service: Service, fields: ScoreRequest, *, translated: bool) -> ModelRoute:
    """Return the named model, or the first that scores: a translation model if there are source texts."""
    if fields.model is not None:
        return service.route(fields.model)
    sides = (side for info in service.models() for side in (info.directions.sources, info.directions.targets))
    codes = set(chain.from_iterable(sides))
    source, target = (resolve_code(code, codes) if code else None for code in (fields.source, fields.target))
    if translated:
        return service.pick("translate", source, target)
    infos = service.models()
    for info in infos:
        if info.task == LANGUAGE_MODEL and target in (None, info.target):
            return service.route(info.name)
    listing = ", ".join(f"{info.name} ({info.task})" for info in infos)
    raise UnknownModel(f"no such language model; give source_text for other models. Loaded are: {listing}")


def _score(result: TextScore) -> dict[str, Any]:
    """Return the score of one text as JSON."""
    return {
        "score": finite(result.total),
        "perplexity": finite(result.perplexity),
        "words": result.words,
        "tokens": result.tokens,
        "tokenScores": result.token_scores,
    }
