"""DeepL's interface, version 2: /v2/translate, /v2/languages and /v2/usage. Errors are {"message": "..."}."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from documents.formats.html import HTML, MarkupRules, Page, outline, read_html
from engine.api import InvalidRequest, ModelRoute, TextOptions, TextResult, TooLarge, in_slices
from server.answering.partly import answer_partly
from server.answering.translation import page_prose, read_pages, routes_for, run_each, translate_pages
from server.callers.access import charge
from server.callers.access import usage as usage_of
from server.contracts.deepl.entries import present
from server.contracts.deepl.languages import codes_of, languages_of
from server.contracts.deepl.multilingual_routes import entries_of
from server.http.openapi import SERVED, MessageAnswer, errors, in_query, lenient, request_of
from server.http.parameters import parameters, while_connected
from server.http.responses import json_response
from server.http.schemas import check_phrases, check_sizes, check_tags, validate
from server.http.unread import unread_of, with_warnings
from server.state import AppState, deadline_of, refuse_while_draining, state_of

MAX_TAG_NAMES: Final = 1_000
MAX_TAG_NAME_CHARACTERS: Final = 1_024
MAX_TAG_NAMES_CHARACTERS: Final = 65_536  # of a list of names in one text, with commas
ERRORS: Final = errors(400, 404, 413, 429, 503, 504, model=MessageAnswer)

router = APIRouter(prefix="/v2", tags=["DeepL"])
first_version = APIRouter(prefix="/v1", tags=["DeepL"])  # used by tools of translators, such as OmegaT


def _names(value: Any) -> Any:
    """Return the names in a list of tags: an array in JSON, a text with commas in a form."""
    count = value.count(",") + 1 if isinstance(value, str) else len(value) if isinstance(value, list) else 0
    if count > MAX_TAG_NAMES:  # checked before the names are split
        raise ValueError(f"at most {MAX_TAG_NAMES} names")
    if isinstance(value, str) and len(value) > MAX_TAG_NAMES_CHARACTERS:
        raise ValueError(f"at most {MAX_TAG_NAMES_CHARACTERS} characters, or an array of names")
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()] if _all_texts(parts) else parts


def _all_texts(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, str) for part in parts)


TagName = Annotated[str, Field(max_length=MAX_TAG_NAME_CHARACTERS)]
TAG_NAMES: Final[JsonDict] = {
    "anyOf": [
        {
            "type": "array",
            "items": {"type": "string", "maxLength": MAX_TAG_NAME_CHARACTERS},
            "maxItems": MAX_TAG_NAMES,
        },
        {"type": "string", "maxLength": MAX_TAG_NAMES_CHARACTERS, "description": "With commas between them."},
    ]
}
Names = Annotated[
    list[TagName],
    Field(max_length=MAX_TAG_NAMES),
    BeforeValidator(_names),
    WithJsonSchema({**TAG_NAMES}),
]


def _word(value: Any) -> Any:
    if isinstance(value, bool | int):
        return str(int(value))
    return {"true": "1", "false": "0"}.get(value, value) if isinstance(value, str) else value


Word = BeforeValidator(_word)
Blank = BeforeValidator(lambda value: None if value == "" else value)
SENTENCE_SPLITTING: Final[JsonDict] = {
    "anyOf": [
        {"type": "string", "enum": ["0", "1", "nonewlines", ""]},
        {"type": "integer", "enum": [0, 1]},
        {"type": "boolean"},
        {"type": "null"},
    ]
}


class DeepLRequest(BaseModel):
    """Fields of /v2/translate, without `text`, `target_lang` and `source_lang`.

    Answers warn about unknown fields.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    context: str = Field("", description="Accepted; the models read a text by itself.")
    split_sentences: Annotated[Literal["0", "1", "nonewlines"] | None, Blank, Word] = Field(
        None,
        description="0: each text is one sentence. Default 1; nonewlines with tag_handling=html.",
        json_schema_extra=SENTENCE_SPLITTING,
    )
    preserve_formatting: bool = Field(False, description="Keep case at the start and marks at the end.")
    # "more" and "less" are valid values, refused with DeepL's own error
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = Field(
        "default", json_schema_extra={"enum": ["default", "prefer_more", "prefer_less"]}
    )
    model_type: str | None = None
    tag_handling: Annotated[Literal["xml", "html"] | None, Blank] = Field(
        None, json_schema_extra={"anyOf": [{"type": "string", "enum": ["xml", "html", ""]}, {"type": "null"}]}
    )
    outline_detection: bool = Field(True, description="XML: find the tags that split by the structure.")
    splitting_tags: Names = []
    non_splitting_tags: Names = []
    ignore_tags: Names = Field([], description="Tags whose content is not translated.")
    glossary_id: str | None = Field(None, description="One of /v2/glossaries; needs `source_lang`.")
    glossary_ids: Names = Field([], description="Several, at most five; the first that has a phrase counts.")
    show_billed_characters: bool = True
    partial: bool = Field(
        False,
        description="Convoy's own: translate the texts that can be; others have a `message` and no text.",
    )


