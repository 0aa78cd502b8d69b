"""Documents that clients send: opened, translated, given out; for every contract that takes files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse

from documents import FORMATS
from documents.spans import Segment
from engine.api import ModelRoute, Overloaded, TextOptions, TooLarge
from server.answering.translation import routes_for, run_segments
from server.callers.access import share_of
from server.files.document_processes import DocumentProcesses, OpenDocument
from server.files.room import StoredFile
from server.files.shared_records import within
from server.files.store import Store
from server.state import AppState, deadline_of, state_of

SWEEP_SECONDS: Final = 60.0  # that an expired file stays, at most
CHUNK_CHARACTERS: Final = 8_000  # of a document that wait in the queue at once
SAMPLE_SEGMENTS: Final = 200  # by which the language is detected
LEAST_CHARACTERS: Final = 20  # that a segment counts as, however short it is
FILES_OFF: Final = "Files translation are disabled on this server."
FILE_FIELD: Final = {
    "type": "string",
    "contentMediaType": "application/octet-stream",
    "description": f"A file that ends with {', '.join(FORMATS)}.",
}


@dataclass(frozen=True, slots=True)
class FileServices:
    """Where translated files are kept, and the processes that read and write files."""

    store: Store
    processes: DocumentProcesses


@asynccontextmanager
async def serving_files(app: FastAPI) -> AsyncIterator[None]:
    """Have `app.state.files`; a store without a folder of the operator's ends with the server."""
    settings = app.state.convoy.settings
    folder = within(settings.store_folder, "files")
    store = Store(settings.file_lifetime, settings.file_store, folder=folder)
    files = app.state.files = FileServices(store, DocumentProcesses())
    sweeping = asyncio.create_task(sweep_often(store.sweep, settings.file_lifetime))
    yield
    sweeping.cancel()
    await files.processes.close()
    store.close()


async def sweep_often(sweep: Callable[[], None], lifetime: float) -> None:
    """Remove what has expired, again and again, until this is cancelled.

    sweep: does it once, in a thread.
    lifetime: seconds that something is kept.
    """
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, lifetime))
        await asyncio.to_thread(sweep)


def files_of(request: Request) -> FileServices:
    files = request.app.state.files
    assert isinstance(files, FileServices)
    return files


def download_response(file: StoredFile) -> FileResponse:
    """Answer with a kept file, as one to be saved."""
    kind = FORMATS.get(PurePath(file.name).suffix.lower())
    media = kind.media if kind else "application/octet-stream"
    return FileResponse(file.path, filename=file.name, media_type=media)


async def open_file(request: Request, name: str, data: bytes, *, attributes: bool = False) -> OpenDocument:
    """Read a file that a client sent.

    request: the client's; its owner has a share of the processes for files.
    name: the file's name, whose ending says what it is.
    data: the file's bytes.
    attributes: of a page, whether descriptions such as `alt` are prose too.

    Raises InvalidRequest, in LibreTranslate's words where it has some, TooLarge and DeadlineExceeded.
    """
    state = state_of(request)
    if len(data) > state.settings.file_limit:
        raise TooLarge(f"the file is longer than this server's limit of {state.settings.file_limit} bytes")
    owner, deadline = share_of(request), deadline_of(request, state)
    return await files_of(request).processes.read(name, data, owner, deadline, attributes=attributes)


async def route_of(
    state: AppState, document: OpenDocument, source: str | None, target: str, deadline: float
) -> ModelRoute | None:
    """Pick the model for a document; None when nothing is to be translated.

    state: what routes share.
    document: as `open_file` has read it.
    source: our code of its language; None asks for detection.
    target: our code of the language to translate into.
    deadline: a time.monotonic().

    Raises what `routes_for` raises.
    """
    sample = "\n".join(segment.text for segment in document.segments[:SAMPLE_SEGMENTS])
    _, (route,) = await routes_for(state, [sample], source, target, deadline)
    return route


@dataclass(frozen=True, slots=True)
class DocumentTask:
    """A document to be translated.

    document: as `open_file` has read it.
    route: the model; None leaves the document as it is.
    options: how to answer.
    owner: name of the visitor whose share of what is scarce it takes.
    name: name of the translated file.
    """

    document: OpenDocument
    route: ModelRoute | None
    options: TextOptions
    owner: str
    name: str


async def translate_document(
    state: AppState, processes: DocumentProcesses, task: DocumentTask, deadline: float
) -> bytes:
    """Translate a document, and return the translated file.

    state: what routes share.
    processes: those that write files.
    task: the document, and what to do with it.
    deadline: a time.monotonic() by which the file must be there.

    Its text goes through the queue in parts, so that others have their turn; where the queue is full it
    waits. Raises the errors of `run_each`.
    """
    document, route, options = task.document, task.route, task.options
    translations: list[Segment] = []
    for part in _parts(document.segments):
        while True:
            try:
                segments, _ = await run_segments(state, part, [route] * len(part), options, deadline)
                break
            except Overloaded as error:
                if time.monotonic() + error.retry_after > deadline:
                    raise
                await asyncio.sleep(error.retry_after)
        translations += segments
    return await processes.write(document, translations, task.owner, deadline)


def _parts(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    part: list[Segment] = []
    size = 0
    for segment in segments:
        length = max(LEAST_CHARACTERS, len(segment.text))
        if part and size + length > CHUNK_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(segment)
        size += length
    if part:
        yield part
