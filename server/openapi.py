"""What OpenAPI says of requests and answers. The routes read bodies by themselves, as clients send them in
several forms; the examples are real: the test-suite sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
TEXTS: Final = {
    "description": "A text, or in JSON an array of texts.",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ],
}
CODES: Final = {
    "source": {"type": "string", "description": 'Language code, or "auto".', "examples": ["de"]},
    "target": {"type": "string", "description": "Language code.", "examples": ["en"]},
    "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
}
REASONS: Final = {
    400: "The request can never succeed as it stands.",
    401: "Needs the operator's token.",
    403: "Not allowed here.",
    404: "Nothing of that name.",
    409: "Refused; all is as it was.",
    413: "Larger than this server takes.",
    429: "The queue is full; Retry-After says when to come back.",
    500: "A fault of the server's own.",
    503: "Stopping, or not ready yet.",
    504: "The deadline passed.",
}
EVENTS: Final[dict[str, Any]] = {"text/event-stream": {}}
# what a route that may stream answers with, beside its JSON
STREAMED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The answer; with `stream` as server-sent events.", "content": EVENTS}
}


class ErrorAnswer(BaseModel):
    error: str = Field(description="What is wrong, and what to do about it.")


class MessageAnswer(BaseModel):
    message: str = Field(description="What is wrong, and what to do about it.")


class DetectedLanguage(BaseModel):
    confidence: float = Field(ge=0, le=100)
    language: str


class LanguageAnswer(BaseModel):
    code: str
    name: str
    targets: list[str]


class Scores(BaseModel):
    score: float | None
    alternatives: list[float | None]
    model: str
    tokens: list[str]
    tokenScores: list[float | None]
    finish: str
    sourceTokens: int
    targetTokens: int
    via: dict[str, Any] | None = None


class CoverageAnswer(BaseModel):
    words: list[str]
    mass: list[float]
    missed: list[int]


class RepetitionAnswer(BaseModel):
    share: float
    loop: bool


class Sentence(BaseModel):
    source: list[str]
    target: list[str]
    matrix: list[list[float | None]]


class Extras(BaseModel):
    """Only what was asked for; lists where the request had an array of texts."""

    model_config = ConfigDict(extra="allow")

    alternatives: list[str] | list[list[str]] = []
    scores: Scores | list[Scores] | None = None
    alignment: list[Sentence] | list[list[Sentence]] | None = None
    coverage: list[CoverageAnswer] | list[list[CoverageAnswer]] | None = None
    repetition: RepetitionAnswer | list[RepetitionAnswer] | None = None
    timings: dict[str, float] | None = None


class TranslateAnswer(Extras):
    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class SummarizeAnswer(Extras):
    summaryText: str | list[str]
    truncated: bool | list[bool]


def errors(*statuses: int, model: type[BaseModel] = ErrorAnswer) -> dict[int | str, dict[str, Any]]:
    """The errors a route may answer with."""
    return {status: {"model": model, "description": REASONS[status]} for status in statuses}


def body_of(model: type[BaseModel] | None = None, codes: tuple[str, ...] = ()) -> dict[str, Any]:
    """OpenAPI of a body with `q`, some `codes` and the fields of `model`; JSON and form alike."""
    properties: dict[str, Any] = {"q": TEXTS} | {name: CODES[name] for name in codes}
    required = ["q", *(name for name in codes if name != "format")]
    if model is not None:
        properties["alternatives"] = {"type": "integer", "default": 0}
        properties |= model.model_json_schema()["properties"]
    example = {"q": "Wo ist der Bahnhof?"} | ({"source": "de", "target": "en"} if codes else {})
    return request_of(properties, required, example)


def request_of(
    properties: Mapping[str, Any],
    required: list[str],
    example: Mapping[str, Any] | None,
    kinds: tuple[str, ...] = (JSON, FORM),
) -> dict[str, Any]:
    """OpenAPI of a body of these kinds. example: a body that this server answers with 200."""
    schema = {"type": "object", "required": required, "properties": dict(properties)}
    shown = {"example": dict(example)} if example else {}
    content = {kind: {"schema": schema} | shown for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}
