"""DeepL's glossaries, version 3: /v3/glossaries and /v3/glossary-language-pairs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from engine.api import InvalidRequest, in_slices, one_slice
from server.callers.access import owner_of, share_of
from server.contracts.deepl.glossaries import Glossary, merge_entries, pairs_of, read_entries
from server.contracts.deepl.glossary_routes import GLOSSARY_FIELDS, glossaries_of, text_parameter
from server.contracts.deepl.languages import base_of
from server.contracts.deepl.multilingual import MultilingualGlossaries, MultilingualGlossary, Pair, Whole
from server.files.shared_records import Records, within
from server.http.openapi import JSON, MessageAnswer, errors, in_query, request_of
from server.http.parameters import parameters
from server.state import state_of

MAX_NAMED_GLOSSARIES: Final = 5  # that one request may name


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    folder = within(app.state.convoy.settings.store_folder, "multilingual-glossaries")
    app.state.multilingual = MultilingualGlossaries(Records(folder), app.state.glossaries)
    yield


router = APIRouter(prefix="/v3", tags=["DeepL"], lifespan=lifespan)


class DictionaryAnswer(BaseModel):
    source_lang: str
    target_lang: str
    entry_count: int


class DictionaryEntries(BaseModel):
    source_lang: str
    target_lang: str
    entries: str
    entries_format: str


class MultilingualAnswer(BaseModel):
    glossary_id: str
    name: str
    dictionaries: list[DictionaryAnswer]
    creation_time: str


DICTIONARY: Final = {
    "source_lang": {"type": "string", "minLength": 1},
    "target_lang": {"type": "string", "minLength": 1},
    "entries": {
        "type": "string",
        "minLength": 1,
        "description": "Source and target phrases, an entry a line.",
    },
    "entries_format": {"type": "string", "enum": ["tsv", "csv"]},
}
FIELDS: Final = {
    "name": GLOSSARY_FIELDS["name"],
    "dictionaries": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "required": list(DICTIONARY), "properties": DICTIONARY},
        "description": "One for each pair of languages.",
    },
}
FORM_FIELD: Final = re.compile(r"dictionaries\[(\d{1,3})\]\.(\w{1,40})")
PAIR_QUERY: Final = in_query(
    dict.fromkeys(("source_lang", "target_lang"), {"type": "string", "minLength": 1, "pattern": r"\S"}),
    ["source_lang", "target_lang"],
)
CHANGE_ERRORS: Final = errors(400, 404, 413, 429, 503, model=MessageAnswer)
FIND_ERRORS: Final = errors(404, 429, 503, model=MessageAnswer)


@router.post(
    "/glossaries",
    status_code=201,
    response_model=MultilingualAnswer,
    responses=CHANGE_ERRORS,
    openapi_extra=request_of(FIELDS, list(FIELDS), None, (JSON,)),
)
async def create_multilingual(request: Request) -> JSONResponse:
    """Keep a glossary of several pairs of languages until it is deleted, or the server stops."""
    values = await parameters(request, state_of(request).settings.body_limit)
    dictionaries = await _dictionaries(request, values)
    name = text_parameter(values, "name")
    fresh = MultilingualGlossary(owner_of(request), name, {}, share_of(request))
    made = await asyncio.to_thread(multilingual_of(request).add, fresh, dictionaries)
    return JSONResponse(_values(made), 201)


@router.get(
    "/glossaries",
    response_model=dict[str, list[MultilingualAnswer]],
    responses=errors(429, 503, model=MessageAnswer),
)
async def list_multilingual(request: Request) -> JSONResponse:
    """List the caller's own glossaries of version 3."""
    own = await asyncio.to_thread(multilingual_of(request).of, owner_of(request))
    return JSONResponse({"glossaries": list(map(_values, own))})


@router.get("/glossaries/{glossary_id}", response_model=MultilingualAnswer, responses=FIND_ERRORS)
async def get_multilingual(request: Request, glossary_id: str) -> JSONResponse:
    store = multilingual_of(request)
    return JSONResponse(_values(await asyncio.to_thread(store.whole, owner_of(request), glossary_id)))


@router.patch(
    "/glossaries/{glossary_id}",
    response_model=MultilingualAnswer,
    responses=CHANGE_ERRORS,
    openapi_extra=request_of(FIELDS, [], None, (JSON,)),
)
async def patch_multilingual(request: Request, glossary_id: str) -> JSONResponse:
    """Rename a glossary, or add entries to its dictionaries: those of the same source are replaced."""
    values = await parameters(request, state_of(request).settings.body_limit)
    fresh = await _dictionaries(request, values) if _items(values) else {}
    name = text_parameter(values, "name") if "name" in values else None
    change = partial(multilingual_of(request).change, owner_of(request), glossary_id, fresh, name)
    return JSONResponse(_values(await asyncio.to_thread(change, merge=True)))


@router.put(
    "/glossaries/{glossary_id}/dictionaries",
    response_model=DictionaryAnswer,
    responses=CHANGE_ERRORS,
    openapi_extra=request_of(DICTIONARY, list(DICTIONARY), None, (JSON,)),
)
async def put_dictionary(request: Request, glossary_id: str) -> JSONResponse:
    """Put a dictionary in the place of the one that a glossary has for the same languages."""
    values = await parameters(request, state_of(request).settings.body_limit)
    fresh = await _dictionaries(request, {"dictionaries": [values]})
    change = partial(multilingual_of(request).change, owner_of(request), glossary_id, fresh)
    _, parts = await asyncio.to_thread(change, merge=False)
    return JSONResponse(next(_dictionary_values(p) for p in parts if (p.source, p.target) in fresh))