READ: Final = frozenset((*DeepLRequest.model_fields, "text", "target_lang", "source_lang"))


@dataclass(frozen=True, slots=True)
class DeepLCall:
    """A checked request.

    texts: texts in the order of the request.
    source: our code of their language; None: the language is to be detected.
    target: our code of the language to translate into.
    fields: other fields of the request.
    glossary: translations by source phrase.
    """

    texts: list[str]
    source: str | None
    target: str
    fields: DeepLRequest
    glossary: dict[str, str]

    def options(self) -> TextOptions:
        return TextOptions(
            split=self.fields.split_sentences != "0",
            protect=True,
            follow_form=self.fields.preserve_formatting,
            glossary=self.glossary,
        )


class DeepLTranslation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None
    message: str | None = None


class DeepLAnswer(BaseModel):
    translations: list[DeepLTranslation]
    warnings: dict[str, str] = {}


class DeepLLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None


class UsageAnswer(BaseModel):
    character_count: int
    character_limit: int


TRANSLATE_FIELDS: Final = {
    "text": {
        "anyOf": [
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "string", "minLength": 1},
        ],
        "description": "Texts; in a form, `text` several times.",
    },
    "target_lang": {"type": "string", SERVED: "deepl target"},
    "source_lang": {
        "anyOf": [{"type": "string", SERVED: "deepl source"}, {"type": "null"}],
        "description": "Default: detected for each text.",
    },
} | lenient(DeepLRequest.model_json_schema()["properties"], null=True)


TRANSLATE_BODY: Final = request_of(
    TRANSLATE_FIELDS,
    ["text", "target_lang"],
    {"text": ["Guten Morgen!"], "source_lang": "DE", "target_lang": "EN-GB"},
    repeated=("text",),
)


@first_version.post(
    "/translate",
    operation_id="deepl_translate_first_version_by_post",
    response_model=DeepLAnswer,
    responses=ERRORS,
    openapi_extra=TRANSLATE_BODY,
)
@router.post("/translate", response_model=DeepLAnswer, responses=ERRORS, openapi_extra=TRANSLATE_BODY)
async def translate(request: Request) -> Response:
    """Translate texts as DeepL does: all are accepted or none."""
    state = state_of(request)
    deadline = deadline_of(request, state)
    values = await parameters(request, state.settings.body_limit, ("text",))
    texts, (source, target) = _texts(values), codes_of(state.service, values)
    fields = _fields_of(values)
    check_sizes(texts, -1 if fields.partial else state.settings.char_limit, state.settings.batch_limit)
    if fields.tag_handling:
        check_tags(texts, state.settings.tag_limit)
    named = fields.glossary_ids or ([fields.glossary_id] if fields.glossary_id else [])
    entries = await entries_of(request, named, source, target)
    call = DeepLCall(texts, source, target, fields, entries)
    if not fields.partial:
        await charge(request, texts)
    answer = await while_connected(request, _answer_call(request, call, deadline))
    answer = with_warnings(answer, unread_of(values, READ, state.names.query_key_fields))
    return await json_response(answer, deadline, {"X-Trace-ID": secrets.token_hex(16)})


@first_version.get(
    "/translate",
    operation_id="deepl_translate_first_version",
    response_model=DeepLAnswer,
    responses=ERRORS,
    openapi_extra={"parameters": in_query(TRANSLATE_FIELDS, ["text", "target_lang"], ("text",))},
)
@router.get(
    "/translate",
    response_model=DeepLAnswer,
    responses=ERRORS,
    openapi_extra={"parameters": in_query(TRANSLATE_FIELDS, ["text", "target_lang"], ("text",))},
)
async def translate_by_query(request: Request) -> Response:
    """Do the same as `POST /v2/translate` with all in the query string, as OmegaT asks."""
    refuse_while_draining(request)
    return await translate(request)


LANGUAGE_TYPE: Final = {
    "parameters": [
        {
            "name": "type",
            "in": "query",
            "schema": {"type": "string", "enum": ["source", "target", ""], "default": "source"},
        }
    ]
}


@first_version.get(
    "/languages",
    operation_id="deepl_languages_first_version",
    response_model=list[DeepLLanguage],
    responses=errors(400, 413, 429, 503, model=MessageAnswer),
    openapi_extra=LANGUAGE_TYPE,
)
@router.get(
    "/languages",
    response_model=list[DeepLLanguage],
    responses=errors(400, 413, 429, 503, model=MessageAnswer),
    openapi_extra=LANGUAGE_TYPE,
)
async def languages(request: Request) -> JSONResponse:
    """List the languages of the models. DeepL's own client sends `type` as a form in the body."""
    state = state_of(request)
    kind = (await parameters(request, state.settings.body_limit)).get("type") or "source"
    if kind not in ("source", "target"):
        raise InvalidRequest("Value for 'type' not supported.")
    return JSONResponse(languages_of(state.service, target=kind == "target"))


