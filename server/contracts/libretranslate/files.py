"""POST /translate_file and GET /download_file/<name>, as LibreTranslate has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, Field

from documents import MEDIA, READERS
from engine.api import InvalidRequest, TextOptions, TooLarge
from server.access import charge, share_of
from server.document_processes import OpenDocument
from server.errors import Refusal
from server.languages import resolve_code
from server.openapi import MULTIPART, errors, request_of
from server.parameters import FORM_OVERHEAD, upload, while_connected
from server.schemas import SHOWN, validate
from server.shared_records import within
from server.state import AppState, deadline_of, state_of
from server.store import Store, StoredFile, translated_name
from server.translation import DocumentTask, detected_models, model_for, translate_document

SWEEP: Final = 60.0  # seconds, at most, that an expired file stays
OFF: Final = "Files translation are disabled on this server."


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store, which lives as long as the server, if it is its own."""
    settings = app.state.convoy.settings
    folder = within(settings.store_folder, "files")
    store = app.state.files = Store(settings.file_lifetime, settings.file_store, folder=folder)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(min(SWEEP, settings.file_lifetime))
            await asyncio.to_thread(store.sweep)

    sweeping = asyncio.create_task(sweep())
    yield
    sweeping.cancel()
    store.close()


router = APIRouter(tags=["LibreTranslate"], lifespan=lifespan)


class FileAnswer(BaseModel):
    translatedFileUrl: str


class FileWishes(BaseModel):
    """What a file is asked with besides, as /translate has it."""

    attributes: bool = Field(
        False, description="HTML: translate `alt`, `title`, `placeholder` and descriptions too."
    )
    local_numbers: bool = Field(False, description="Write amounts as the target language does.")


WISHES: Final = FileWishes.model_json_schema()["properties"]
FILE: Final = {
    "type": "string",
    "contentMediaType": "application/octet-stream",
    "description": f"A file that ends with {', '.join(READERS)}.",
}


@router.post(
    "/translate_file",
    response_model=FileAnswer,
    responses=errors(400, 403, 404, 413, 429, 503, 504),
    openapi_extra=request_of(
        {
            "file": FILE,
            "source": {"type": "string", "description": 'Language code, or "auto".'},
            "target": {"type": "string"},
            **{name: {"type": "boolean", **told} for name, told in WISHES.items()},
        },
        ["file", "source", "target"],
        {"file": "Guten Morgen!", "source": "de", "target": "en"},
        (MULTIPART,),
    ),
)
async def translate_file(request: Request) -> Response:
    """Translate a file; its structure and formatting stay. The answer says where to download it."""
    state = state_of(request)
    if not state.settings.files:
        raise Refusal("disabled", OFF)
    deadline = deadline_of(request, state)
    values, name, data = await upload(request, state.settings.file_limit + FORM_OVERHEAD)
    source, target = _check_form(state, values, name, data)
    wishes = validate(FileWishes, values)
    document = await open_file(request, name, data or b"", attributes=wishes.attributes)
    await charge(request, (segment.text for segment in document.segments))
    model = await model_of(state, document, source, target, deadline)
    options = TextOptions(protect=True, follow_form=True, local_numbers=wishes.local_numbers)
    name = translated_name(name, target)
    task = DocumentTask(document, model, options, share_of(request), name)
    translated = await while_connected(request, translate_document(state, task, deadline))
    public = await asyncio.to_thread(store_of(request).put, name, translated, share_of(request))
    return JSONResponse({"translatedFileUrl": _url(request, public)})


@router.get("/download_file/{name}", response_class=FileResponse, responses=errors(404))
async def download_file(request: Request, name: str) -> Response:
    """Return a translated file, for as long as it is kept."""
    file = store_of(request).get(name)
    if file is None:
        raise Refusal("not_found", "no such file: it has expired, or never was")
    return download_response(file)


def _url(request: Request, public: str) -> str:
    """Where a file is downloaded: by the server's own address, else by the one that the client asked."""
    settings = state_of(request).settings
    if settings.public_url:
        return f"{settings.public_url.rstrip('/')}/download_file/{public}"
    return str(request.url_for("download_file", name=public))


def download_response(file: StoredFile) -> FileResponse:
    """Answer with a kept file, as one to be saved."""
    media = MEDIA.get(PurePath(file.name).suffix.lower(), "application/octet-stream")
    return FileResponse(file.path, filename=file.name, media_type=media)


def store_of(request: Request) -> Store:
    store = request.app.state.files
    assert isinstance(store, Store)
    return store


async def open_file(request: Request, name: str, data: bytes, *, attributes: bool = False) -> OpenDocument:
    """Read a file that a client sent.

    Raises InvalidRequest, in LibreTranslate's words where it has some, TooLarge and DeadlineExceeded.
    """
    state = state_of(request)
    if len(data) > state.settings.file_limit:
        raise TooLarge(f"the file is longer than this server's limit of {state.settings.file_limit} bytes")
    owner, deadline = share_of(request), deadline_of(request, state)
    return await state.documents.read(name, data, owner, deadline, attributes=attributes)


async def model_of(
    state: AppState, document: OpenDocument, source: str | None, target: str, deadline: float
) -> str | None:
    """Pick the model for a document; None when nothing is to be translated.

    source: None asks for detection.
    """
    if source is not None:
        return model_for(state, source, target)
    sample = "\n".join(segment.text for segment in document.segments[:200])
    return (await detected_models(state, [sample], target, deadline))[1][0]


def _check_form(
    state: AppState, values: dict[str, Any], name: str, data: bytes | None
) -> tuple[str | None, str]:
    """Source (None: auto) and target, checked in LibreTranslate's order and words."""
    if data is None:
        raise InvalidRequest("Invalid request: missing file parameter")
    for field in ("source", "target"):
        if not values.get(field):
            raise InvalidRequest(f"Invalid request: missing {field} parameter")
    if not name:
        raise InvalidRequest("Invalid request: empty file")
    if PurePath(name).suffix.lower() not in READERS:
        raise InvalidRequest("Invalid request: file format not supported")
    codes = {language.code for language in state.service.languages()}
    source, target = resolve_code(values["source"], codes), resolve_code(values["target"], codes)
    for field, code in (("source", source), ("target", target)):
        if code not in codes and not (field == "source" and code == "auto"):
            raise InvalidRequest(f"{values[field][:SHOWN]} is not supported")
    return None if source == "auto" else source, target
