"""POST /translate_file and GET /download_file/<name>, like LibreTranslate's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, Field, create_model

from documents import UNKNOWN_FORMAT, FileOptions, format_of
from documents.bilingual import ENDINGS
from documents.options import Bilingual
from engine.api import InvalidRequest
from server.callers.access import charge, share_of
from server.errors import Refusal
from server.files.documents import (
    FILE_FIELD,
    FILES_OFF,
    DocumentTask,
    download_response,
    files_of,
    languages_of,
    open_file,
    place_of_file,
    recall,
    route_of,
    translate_document,
)
from server.files.store import translated_name
from server.http.forms import UploadedFile
from server.http.openapi import MULTIPART, errors, request_of
from server.http.parameters import FORM_OVERHEAD, upload, while_connected
from server.http.schemas import (
    SHOWN_CHARACTERS,
    check_phrases,
    options_of,
    phrases_of,
    text_fields,
    validate,
)
from server.http.unread import unread_of, with_warnings
from server.languages import resolve_code
from server.state import AppState, deadline_of, state_of

router = APIRouter(tags=["LibreTranslate"])

MAX_COLUMNS_CHARACTERS: Final = 4_096


class FileAnswer(BaseModel):
    translatedFileUrl: str
    warnings: dict[str, str] = {}


class FileFields(BaseModel):
    bilingual: Bilingual = Field(
        "",
        description="Writes the source too: above or below each translation, in a table of HTML (side) or in "
        "a translation memory (tmx).",
    )
    columns: str = Field(
        "",
        max_length=MAX_COLUMNS_CHARACTERS,
        description=".csv, .tsv: names or numbers of the columns to translate, separated by commas; other "
        "columns and the first line stay.",
    )
    attributes: bool = Field(
        False, description="HTML: translate `alt`, `title`, `placeholder` and descriptions too."
    )


OPTIONS: Final = ("ignore", "glossary", "local_numbers", "newlines")
FileRequest: Final = create_model(
    "FileRequest", __base__=FileFields, **{name: text_fields("translate")[name] for name in OPTIONS}
)
FILES: Final = ("file", "memory")
READ: Final = frozenset((*FileRequest.model_fields, *FILES, "source", "target"))
MEMORY_FIELD: Final = FILE_FIELD | {
    "description": "A translation memory (.tmx), whose translations of whole paragraphs or cells are used."
}
FORM_TYPES: Final[dict[str, Any]] = {
    "ignore": {"type": "string"},
    "glossary": {"type": "string", "contentMediaType": "application/json"},
}
FORM_FIELDS: Final = {
    name: FORM_TYPES[name] | {"description": schema["description"]} if name in FORM_TYPES else schema
    for name, schema in FileRequest.model_json_schema()["properties"].items()
}


@router.post(
    "/translate_file",
    response_model=FileAnswer,
    responses=errors(400, 403, 404, 413, 429, 503, 504),
    openapi_extra=request_of(
        {
            "file": FILE_FIELD,
            "memory": MEMORY_FIELD,
            "source": {"type": "string", "description": 'Language code, or "auto".'},
            "target": {"type": "string"},
            **FORM_FIELDS,
        },
        ["file", "source", "target"],
        {"file": "Guten Morgen!", "source": "de", "target": "en"},
        (MULTIPART,),
    ),
)
async def translate_file(request: Request) -> Response:
    """Translate a file, keeping its structure and formatting; return the address to download it."""
    state = state_of(request)
    if not state.settings.files:
        raise Refusal("disabled", FILES_OFF)
    with place_of_file(request):
        return await _translate_file(request, state)


async def _translate_file(request: Request, state: AppState) -> Response:
    """Read and translate the file of a request that has a place."""
    deadline = deadline_of(request, state)
    values, sent = await upload(request, state.settings.file_limit + FORM_OVERHEAD, len(FILES))
    source, target = _check_form(state, values, sent)
    name, data = sent["file"].name, sent["file"].content
    check_phrases(phrases_of(values), state.settings.phrase_limit)
    fields = validate(FileRequest, values)
    document = await open_file(
        request, name, data, FileOptions(fields.attributes, fields.columns, fields.bilingual)
    )
    await charge(request, (segment.text for segment in document.segments))
    route = await route_of(state, document, source, target, deadline)
    if "memory" in sent and route:
        document = await recall(request, document, sent["memory"].content, languages_of(route))
    name = translated_name(name, target, ENDINGS.get(fields.bilingual))
    files = files_of(request)
    task = DocumentTask(document, route, options_of(fields, "translate"), share_of(request), name)
    translated = await while_connected(request, translate_document(state, files.processes, task, deadline))
    public = await asyncio.to_thread(files.store.put, name, translated, share_of(request))
    return JSONResponse(
        with_warnings(
            {"translatedFileUrl": _url(request, public)},
            unread_of(values, READ, state.names.query_key_fields)
            | ({"file": "; ".join(document.notices)} if document.notices else {}),
        )
    )


@router.get("/download_file/{name}", response_class=FileResponse, responses=errors(404))
async def download_file(request: Request, name: str) -> Response:
    """Return a translated file, until it expires."""
    file = files_of(request).store.get(name)
    if file is None:
        raise Refusal("not_found", "no such file: it has expired, or never was")
    return download_response(file)


def _url(request: Request, public: str) -> str:
    """Return the address of a file: the configured address of the server, or the one that the client used."""
    settings = state_of(request).settings
    if settings.public_url:
        return f"{settings.public_url.rstrip('/')}/download_file/{public}"
    return str(request.url_for("download_file", name=public))


def _check_form(
    state: AppState, values: dict[str, Any], files: Mapping[str, UploadedFile]
) -> tuple[str | None, str]:
    """Return our codes of source (None: auto) and target, checked in LibreTranslate's order and words."""
    if "file" not in files:
        raise InvalidRequest("Invalid request: missing file parameter")
    for field in ("source", "target"):
        if not values.get(field):
            raise InvalidRequest(f"Invalid request: missing {field} parameter")
    if not files["file"].name:
        raise InvalidRequest("Invalid request: empty file")
    if format_of(files["file"].name) is None:
        raise InvalidRequest(f"Invalid request: {UNKNOWN_FORMAT}")
    memory = files.get("memory")
    if "memory" in values or (memory and PurePath(memory.name).suffix.lower() != ".tmx"):
        raise InvalidRequest("Invalid request: memory must be a file that ends with .tmx")
    codes = {language.code for language in state.service.languages()}
    source, target = resolve_code(values["source"], codes), resolve_code(values["target"], codes)
    for field, code in (("source", source), ("target", target)):
        if code not in codes and not (field == "source" and code == "auto"):
            raise InvalidRequest(f"{values[field][:SHOWN_CHARACTERS]} is not supported")
    return None if source == "auto" else source, target