@first_version.get(
    "/usage",
    operation_id="deepl_usage_first_version",
    response_model=UsageAnswer,
    responses=errors(429, 503, model=MessageAnswer),
)
@router.get("/usage", response_model=UsageAnswer, responses=errors(429, 503, model=MessageAnswer))
async def usage(request: Request) -> JSONResponse:
    """Count the characters translated by this key or address in 30 days."""
    used = await usage_of(request)
    return JSONResponse({"character_count": used.count, "character_limit": used.limit})


async def _answer_call(request: Request, call: DeepLCall, deadline: float) -> dict[str, Any]:
    """Answer a request; with `partial`, each text that can be translated."""
    state = state_of(request)
    if not call.fields.partial:
        return await _answer(state, call, deadline)

    async def answer_some(numbers: list[int]) -> dict[str, Any]:
        return await _answer(state, replace(call, texts=[call.texts[n] for n in numbers]), deadline)

    answer, faults = await answer_partly(request, call.texts, answer_some)
    nothing = {"detected_source_language": (call.source or "").upper(), "text": "", "billed_characters": 0}
    return {
        "translations": [
            nothing | {"message": str(fault)} if fault else translation
            for translation, fault in zip(answer["translations"], faults, strict=True)
        ]
    }


async def _answer(state: AppState, call: DeepLCall, deadline: float) -> dict[str, Any]:
    texts, source, fields = call.texts, call.source, call.fields
    pages = await read_pages(texts, partial(_page, fields=fields), deadline) if fields.tag_handling else None
    samples = [page_prose(page) for page in pages] if pages else texts
    glossary = await in_slices(present(call.glossary, samples), deadline)
    check_phrases(len(glossary), state.settings.phrase_limit)
    call = replace(call, glossary=glossary)
    detections, routes = await routes_for(state, samples, source, call.target, deadline)
    codes = [str(each["language"]) for each in detections] if source is None else [source] * len(texts)
    if pages is None:
        translations = await _plain(state, call, routes, deadline)
    else:
        translations, _ = await translate_pages(state, pages, routes, call.options(), deadline)
    used = {"model_type_used": fields.model_type.removeprefix("prefer_")} if fields.model_type else {}
    return {
        "translations": [
            {
                "detected_source_language": code.partition("-")[0].upper(),
                "text": new,
                "billed_characters": len(old),  # DeepL's client requires it
            }
            | used
            for code, new, old in zip(codes, translations, texts, strict=True)
        ]
    }


async def _plain(
    state: AppState, call: DeepLCall, routes: list[ModelRoute | None], deadline: float
) -> list[str]:
    texts, fields = call.texts, call.fields
    sources = [on_one_line(text) for text in texts] if fields.split_sentences == "nonewlines" else texts
    options = call.options()

    async def run(options: TextOptions) -> list[TextResult]:
        return await run_each(state, sources, routes, options, deadline)

    try:
        results = await run(options)
    except TooLarge:
        if options.split:
            raise
        results = await run(replace(options, split=True))  # a text is longer than the model reads
    return [result.text for result in results]


def _page(text: str, fields: DeepLRequest) -> Page:
    splitting, whole = frozenset(fields.splitting_tags), frozenset(fields.non_splitting_tags)
    keep = frozenset(fields.ignore_tags)
    if fields.tag_handling == "html":
        return read_html(
            text,
            MarkupRules(blocks=HTML.blocks | splitting, keep=HTML.keep | keep, inline=whole, marks=keep),
        )
    fold = fields.split_sentences == "nonewlines"
    rules = MarkupRules(xml=True, blocks=splitting, keep=keep, inline=whole, marks=keep, fold=fold)
    if fields.outline_detection:
        rules = replace(rules, blocks=splitting | outline(text, rules))
    return read_html(text, rules)


def _texts(values: dict[str, Any]) -> list[str]:
    texts = values.get("text")
    if not texts:
        raise InvalidRequest("Parameter 'text' not specified.")
    texts = [texts] if isinstance(texts, str) else texts
    if not _all_texts(texts):
        raise InvalidRequest("Value for 'text' not supported: send an array of strings.")
    return list(texts)


def _fields_of(values: dict[str, Any]) -> DeepLRequest:
    fields = validate(DeepLRequest, {name: value for name, value in values.items() if value is not None})
    if fields.formality in ("more", "less"):
        raise InvalidRequest("'formality' is not supported for given 'target_lang'.")
    if fields.glossary_id and fields.glossary_ids:
        raise InvalidRequest("Parameters 'glossary_id' and 'glossary_ids' can't be used together.")
    return fields


def on_one_line(text: str) -> str:
    """Replace each run of white space that contains a line break by one space."""
    first, *rest = text.split("\n")
    if not rest:
        return text
    middle = (line.strip() for line in rest[:-1])
    return " ".join([first.rstrip(), *filter(None, middle), rest[-1].lstrip()])
