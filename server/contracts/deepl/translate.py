"""DeepL's interface, version 2: /v2/translate, /v2/languages and /v2/usage. Errors are {"message": "..."}."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from documents.formats.html import Page
from documents.formats.tags import HTML, MarkupRules
from engine.api import InvalidRequest, ModelRoute, Slices, TextOptions, TextResult, TooLarge, in_slices
from server.answering.pages import read_by_rules
from server.answering.partly import answer_partly
from server.answering.translation import (
    page_prose,
    read_pages,
    routes_for,
    run_each,
    translate_pages,
    wrong_source,
)
from server.callers.access import charge
from server.callers.access import usage as usage_of
from server.contracts.deepl.entries import present_entries
from server.contracts.deepl.fields import (
    READ,
    TRANSLATE_BODY,
    TRANSLATE_FIELDS,
    UNMET,
    DeepLRequest,
    texts_of,
    validated_fields,
)
from server.contracts.deepl.languages import codes_of, languages_of
from server.contracts.deepl.multilingual_routes import entries_of
from server.http.openapi import MessageAnswer, errors, in_query
from server.http.parameters import parameters, while_connected
from server.http.responses import json_response
from server.http.schemas import check_phrases, check_sizes, check_tags
from server.http.unread import unread_of, with_warnings
from server.state import AppState, deadline_of, refuse_while_draining, state_of

AFTER_BREAK: Final = re.compile(r"\n\s+")
INLINE_CHARACTERS: Final = 16_384  # longer texts are put on one line in slices
ERRORS: Final = errors(400, 404, 413, 429, 503, 504, model=MessageAnswer)

router = APIRouter(prefix="/v2", tags=["DeepL"])
first_version = APIRouter(prefix="/v1", tags=["DeepL"])  # used by tools of translators, such as OmegaT


@dataclass(frozen=True, slots=True)
class DeepLCall:
    """A checked request.

    texts: texts in the order of the request.
    source: our code of the texts' language; None: the language is to be detected.
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
        """Return the text options of the request."""
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
    texts, (source, target) = texts_of(values), codes_of(state.service, values)
    fields = validated_fields(values)
    check_sizes(texts, -1 if fields.partial else state.settings.char_limit, state.settings.batch_limit)
    if fields.tag_handling:
        check_tags(texts, state.settings.tag_limit)
    glossary_ids = fields.glossary_ids or ([fields.glossary_id] if fields.glossary_id else [])
    entries = await entries_of(request, glossary_ids, source, target)
    call = DeepLCall(texts, source, target, fields, entries)
    if not fields.partial:
        await charge(request, texts)
    answer = await while_connected(request, _answer_call(request, call, deadline))
    unmet = {name: text for name, text in UNMET.items() if values.get(name)}
    unmet |= await wrong_source(state.service, texts, source, "source_lang", deadline)
    answer = with_warnings(answer, unread_of(values, READ, state.names.query_key_fields) | unmet)
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
    usage = await usage_of(request)
    return JSONResponse({"character_count": usage.count, "character_limit": usage.limit})


async def _answer_call(request: Request, call: DeepLCall, deadline: float) -> dict[str, Any]:
    """Answer a request; with `partial`, each text that can be translated."""
    state = state_of(request)
    if not call.fields.partial:
        return await _translate_all(state, call, deadline)

    async def answer_some(numbers: list[int]) -> dict[str, Any]:
        return await _translate_all(state, replace(call, texts=[call.texts[n] for n in numbers]), deadline)

    answer, faults = await answer_partly(request, call.texts, answer_some)
    empty = {"detected_source_language": (call.source or "").upper(), "text": "", "billed_characters": 0}
    return {
        "translations": [
            empty | {"message": str(fault)} if fault else translation
            for translation, fault in zip(answer["translations"], faults, strict=True)
        ]
    }


async def _translate_all(state: AppState, call: DeepLCall, deadline: float) -> dict[str, Any]:
    """Return the answer to all texts of a call. Only glossary entries that occur in the texts are used."""
    texts, source, fields = call.texts, call.source, call.fields
    pages = await read_pages(state, texts, _reader_of(fields), deadline) if fields.tag_handling else None
    samples = [page_prose(page) for page in pages] if pages else texts
    glossary = await in_slices(present_entries(call.glossary, samples), deadline)
    check_phrases(len(glossary), state.settings.phrase_limit)
    call = replace(call, glossary=glossary)
    detections, routes = await routes_for(state, samples, source, call.target, deadline)
    codes = (
        [str(detection["language"]) for detection in detections] if source is None else [source] * len(texts)
    )
    if pages is None:
        translations = await _translate_plain(state, call, routes, deadline)
    else:
        translations, _ = await translate_pages(state, pages, routes, call.options(), deadline)
    model_type = {"model_type_used": fields.model_type.removeprefix("prefer_")} if fields.model_type else {}
    return {
        "translations": [
            {
                "detected_source_language": code.partition("-")[0].upper(),
                "text": translation,
                "billed_characters": len(text),  # DeepL's client requires it
            }
            | model_type
            for code, translation, text in zip(codes, translations, texts, strict=True)
        ]
    }


async def _translate_plain(
    state: AppState, call: DeepLCall, routes: list[ModelRoute | None], deadline: float
) -> list[str]:
    """Return the translations of texts without tags, each by its own model."""
    texts, fields = call.texts, call.fields
    sources = texts
    if fields.split_sentences == "nonewlines":
        small = sum(map(len, texts)) < INLINE_CHARACTERS
        sources = await in_slices(_joined(texts), deadline, small=small)
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


def _reader_of(fields: DeepLRequest) -> Callable[[str], Page]:
    """Return the function that parses a text with tags by the request's rules for tags."""
    splitting, whole = frozenset(fields.splitting_tags), frozenset(fields.non_splitting_tags)
    keep = frozenset(fields.ignore_tags)
    if fields.tag_handling == "html":
        rules = MarkupRules(blocks=HTML.blocks | splitting, keep=HTML.keep | keep, inline=whole, marks=keep)
        return partial(read_by_rules, rules, False)
    fold = fields.split_sentences == "nonewlines"
    rules = MarkupRules(xml=True, blocks=splitting, keep=keep, inline=whole, marks=keep, fold=fold)
    return partial(read_by_rules, rules, fields.outline_detection)


def _joined(texts: list[str]) -> Slices[list[str]]:
    """Put each text on one line, a text in each slice."""
    lines = []
    for text in texts:
        lines.append(on_one_line(text))
        yield
    return lines


def on_one_line(text: str) -> str:
    """Replace each run of white space that contains a line break by one space."""
    *lines, last = AFTER_BREAK.sub("\n", text).split("\n")
    return " ".join([*map(str.rstrip, lines), last])
