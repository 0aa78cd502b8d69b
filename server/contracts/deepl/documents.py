"""DeepL's documents: POST /v2/document, status and result. Documents are translated in the background."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel

from documents import written_ending
from engine.api import USUAL_OPTIONS, ConvoyError, InvalidRequest, Overloaded, in_slices
from server.callers.access import charge, share_of
from server.callers.keys import digest_of
from server.contracts.deepl.entries import present_entries
from server.contracts.deepl.glossary_routes import text_parameter
from server.contracts.deepl.languages import codes_of
from server.contracts.deepl.multilingual_routes import entries_of
from server.errors import INTERNAL, STATUSES, Refusal
from server.files.documents import (
    FILE_FIELD,
    FILES_OFF,
    DocumentTask,
    FileServices,
    download_response,
    files_of,
    open_file,
    place_of_file,
    route_of,
    sweep_often,
    translate_document,
)
from server.files.shared_records import Records, within
from server.files.store import translated_name
from server.http.openapi import MULTIPART, MessageAnswer, errors, request_of
from server.http.parameters import FORM_OVERHEAD, parameters, upload, while_connected
from server.http.schemas import check_phrases
from server.process.clock import steady
from server.state import AppState, deadline_of, state_of

logger = logging.getLogger(__name__)

OWNER_SHARES: Final = 4  # one owner has at most 1 / OWNER_SHARES of the documents in work
MAX_DOCUMENTS: Final = 32  # documents translated at once
BEAT_SECONDS: Final = 5.0  # seconds between two updates of a running job's record
NOT_FOUND: Final = "Document not found."
GONE: Final = "the process that translated it has ended: send the document again"
JobState = Literal["queued", "translating", "done", "error"]


@dataclass(frozen=True, slots=True)
class DocumentJob:
    """The record of a document.

    id: id of the document.
    key: SHA-256 of the key that the owner must send.
    characters: number of billed characters.
    until: time after which the record is removed, in seconds of the clock `steady`.
    seen: time of the last update by the translating process, in seconds of the clock `steady`.
    state: state of the translation.
    public: name of the result in the store.
    message: error message; "": none.
    code: code of the error.
    """

    id: str
    key: str
    characters: int
    until: float
    seen: float
    state: JobState = "queued"
    public: str = ""
    message: str = ""
    code: str = InvalidRequest.code


class DocumentJobs:
    """Documents of this process, and of other processes that share its records."""

    def __init__(self, records: Records, lifetime: float, most: int = MAX_DOCUMENTS) -> None:
        """Take the records of documents.

        records: records of documents, which processes may share.
        lifetime: seconds that a record is kept.
        most: greatest number of documents that this process translates at once.
        """
        self._records, self._lifetime, self._most = records, lifetime, most
        self.clock = steady(records.folder)
        self.tasks: set[asyncio.Task[None]] = set()
        self._owners: Counter[str] = Counter()

    def start(self, translating: Coroutine[Any, Any, None], owner: str, leave: Callable[[], None]) -> None:
        """Run the coroutine that translates a document in the background.

        translating: coroutine, which stores the state of its job.
        owner: name of the visitor who sent the document.
        leave: function that frees the place of the document.
        """
        task = asyncio.create_task(translating)
        self.tasks.add(task)
        self._owners[owner] += 1

        def done(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            leave()
            self._owners[owner] -= 1
            self._owners += Counter()  # removes zero counts

        task.add_done_callback(done)

    def new(self, characters: int, owner: str = "") -> tuple[DocumentJob, str]:
        """Return a new job and its key.

        characters: number of billed characters.
        owner: name of the visitor who sent the document.

        Raises Overloaded when too many documents are being translated.
        """
        owner_jobs = self._owners[owner]
        if len(self.tasks) >= self._most or owner_jobs >= max(1, self._most // OWNER_SHARES):
            count = owner_jobs if len(self.tasks) < self._most else self._most
            raise Overloaded(f"{count} documents are being translated: try again later", 5.0)
        key, now = secrets.token_hex(32).upper(), self.clock()
        digest = digest_of(key)
        job = DocumentJob(secrets.token_hex(16).upper(), digest, characters, now + self._lifetime, now)
        self.save(job)
        return job, key

    def save(self, job: DocumentJob) -> None:
        """Store the state of a job."""
        self._records.put(job.id, asdict(replace(job, seen=self.clock())))

    def find(self, id: str, key: Any) -> DocumentJob | None:
        """Return a job by its id and key; None when there is none. The job of a dead process has an error."""
        record, now = self._records.get(id), self.clock()
        if record is None or not isinstance(key, str):
            return None
        job = DocumentJob(**record)
        if job.until <= now or not hmac.compare_digest(digest_of(key), job.key):
            return None
        if job.state in ("queued", "translating") and job.seen < now - 3 * BEAT_SECONDS:
            return replace(job, state="error", message=GONE)
        return job

    def sweep(self) -> None:
        """Remove expired records. May block, so call it in a thread."""
        now = self.clock()
        for id in self._records.ids():
            record = self._records.get(id)
            if record and record["until"] <= now:
                self._records.drop(id)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the jobs of documents; at the end, cancel them."""
    settings = app.state.convoy.settings
    records = Records(within(settings.store_folder, "documents"))
    most = max(1, MAX_DOCUMENTS // max(1, settings.frontends))
    jobs = app.state.jobs = DocumentJobs(records, settings.file_lifetime, most)
    sweeping = asyncio.create_task(sweep_often(jobs.sweep, settings.file_lifetime))
    yield
    sweeping.cancel()
    for task in jobs.tasks:
        task.cancel()
    await asyncio.gather(*jobs.tasks, return_exceptions=True)


router = APIRouter(prefix="/v2/document", tags=["DeepL"], lifespan=lifespan)


class Handle(BaseModel):
    document_id: str
    document_key: str


class Status(BaseModel):
    document_id: str
    status: JobState
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


KEY: Final = request_of({"document_key": {"type": "string"}}, ["document_key"], None)
ERRORS: Final = errors(400, 404, 413, 429, 503, model=MessageAnswer)
RESULT_ERRORS: Final = ERRORS | errors(500, 504, 507, model=MessageAnswer)


@router.post(
    "",
    response_model=Handle,
    responses=errors(400, 403, 404, 413, 429, 503, 504, model=MessageAnswer),
    openapi_extra=request_of(
        {"file": FILE_FIELD}
        | dict.fromkeys(("target_lang", "source_lang", "glossary_id", "glossary_ids"), {"type": "string"})
        | dict.fromkeys(("formality", "output_format"), {"type": "string"}),
        ["file", "target_lang"],
        {"file": "Guten Morgen!", "source_lang": "DE", "target_lang": "EN-GB"},
        (MULTIPART,),
    ),
)
async def submit(request: Request) -> Response:
    """Accept a document, which is translated in the background. Ask for its status afterwards."""
    state = state_of(request)
    if not state.settings.files:
        raise Refusal("disabled", FILES_OFF)
    with ExitStack() as places:
        places.enter_context(place_of_file(request))
        return await _submit(request, state, places)


async def _submit(request: Request, state: AppState, places: ExitStack) -> Response:
    """Read a document and start its translation, which keeps the places of the request until its end."""
    values, files = await upload(request, state.settings.file_limit + FORM_OVERHEAD)
    file = files.get("file")
    if file is None:
        raise InvalidRequest("Parameter 'file' not specified.")
    source, target = codes_of(state.service, values)
    name = text_parameter(values, "filename") if values.get("filename") else file.name
    document = await open_file(request, name, file.content)
    _check_options(values, name)
    route = await route_of(state, document, source, target, deadline_of(request, state))
    ids = [text_parameter(values, key) for key in ("glossary_id", "glossary_ids") if values.get(key)]
    glossary_ids = list(filter(None, ",".join(ids).split(",")))
    texts = [segment.text for segment in document.segments]
    entries = await entries_of(request, glossary_ids, source, target)
    lookup = in_slices(present_entries(entries, texts), deadline_of(request, state))
    glossary = await while_connected(request, lookup)
    check_phrases(len(glossary), state.settings.phrase_limit)
    options = replace(USUAL_OPTIONS["translate"], follow_form=False, glossary=glossary)
    characters = await charge(request, texts)
    jobs = jobs_of(request)
    job, key = jobs.new(characters, share_of(request))
    task = DocumentTask(document, route, options, share_of(request), translated_name(name, target))
    translating = _run_job(state, files_of(request), jobs, job, task)
    jobs.start(translating, task.owner, places.pop_all().close)
    return JSONResponse({"document_id": job.id, "document_key": key})


def _check_options(values: Mapping[str, Any], name: str) -> None:
    """Raise InvalidRequest when a document has unsupported options.

    values: fields of the form.
    name: name of the document's file.
    """
    if values.get("formality") in ("more", "less"):
        raise InvalidRequest("'formality' is not supported for given 'target_lang'.")
    if values.get("glossary_id") and values.get("glossary_ids"):
        raise InvalidRequest("Parameters 'glossary_id' and 'glossary_ids' can't be used together.")
    ending = written_ending(name).lower()
    if values.get("output_format") and f".{text_parameter(values, 'output_format').lower()}" != ending:
        raise InvalidRequest(
            f"Value for 'output_format' not supported: this document comes back as {ending}."
        )


@router.post(
    "/{document_id}",
    response_model=Status,
    response_model_exclude_none=True,
    responses=ERRORS,
    openapi_extra=KEY,
)
async def status(request: Request, document_id: str) -> Response:
    """Return the state of a document."""
    job = await _job(request, document_id)
    if job is None:
        raise Refusal("not_found", NOT_FOUND)
    answer = {"document_id": job.id, "status": job.state}
    more: dict[str, Any] = {
        "queued": {},
        "translating": {"seconds_remaining": 1},
        "done": {"billed_characters": job.characters},
        "error": {"error_message": job.message},
    }
    return JSONResponse(answer | more[job.state])


@router.post("/{document_id}/result", response_class=FileResponse, responses=RESULT_ERRORS, openapi_extra=KEY)
async def result(request: Request, document_id: str) -> Response:
    """Return the translated document; status 503 until it is done."""
    job = await _job(request, document_id)
    if job is None:
        raise Refusal("not_found", NOT_FOUND)
    if job.state == "error":
        raise Refusal(job.code, job.message)
    file = files_of(request).store.get(job.public)
    if job.state != "done":
        raise Refusal("not_ready", "The document is still being translated.", {"Retry-After": "1"})
    if file is None:
        raise Refusal("not_found", NOT_FOUND)
    return download_response(file)


def jobs_of(request: Request) -> DocumentJobs:
    jobs = request.app.state.jobs
    assert isinstance(jobs, DocumentJobs)
    return jobs


async def _job(request: Request, id: str) -> DocumentJob | None:
    values = await parameters(request, state_of(request).settings.body_limit)
    return jobs_of(request).find(id, values.get("document_key"))


async def _run_job(
    state: AppState, files: FileServices, jobs: DocumentJobs, job: DocumentJob, task: DocumentTask
) -> None:
    """Translate a document and store the state of its job. A draining server waits for it."""
    state.in_flight += 1
    try:
        await _translate(state, files, jobs, replace(job, state="translating"), task)
    except ConvoyError:  # without updates of its record, the job counts as ended
        logger.warning("can't store the state of a document")
    finally:
        state.in_flight -= 1


async def _translate(
    state: AppState, files: FileServices, jobs: DocumentJobs, job: DocumentJob, task: DocumentTask
) -> None:
    """Translate a document, and store the state of its job at the start, every few seconds and at the end."""
    jobs.save(job)
    updating = asyncio.create_task(_update_often(jobs, job))
    # `until` is a time of the jobs' own clock
    deadline = time.monotonic() + job.until - jobs.clock()
    try:
        data = await translate_document(state, files.processes, task, deadline)
        public = await asyncio.to_thread(files.store.put, task.name, data, task.owner)
        job = replace(job, public=public, state="done")
    except ConvoyError as error:
        # 503 would mean that the result is not ready yet
        code = InvalidRequest.code if STATUSES[error.code] == STATUSES["not_ready"] else error.code
        job = replace(job, state="error", message=str(error), code=code)
    except Exception:  # no caller awaits this task
        logger.exception("a document failed")
        job = replace(job, state="error", message=INTERNAL, code=ConvoyError.code)
    finally:
        updating.cancel()
        jobs.save(job)


async def _update_often(jobs: DocumentJobs, job: DocumentJob) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        jobs.save(job)
