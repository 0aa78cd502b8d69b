"""Documents of clients: read, translate and download them, for every contract that accepts files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse

from documents import FORMATS
from documents.options import USUAL_FILE, FileOptions
from documents.spans import Segment
from documents.worker import NO_SEGMENT
from engine.api import ModelRoute, Overloaded, TextOptions, TooLarge
from server.answering.translation import routes_for, run_segments
from server.callers.access import share_of
from server.files.document_processes import DocumentProcesses, OpenDocument
from server.files.room import StoredFile
from server.files.shared_records import within
from server.files.store import Store
from server.files.work import FilesInWork
from server.http.parameters import while_connected
from server.state import AppState, deadline_of, state_of

SWEEP_SECONDS: Final = 60.0  # longest time between two sweeps for expired files
CHUNK_CHARACTERS: Final = 8_000  # characters of a document that are queued at once
SAMPLE_SEGMENTS: Final = 200  # number of segments that are used to detect the language
LEAST_CHARACTERS: Final = 20  # least size that a segment counts as
FILES_OFF: Final = "Files translation are disabled on this server."
FILE_FIELD: Final = {
    "type": "string",
    "contentMediaType": "application/octet-stream",
    "description": f"A file that ends with {', '.join(FORMATS)}.",
}


@dataclass(frozen=True, slots=True)
class FileServices:
    """The store of translated files, the processes that parse and write files, and the files in work."""

    store: Store
    processes: DocumentProcesses
    work: FilesInWork


@asynccontextmanager
async def serving_files(app: FastAPI) -> AsyncIterator[None]:
    """Provide `app.state.files`. A store without a configured folder is removed at the end."""
    settings = app.state.convoy.settings
    folder = within(settings.store_folder, "files")
    most = settings.file_work // max(1, settings.frontends)
    store = Store(settings.file_lifetime, settings.file_store, folder=folder)
    files = app.state.files = FileServices(store, DocumentProcesses(), FilesInWork(most))
    sweeping = asyncio.create_task(sweep_often(store.sweep, settings.file_lifetime))
    yield
    sweeping.cancel()
    await files.processes.close()
    store.close()


async def sweep_often(sweep: Callable[[], None], lifetime: float) -> None:
    """Remove expired entries of a store regularly, until cancelled.

    sweep: function that removes expired entries once; called in a thread.
    lifetime: seconds that an entry is kept.
    """
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, lifetime))
        await asyncio.to_thread(sweep)


def files_of(request: Request) -> FileServices:
    files = request.app.state.files
    assert isinstance(files, FileServices)
    return files


def waiting_files(app: FastAPI) -> int:
    """Return the number of files that wait for a process to read or write them."""
    files = getattr(app.state, "files", None)  # there are none before the start
    return files.processes.waiting if files else 0


def place_of_file(request: Request) -> AbstractContextManager[None]:
    """Return a context that holds room for the file of a request, whose body is not yet read.

    Entering it raises Overloaded when the owner or all owners have too many files in work.
    """
    declared, limit = request.headers.get("content-length", ""), state_of(request).settings.file_limit
    size = min(int(declared), limit) if declared.isdecimal() else limit
    return files_of(request).work.place(share_of(request), size)


def download_response(file: StoredFile) -> FileResponse:
    """Return the response that downloads a stored file."""
    kind = FORMATS.get(PurePath(file.name).suffix.lower())
    media = kind.media if kind else "application/octet-stream"
    return FileResponse(file.path, filename=file.name, media_type=media)


async def open_file(
    request: Request, name: str, data: bytes, options: FileOptions = USUAL_FILE
) -> OpenDocument:
    """Parse a file of a client.

    request: request of the client, whose share of the processes is used.
    name: name of the file; its ending selects the format.
    data: content of the file.
    options: options for reading and writing the file.

    Raises InvalidRequest, with LibreTranslate's messages if they exist, TooLarge, DeadlineExceeded,
    Overloaded when the client's stored files leave no room for a translation, and Cancelled when the client
    disconnects.
    """
    state = state_of(request)
    if len(data) > state.settings.file_limit:
        raise TooLarge(
            f"the file has {len(data)} bytes, more than the limit of {state.settings.file_limit} "
            "(CONVOY_FILE_LIMIT): split it"
        )
    owner, deadline, files = share_of(request), deadline_of(request, state), files_of(request)
    await asyncio.to_thread(files.store.check_room, owner)
    read = files.processes.read
    return await while_connected(request, read(name, data, owner, deadline, options))


async def route_of(
    state: AppState, document: OpenDocument, source: str | None, target: str, deadline: float
) -> ModelRoute | None:
    """Return the model for a document; None when it stays unchanged.

    state: state that routes share.
    document: document from `open_file`.
    source: our code of the document's language; None: the language is to be detected.
    target: our code of the language to translate into.
    deadline: latest time, of time.monotonic().

    Raises what `routes_for` raises.
    """
    sample = "\n".join(segment.text for segment in document.segments[:SAMPLE_SEGMENTS])
    _, (route,) = await routes_for(state, [sample], source, target, deadline)
    return route


async def recall(
    request: Request, document: OpenDocument, memory: bytes, languages: tuple[str, str]
) -> OpenDocument:
    """Return a document with the translations that a client's translation memory has of its segments.

    request: request of the client.
    document: document from `open_file`.
    memory: content of a .tmx file.
    languages: codes of source and target.

    Raises what `open_file` raises.
    """
    size, limit = len(document.data) + len(memory), state_of(request).settings.file_limit
    if size > limit:
        raise TooLarge(
            f"file and memory have {size} bytes, more than the limit of {limit} (CONVOY_FILE_LIMIT)"
        )
    owner, deadline = share_of(request), deadline_of(request, state_of(request))
    asking = files_of(request).processes.recall(document, memory, owner, deadline, languages)
    return await while_connected(request, asking)


def languages_of(route: ModelRoute | None) -> tuple[str, str]:
    """Return the codes of a route's source and target; "": it does not name them."""
    legs = route.legs if route else ()
    return (legs[0].source or "", legs[-1].target or "") if legs else ("", "")


@dataclass(frozen=True, slots=True)
class DocumentTask:
    """A document to be translated.

    document: document from `open_file`.
    route: model; None: the document stays unchanged.
    options: text options.
    owner: name of the visitor whose share of the processes is used.
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

    state: state that routes share.
    processes: processes that write files.
    task: document and its options.
    deadline: latest time of the answer, of time.monotonic().

    The text is queued in parts, so that other requests run in between. Waits while the queue is full.
    Raises the errors of `run_each`.
    """
    with state.metrics.translating_file(PurePath(task.document.name).suffix.lower()):
        return await _translate(state, processes, task, deadline)


async def _translate(
    state: AppState, processes: DocumentProcesses, task: DocumentTask, deadline: float
) -> bytes:
    """Translate a document part by part, and write it."""
    document, route, options = task.document, task.route, task.options
    translations: list[Segment] = []
    known = document.known or [NO_SEGMENT] * len(document.segments)
    asked = [old for old, new in zip(document.segments, known, strict=True) if not new.text]
    for part in _parts(asked):
        while True:
            try:
                segments, _ = await run_segments(state, part, [route] * len(part), options, deadline)
                break
            except Overloaded as error:
                if time.monotonic() + error.retry_after > deadline:
                    raise
                await asyncio.sleep(error.retry_after)
        translations += segments
    answers = iter(translations)
    united = [new if new.text else next(answers) for new in known]
    return await processes.write(document, united, task.owner, deadline, languages_of(route))


def _parts(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yield segments in groups of at most CHUNK_CHARACTERS, or of one longer segment."""
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
