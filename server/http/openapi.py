"""The OpenAPI description of requests and answers.

FastAPI can't derive it, because routes parse bodies themselves. Tests send its examples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from fastapi.routing import APIRoute
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
ALTERNATIVES: Final = {
    "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^(-?[0-9]{1,9})?$"}, {"type": "null"}],
    "default": 0,
    "description": "How many other answers to each text to give as well.",
}
# key of a field's schema: the kind of languages that it names, for `complete_schema` in completing.py
SERVED: Final = "x-served"
TIMEOUT: Final = {
    "name": "X-Request-Timeout",
    "in": "header",
    "required": False,
    "description": "Seconds that the answer may take; at most the server's own.",
    "schema": {"type": "number", "minimum": 1},
}
LANGUAGE: Final = {"type": "string", SERVED: "target"}
MAX_TARGETS: Final = 20  # languages that one request is translated into
# `target` in JSON: one language or several
TARGETS: Final = {
    "anyOf": [LANGUAGE, {"type": "array", "items": LANGUAGE, "minItems": 1, "maxItems": MAX_TARGETS}],
    "description": "Language code; in JSON also an array of codes, answered by `translations`.",
    "examples": ["en"],
}
CODES: Final = {
    "source": {
        "type": "string",
        SERVED: "auto",
        "description": 'Language code, or "auto".',
        "examples": ["de"],
    },
    "target": LANGUAGE | {"description": "Language code.", "examples": ["en"]},
    "format": {
        "anyOf": [{"type": "string", "enum": ["text", "html", ""]}, {"type": "null"}],
        "default": "text",
    },
}
# reason of each status of errors, for the descriptions of routes and the table in docs/api.md
REASONS: Final = {
    400: "The request can never succeed as it stands.",
    401: "The request needs the operator's token.",
    403: "The caller is not allowed to do this.",
    404: "The path, model, glossary or file does not exist.",
    405: "The path has other methods; `Allow` lists them.",
    408: "The body did not arrive in time.",
    409: "The order conflicts with the state of the server, which is unchanged.",
    413: "The body or file exceeds its limit, or the request exceeds the whole queue or the model's limits.",
    414: "The path is too long.",
    421: "The host name is not one of `CONVOY_ALLOWED_HOSTS`.",
    429: "The queue is full, or the caller sends too many requests; retry after `Retry-After` seconds.",
    499: "The client has disconnected; only logs and metrics show this status.",
    500: "The server failed; its log has the reason.",
    503: "The answer would miss its deadline, the server is stopping or starting, or a model is not ready.",
    504: "The deadline has passed.",
    507: "The disk is full.",
}
EVENTS: Final[dict[str, Any]] = {"text/event-stream": {}}
# responses of a route that may stream its answer
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


class ScoresAnswer(BaseModel):
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


class SentenceAnswer(BaseModel):
    model: str = Field(description="Model that gave the answer.")
    doubt: str = Field(description="Reason for doubt of the first model's answer; empty: there is none.")
    refused: str = Field(description="Reason that the first model's answer stays in spite of it.")


class AlignmentAnswer(BaseModel):
    source: list[str]
    target: list[str]
    matrix: list[list[float | None]]


class Extras(BaseModel):
    """Optional parts of an answer; lists if the request had an array of texts."""

    model_config = ConfigDict(extra="allow")

    alternatives: list[str] | list[list[str]] = []
    scores: ScoresAnswer | list[ScoresAnswer] | None = None
    alignment: list[AlignmentAnswer] | list[list[AlignmentAnswer]] | None = None
    coverage: list[CoverageAnswer] | list[list[CoverageAnswer]] | None = None
    repetition: RepetitionAnswer | list[RepetitionAnswer] | None = None
    timings: dict[str, float] | None = None
    warnings: dict[str, str] = Field({}, description="By the names of fields that were not read.")


class TextError(BaseModel):
    code: str
    error: str


class TranslateAnswer(Extras):
    translatedText: str | list[str | None]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage | None] | None = None
    errors: list[TextError | None] | None = None
    forced: int | list[int | None] | None = None
    via: list[SentenceAnswer] | list[list[SentenceAnswer] | None] | None = None


class TargetAnswer(TranslateAnswer):
    target: str


class TargetsAnswer(BaseModel):
    """The answer to a request with several targets."""

    translations: list[TargetAnswer]
    warnings: dict[str, str] = Field({}, description="By the names of fields that were not read.")


class SummarizeAnswer(Extras):
    summaryText: str | list[str | None]
    truncated: bool | list[bool | None]
    errors: list[TextError | None] | None = None
    parts: int | list[int] | None = None
    rounds: int | list[int] | None = None


def errors(*statuses: int, model: type[BaseModel] = ErrorAnswer) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses of a route."""
    return {status: {"model": model, "description": REASONS[status]} for status in statuses}