@router.get(
    "/glossaries/{glossary_id}/entries",
    response_model=dict[str, list[DictionaryEntries]],
    responses=FIND_ERRORS | errors(400, model=MessageAnswer),
    openapi_extra={"parameters": PAIR_QUERY},
)
async def dictionary_entries(request: Request, glossary_id: str) -> JSONResponse:
    """Return the entries of a glossary for a pair of languages, tab-separated."""
    store, languages = multilingual_of(request), _pair(dict(request.query_params))
    part = await asyncio.to_thread(store.part, owner_of(request), glossary_id, languages)
    pair = {"source_lang": part.source, "target_lang": part.target}
    return JSONResponse({"dictionaries": [pair | {"entries": part.tsv(), "entries_format": "tsv"}]})


@router.delete("/glossaries/{glossary_id}", status_code=204, response_class=Response, responses=FIND_ERRORS)
async def delete_multilingual(request: Request, glossary_id: str) -> Response:
    await asyncio.to_thread(multilingual_of(request).drop, owner_of(request), glossary_id)
    return Response(status_code=204)


@router.delete(
    "/glossaries/{glossary_id}/dictionaries",
    status_code=204,
    response_class=Response,
    responses=FIND_ERRORS | errors(400, model=MessageAnswer),
    openapi_extra={"parameters": PAIR_QUERY},
)
async def delete_dictionary(request: Request, glossary_id: str) -> Response:
    """Drop the dictionary of a pair of languages."""
    store, languages = multilingual_of(request), _pair(dict(request.query_params))
    await asyncio.to_thread(store.drop_part, owner_of(request), glossary_id, languages)
    return Response(status_code=204)


def multilingual_of(request: Request) -> MultilingualGlossaries:
    store = request.app.state.multilingual
    assert isinstance(store, MultilingualGlossaries)
    return store


async def entries_of(request: Request, ids: Sequence[str], source: str | None, target: str) -> dict[str, str]:
    """Merge the entries of glossaries, of either version, that a translation names.

    request: the client's.
    ids: of glossaries, in the order of the request.
    source: our code of the texts' language; None where it is to be detected.
    target: our code of the language to translate into.

    Raises InvalidRequest on too many and on glossaries for other languages, Refusal on unknown ones.
    """
    if len(ids) > MAX_NAMED_GLOSSARIES:
        raise InvalidRequest(f"Value for 'glossary_ids' not supported: at most {MAX_NAMED_GLOSSARIES}.")
    if not ids:
        return {}
    return await asyncio.to_thread(_merged_entries, request, ids, source, target)


def _merged_entries(request: Request, ids: Sequence[str], source: str | None, target: str) -> dict[str, str]:
    store, owner, named = multilingual_of(request), owner_of(request), list[Glossary]()
    for id in ids:
        if store.get(owner, id) is None:
            named.append(glossaries_of(request).find(owner, id))
        elif source is None:
            raise InvalidRequest("Parameter 'source_lang' must be specified when a glossary is used.")
        else:
            named.append(store.part(owner, id, (base_of(source), base_of(target))))
    return merge_entries(named, source, target)


async def _dictionaries(request: Request, values: dict[str, Any]) -> dict[Pair, dict[str, str]]:
    """Entries by pair of languages. Raises InvalidRequest that names what is at fault."""
    items = _items(values)
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise InvalidRequest("Parameter 'dictionaries' not specified.")
    known, dictionaries = pairs_of(state_of(request).service), dict[Pair, dict[str, str]]()
    for item in items:
        pair = _pair(item)
        if pair not in known:
            raise InvalidRequest("Unsupported glossary source and target language pair.")
        if pair in dictionaries:
            raise InvalidRequest(f"Two dictionaries are for {' to '.join(pair)}.")
        texts = text_parameter(item, "entries"), text_parameter(item, "entries_format")
        dictionaries[pair] = await in_slices(one_slice(read_entries, *texts))
    return dictionaries


def _items(values: dict[str, Any]) -> Any:
    """The dictionaries as JSON has them; forms have fields of names such as `dictionaries[0].entries`."""
    if "dictionaries" in values:
        return values["dictionaries"]
    items = dict[int, dict[str, Any]]()
    for name, value in values.items():
        if match := FORM_FIELD.fullmatch(name):
            items.setdefault(int(match[1]), {})[match[2]] = value
    return list(items.values())


def _pair(values: dict[str, Any]) -> Pair:
    source, target = text_parameter(values, "source_lang"), text_parameter(values, "target_lang")
    return base_of(source.lower()), base_of(target.lower())


def _values(glossary: Whole) -> dict[str, Any]:
    index, parts = glossary
    return {
        "glossary_id": index.id,
        "name": index.name,
        "dictionaries": [_dictionary_values(part) for part in parts],
        "creation_time": index.created.replace("+00:00", "Z"),
    }


def _dictionary_values(part: Glossary) -> dict[str, Any]:
    return {"source_lang": part.source, "target_lang": part.target, "entry_count": len(part.entries)}
