"""DeepL's glossaries, version 2: /v2/glossaries and /v2/glossary-language-pairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from engine.api import InvalidRequest, in_slices
from server.callers.access import owner_of, share_of
from server.contracts.deepl.entries import read_entries
from server.contracts.deepl.glossaries import (
    MAX_NAME_CHARACTERS,
    Glossaries,
    Glossary,
    pairs_of,
    tsv_of,
)
from server.contracts.deepl.languages import base_of
from server.files.shared_records import Records, within
from server.http.openapi import SERVED, MessageAnswer, errors, request_of
from server.http.parameters import parameters
from server.state import state_of

TSV: Final = "text/tab-separated-values"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store of glossaries, and convert the glossaries of older releases."""
    store = app.state.convoy.settings.store_folder
    app.state.glossaries = Glossaries(Records(within(store, "glossaries")))
    if (old := within(store, "multilingual-glossaries")) and old.is_dir():
        await asyncio.to_thread(app.state.glossaries.adopt, old)
    yield


router = APIRouter(prefix="/v2", tags=["DeepL"], lifespan=lifespan)


class GlossaryAnswer(BaseModel):
    glossary_id: str
    name: str
    ready: bool
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class Pair(BaseModel):
    source_lang: str
    target_lang: str


GLOSSARY_FIELDS: Final = {
    "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
    "source_lang": {"type": "string", "minLength": 1, SERVED: "glossary source"},
    "target_lang": {"type": "string", "minLength": 1, SERVED: "glossary target"},
    "entries": {
        "type": "string",
        "minLength": 1,
        "description": "Source and target phrases, an entry a line.",
    },
    "entries_format": {"type": "string", "enum": ["tsv", "csv"]},
}
ERRORS: Final = errors(404, 429, 503, model=MessageAnswer)


@router.get(
    "/glossary-language-pairs",
    response_model=dict[str, list[Pair]],
    responses=errors(429, 503, model=MessageAnswer),
)
async def language_pairs(request: Request) -> JSONResponse:
    """List the pairs of languages that glossaries may be for."""
    pairs = pairs_of(state_of(request).service)
    return JSONResponse({"supported_languages": [{"source_lang": s, "target_lang": t} for s, t in pairs]})


@router.post(
    "/glossaries",
    status_code=201,
    response_model=GlossaryAnswer,
    responses=errors(400, 413, 429, 503, model=MessageAnswer),
    openapi_extra=request_of(GLOSSARY_FIELDS, list(GLOSSARY_FIELDS), None),
)
async def create(request: Request) -> JSONResponse:
    """Create a glossary, which only its owner can use. Without a store folder it ends with the server."""
    state = state_of(request)
    values = await parameters(request, state.settings.body_limit)
    fields = {name: text_parameter(values, name) for name in GLOSSARY_FIELDS}
    pair = base_of(fields["source_lang"].lower()), base_of(fields["target_lang"].lower())
    if pair not in pairs_of(state.service):
        raise InvalidRequest("Unsupported glossary source and target language pair.")
    entries = await in_slices(read_entries(fields["entries"], fields["entries_format"]))
    glossary = Glossary(owner_of(request), fields["name"], {pair: entries}, share_of(request))
    await asyncio.to_thread(glossaries_of(request).add, glossary)
    return JSONResponse(_glossary_values(glossary), 201)


@router.get(
    "/glossaries",
    response_model=dict[str, list[GlossaryAnswer]],
    responses=errors(429, 503, model=MessageAnswer),
)
async def listed(request: Request) -> JSONResponse:
    """List the caller's own glossaries."""
    own = await asyncio.to_thread(glossaries_of(request).of, owner_of(request))
    return JSONResponse({"glossaries": [_glossary_values(glossary) for glossary in own]})


@router.get("/glossaries/{glossary_id}", response_model=GlossaryAnswer, responses=ERRORS)
async def one(request: Request, glossary_id: str) -> JSONResponse:
    return JSONResponse(_glossary_values(await _find(request, glossary_id)))


@router.get(
    "/glossaries/{glossary_id}/entries",
    response_class=Response,
    responses=ERRORS | {200: {"content": {TSV: {}}}},
)
async def entries(request: Request, glossary_id: str) -> Response:
    """Return the entries of a glossary: tab-separated, an entry a line."""
    # a glossary of API version 2 has exactly one dictionary
    (table,) = (await _find(request, glossary_id)).dictionaries.values()
    return Response(tsv_of(table), media_type=TSV)


@router.delete("/glossaries/{glossary_id}", status_code=204, response_class=Response, responses=ERRORS)
async def delete(request: Request, glossary_id: str) -> Response:
    await asyncio.to_thread(glossaries_of(request).drop, owner_of(request), glossary_id, 2)
    return Response(status_code=204)


def glossaries_of(request: Request) -> Glossaries:
    glossaries = request.app.state.glossaries
    assert isinstance(glossaries, Glossaries)
    return glossaries


async def _find(request: Request, id: str) -> Glossary:
    # 2: version of DeepL's API
    return await asyncio.to_thread(glossaries_of(request).find, owner_of(request), id, 2)


def text_parameter(values: Mapping[str, Any], name: str) -> str:
    """Return a parameter that must be a text and not blank. Raises InvalidRequest in DeepL's words."""
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"Parameter '{name}' not specified.")
    return value


def _glossary_values(glossary: Glossary) -> dict[str, Any]:
    """Return the JSON description of a glossary of DeepL's API version 2: it has exactly one dictionary."""
    (((source, target), entries),) = glossary.dictionaries.items()
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "ready": True,
        "source_lang": source,
        "target_lang": target,
        "creation_time": glossary.created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "entry_count": len(entries),
    }