def fields_of(
    model: type[BaseModel] | None = None, codes: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the OpenAPI schemas of fields by name, and the names of the required ones.

    model: model of the options; None: there are none.
    codes: names of the fields in `CODES` that the route has, besides `q`.
    """
    properties: dict[str, Any] = {"q": TEXTS} | {name: CODES[name] for name in codes}
    required = ["q", *(name for name in codes if name != "format")]
    if model is not None:
        properties["alternatives"] = ALTERNATIVES
        properties |= lenient(model.model_json_schema()["properties"])
    return properties, required


def body_of(model: type[BaseModel] | None = None, codes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Describe a body of JSON or a form, with the fields of `fields_of`."""
    example = {"q": "Wo ist der Bahnhof?"} | ({"source": "de", "target": "en"} if codes else {})
    properties, required = fields_of(model, codes)
    return request_of(properties | ({"target": TARGETS} if codes else {}), required, example)


def lenient(properties: Mapping[str, Any], *, null: bool = False) -> dict[str, Any]:
    """Return schemas in which booleans may be 0 and 1.

    properties: schemas of the fields, by name.
    null: whether each field may be null, which means that it is missing.
    """
    return {name: _lenient(schema, null=null) for name, schema in properties.items()}


def _lenient(schema: Mapping[str, Any], *, null: bool = False) -> dict[str, Any]:
    """Return a schema whose boolean may be 0 or 1, and which may be null if `null` is set."""
    annotations = {key: value for key, value in schema.items() if key in ("title", "description", "default")}
    constraints = {key: value for key, value in schema.items() if key not in annotations}
    kinds = list(constraints.get("anyOf", [constraints]))
    if {"type": "boolean"} in kinds:
        kinds.append({"type": "integer", "enum": [0, 1]})
    if null and {"type": "null"} not in kinds:
        kinds.append({"type": "null"})
    return annotations | {"anyOf": kinds} if len(kinds) > 1 else dict(schema)


def in_query(
    properties: Mapping[str, Any], required: Collection[str], repeated: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Describe fields as parameters of a query string.

    properties: schemas of the fields, by name.
    required: names of required fields.
    repeated: names of fields that may be repeated.
    """
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {
                key: value
                for key, value in _as_text(schema, several=name in repeated).items()
                if key != "description"
            },
            "description": schema.get("description", ""),
        }
        for name, schema in properties.items()
    ]


def properties_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schemas of a model's fields by name, with the schemas of other models inlined."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})

    def inlined(value: Any) -> Any:
        """Return a schema with the definitions it refers to in place."""
        if isinstance(value, list):
            return [inlined(item) for item in value]
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            return inlined(definitions[name]) if name else {key: inlined(item) for key, item in value.items()}
        return value

    return {name: inlined(field) for name, field in schema["properties"].items()}


def _as_text(schema: Mapping[str, Any], *, several: bool) -> dict[str, Any]:
    """Return the schema of a field in a form or query string.

    schema: schema of the field in JSON.
    several: whether the field may be repeated; otherwise an array is written as a text.

    A form has no null, and its booleans may be 0 and 1.
    """
    field = dict(schema)
    dropped_types = {"null"} if several else {"null", "array"}
    kinds = [dict(kind) for kind in field.pop("anyOf", ()) if kind.get("type") not in dropped_types]
    for kind in kinds if several else ():
        kind.pop("minLength", None)  # a text in an array may be empty
    field |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    if field.get("type") == "array" and not several:
        annotations = {key: field[key] for key in ("title", "description") if key in field}
        field = {"type": "string"} | annotations
    field = _lenient(field)
    return field


def request_of(
    properties: Mapping[str, Any],
    required: list[str],
    example: Mapping[str, Any] | None,
    kinds: tuple[str, ...] = (JSON, FORM),
    repeated: Collection[str] = (),
) -> dict[str, Any]:
    """Describe the body of a request.

    properties: schemas of the body's fields, by name.
    required: names of required fields.
    example: body that the server answers with status 200; None: no example.
    kinds: media types of the body.
    repeated: names of fields that a form may repeat.
    """
    shown = {"example": dict(example)} if example else {}
    as_text = {name: _as_text(schema, several=name in repeated) for name, schema in properties.items()}
    fields = {kind: properties if kind == JSON else as_text for kind in kinds}
    content = {
        kind: {"schema": {"type": "object", "required": required, "properties": dict(fields[kind])}} | shown
        for kind in kinds
    }
    return {"requestBody": {"required": True, "content": content}, "parameters": [TIMEOUT]}


class ModelAnswer(BaseModel):
    """A model: its task, its limits in tokens, its decoding defaults, and whether it is loaded."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    name: str
    task: str
    source: str
    target: str
    architecture: str
    parameters: int
    limits: dict[str, Any]
    precision: str
    backend: str
    options: dict[str, Any]
    state: str
    memory: int = Field(description="Bytes, estimated.")


class VersionAnswer(BaseModel):
    name: str
    version: str
    revision: str


def operation_name(route: APIRoute) -> str:
    """Return a unique name of an operation: its function's name, with a prefix for DeepL and KServe."""
    tag = str(route.tags[0]).casefold() if route.tags else ""
    name = f"{tag}_{route.name}" if tag in ("deepl", "kserve") else route.name
    return f"{name}_version" if "/versions/" in route.path else name
