"""DeepL's glossaries, version 3: /v3/glossaries and /v3/glossary-language-pairs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from engine.api import InvalidRequest, in_slices
from server.callers.access import owner_of, share_of
from server.contracts.deepl.entries import read_entries
from server.contracts.deepl.fields import MAX_NAMED_GLOSSARIES
from server.contracts.deepl.glossaries import Glossary, Pair, merge_entries, pairs_of, tsv_of
from server.contracts.deepl.glossary_routes import GLOSSARY_FIELDS, glossaries_of, text_parameter
from server.contracts.deepl.languages import base_of
from server.http.openapi import JSON, MessageAnswer, errors, in_query, request_of
from server.http.parameters import parameters
from server.state import state_of

router = APIRouter(prefix="/v3", tags=["DeepL"])


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
    """Create a glossary of several pairs of languages. Without a store folder it ends with the server."""
    values = await parameters(request, state_of(request).settings.body_limit)
    dictionaries = await _dictionaries(request, values)
    name = text_parameter(values, "name")
    glossary = Glossary(owner_of(request), name, dictionaries, share_of(request), version=3)
    await asyncio.to_thread(glossaries_of(request).add, glossary)
    return JSONResponse(_glossary_values(glossary), 201)


@router.get(
    "/glossaries",
    response_model=dict[str, list[MultilingualAnswer]],
    responses=errors(429, 503, model=MessageAnswer),
)
async def list_multilingual(request: Request) -> JSONResponse:
    """List the caller's own glossaries of version 3."""
    own = await asyncio.to_thread(glossaries_of(request).of, owner_of(request), 3)
    return JSONResponse({"glossaries": list(map(_glossary_values, own))})


@router.get("/glossaries/{glossary_id}", response_model=MultilingualAnswer, responses=FIND_ERRORS)
async def get_multilingual(request: Request, glossary_id: str) -> JSONResponse:
    return JSONResponse(_glossary_values(await _find(request, glossary_id)))


@router.patch(
    "/glossaries/{glossary_id}",
    response_model=MultilingualAnswer,
    responses=CHANGE_ERRORS,
    openapi_extra=request_of(FIELDS, [], None, (JSON,)),
)
async def patch_multilingual(request: Request, glossary_id: str) -> JSONResponse:
    """Rename a glossary, or add entries to its dictionaries; an entry replaces one of the same phrase."""
    values = await parameters(request, state_of(request).settings.body_limit)
    new_dictionaries = await _dictionaries(request, values) if _items(values) else {}
    name = text_parameter(values, "name") if "name" in values else None

    def change(glossary: Glossary) -> Glossary:
        changed = glossary.with_dictionaries(new_dictionaries, merge=True)
        return changed if name is None else replace(changed, name=name)

    return JSONResponse(_glossary_values(await _change(request, glossary_id, change)))


@router.put(
    "/glossaries/{glossary_id}/dictionaries",
    response_model=DictionaryAnswer,
    responses=CHANGE_ERRORS,
    openapi_extra=request_of(DICTIONARY, list(DICTIONARY), None, (JSON,)),
)
async def put_dictionary(request: Request, glossary_id: str) -> JSONResponse:
    """Replace the dictionary of a pair of languages, or add one."""
    values = await parameters(request, state_of(request).settings.body_limit)
    new_dictionary = await _dictionaries(request, {"dictionaries": [values]})
    await _change(
        request, glossary_id, lambda glossary: glossary.with_dictionaries(new_dictionary, merge=False)
    )
    # the body describes exactly one dictionary
    ((pair, entries),) = new_dictionary.items()
    return JSONResponse(_dictionary_values(pair, entries))


@router.get(
    "/glossaries/{glossary_id}/entries",
    response_model=dict[str, list[DictionaryEntries]],
    responses=FIND_ERRORS | errors(400, model=MessageAnswer),
    openapi_extra={"parameters": PAIR_QUERY},
)
async def dictionary_entries(request: Request, glossary_id: str) -> JSONResponse:
    """Return the entries of a glossary for a pair of languages, tab-separated."""
    source, target = pair = _pair(dict(request.query_params))
    entries = tsv_of((await _find(request, glossary_id)).entries(pair))
    table = {"source_lang": source, "target_lang": target, "entries": entries, "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [table]})


@router.delete("/glossaries/{glossary_id}", status_code=204, response_class=Response, responses=FIND_ERRORS)
async def delete_multilingual(request: Request, glossary_id: str) -> Response:
    await asyncio.to_thread(glossaries_of(request).drop, owner_of(request), glossary_id, 3)
    return Response(status_code=204)


@router.delete(
    "/glossaries/{glossary_id}/dictionaries",
    status_code=204,
    response_class=Response,
    responses=FIND_ERRORS | errors(400, model=MessageAnswer),
    openapi_extra={"parameters": PAIR_QUERY},
)
async def delete_dictionary(request: Request, glossary_id: str) -> Response:
    """Remove the dictionary of a pair of languages."""
    pair = _pair(dict(request.query_params))
    await _change(request, glossary_id, lambda glossary: glossary.without(pair))
    return Response(status_code=204)


async def _find(request: Request, id: str) -> Glossary:
    # 3: version of DeepL's API
    return await asyncio.to_thread(glossaries_of(request).find, owner_of(request), id, 3)


async def _change(request: Request, id: str, change: Callable[[Glossary], Glossary]) -> Glossary:
    return await asyncio.to_thread(glossaries_of(request).change, owner_of(request), id, change)


async def entries_of(request: Request, ids: Sequence[str], source: str | None, target: str) -> dict[str, str]:
    """Return the merged entries of the glossaries that a translation names, of either version.

    request: request of the client.
    ids: ids of glossaries, in the order of the request.
    source: our code of the texts' language; None: the language is to be detected.
    target: our code of the language to translate into.

    Raises InvalidRequest for too many glossaries or other languages, and Refusal for unknown glossaries.
    """
    if len(ids) > MAX_NAMED_GLOSSARIES:
        raise InvalidRequest(f"Value for 'glossary_ids' not supported: at most {MAX_NAMED_GLOSSARIES}.")
    if not ids:
        return {}
    return await asyncio.to_thread(_merged_entries, request, ids, source, target)


def _merged_entries(request: Request, ids: Sequence[str], source: str | None, target: str) -> dict[str, str]:
    owner, store = owner_of(request), glossaries_of(request)
    return merge_entries([store.find(owner, id) for id in ids], source, target)


async def _dictionaries(request: Request, values: dict[str, Any]) -> dict[Pair, dict[str, str]]:
    """Return the dictionaries of a request. Raises InvalidRequest that names the error."""
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
        dictionaries[pair] = await in_slices(read_entries(*texts))
    return dictionaries


def _items(values: dict[str, Any]) -> Any:
    """Return the dictionaries of a request as in JSON; a form names fields `dictionaries[0].entries`."""
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


def _glossary_values(glossary: Glossary) -> dict[str, Any]:
    """Return the JSON description of a glossary of DeepL's API version 3."""
    return {
        "glossary_id": glossary.id,
        "name": glossary.name,
        "dictionaries": [_dictionary_values(*item) for item in glossary.dictionaries.items()],
        "creation_time": glossary.created.isoformat().replace("+00:00", "Z"),
    }


def _dictionary_values(pair: Pair, entries: Mapping[str, str]) -> dict[str, Any]:
    return {"source_lang": pair[0], "target_lang": pair[1], "entry_count": len(entries)}
