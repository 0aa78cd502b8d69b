"""POST /translate_file and GET /download_file/<name>, as LibreTranslate has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel

from documents import MEDIA, READERS, Document, Swollen, Unreadable, read_document
from engine.api import InvalidRequest, TextOptions, TooLarge
from server.access import charge
from server.errors import failure
from server.house import House, deadline_of, house_of
from server.intake import upload, while_connected
from server.languages import inward
from server.records import within
from server.routes.docs import MULTIPART, errors, request_of
from server.schemas import SHOWN
from server.store import Kept, Store, translated_name
from server.translation import detected_models, model_for, translate_document

FRAME: Final = 65_536  # bytes of a form beside its file
SWEEP: Final = 60.0  # seconds, at most, that an expired file stays
OFF: Final = "Files translation are disabled on this server."


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The store lives as long as the server, if it is its own."""
    settings = app.state.house.settings
    folder = within(settings.store_folder, "files")
    store = app.state.files = Store(settings.file_lifetime, settings.file_store, folder=folder)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(min(SWEEP, settings.file_lifetime))
            store.sweep()

    sweeping = asyncio.create_task(sweep())
    yield
    sweeping.cancel()
    store.close()


router = APIRouter(tags=["LibreTranslate"], lifespan=lifespan)


class FileAnswer(BaseModel):
    translatedFileUrl: str


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
        },
        ["file", "source", "target"],
        {"file": "Guten Morgen!", "source": "de", "target": "en"},
        (MULTIPART,),
    ),
)
async def translate_file(request: Request) -> Response:
    """Translate a file; its structure and formatting stay. The answer says where to download it."""
    house = house_of(request)
    if not house.settings.files:
        return failure(OFF, 403)
    deadline = deadline_of(request, house)
    values, name, data = await upload(request, house.settings.file_limit + FRAME)
    source, target = _checked(house, values, name, data)
    document = await open_file(house, name, data or b"")
    await charge(request, (segment.text for segment in document.segments))
    model = await model_of(house, document, source, target)
    work = translate_document(house, document, model, TextOptions(protect=True), deadline)
    translated = await while_connected(request, work)
    public = store_of(request).put(translated_name(name, target), translated)
    return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", name=public))})


@router.head("/download_file/{name}", include_in_schema=False)
@router.get("/download_file/{name}", response_class=FileResponse, responses=errors(404))
async def download_file(request: Request, name: str) -> Response:
    """A translated file, for as long as it is kept."""
    kept = store_of(request).get(name)
    if kept is None:
        return failure("no such file: it has expired, or never was", 404)
    return sent(kept)


def sent(kept: Kept) -> FileResponse:
    """A kept file, as one to be saved."""
    media = MEDIA.get(PurePath(kept.name).suffix.lower(), "application/octet-stream")
    return FileResponse(kept.path, filename=kept.name, media_type=media)


def store_of(request: Request) -> Store:
    store = request.app.state.files
    assert isinstance(store, Store)
    return store


async def open_file(house: House, name: str, data: bytes) -> Document:
    """Raises InvalidRequest, in LibreTranslate's words where it has some, and TooLarge."""
    if len(data) > house.settings.file_limit:
        raise TooLarge(f"the file is longer than this server's limit of {house.settings.file_limit} bytes")
    try:
        return await asyncio.to_thread(read_document, name, data)
    except Swollen as error:
        raise TooLarge(str(error)) from None
    except Unreadable as error:
        raise InvalidRequest(f"Invalid request: {error}") from None


async def model_of(house: House, document: Document, source: str | None, target: str) -> str | None:
    """The model for a document; None when nothing is to be translated. source: None asks for detection."""
    if source is not None:
        return model_for(house, source, target)
    sample = "\n".join(segment.text for segment in document.segments[:200])
    return (await detected_models(house, [sample], target))[1][0]


def _checked(house: House, values: dict[str, Any], name: str, data: bytes | None) -> tuple[str | None, str]:
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
    known = {language.code for language in house.service.languages()}
    source, target = inward(values["source"]), inward(values["target"])
    for field, code in (("source", source), ("target", target)):
        if code not in known and not (field == "source" and code == "auto"):
            raise InvalidRequest(f"{values[field][:SHOWN]} is not supported")
    return None if source == "auto" else source, target
