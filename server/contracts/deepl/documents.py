"""DeepL's documents: POST /v2/document, its status and its result. The work goes on after the answer."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel

from documents import Document
from engine.api import ConvoyError, InvalidRequest, Overloaded, TextOptions
from server.access import charge
from server.deepl import codes_of
from server.errors import failure
from server.glossaries import present
from server.house import House, house_of
from server.intake import parameters, upload
from server.keys import digest_of
from server.records import Records, within
from server.routes.docs import MULTIPART, MessageAnswer, errors, request_of
from server.routes.files import FILE, FRAME, OFF, model_of, open_file, sent, store_of
from server.routes.glossaries import entries_of
from server.steady import steady
from server.store import Store, translated_name
from server.translation import translate_document

logger = logging.getLogger(__name__)

MOST: Final = 32  # documents being translated at once
BEAT: Final = 5.0  # seconds between two signs of life of a job
GONE: Final = "the process that translated it has ended: send the document again"
State = Literal["queued", "translating", "done", "error"]


@dataclass(frozen=True, slots=True)
class Job:
    """A document on its way. key: a digest of what its owner shows. public: the result's name in the store.
    until, seen: by `steady`, after which it is forgotten, and when its process was last known to live."""

    id: str
    key: str
    characters: int
    until: float
    seen: float
    state: State = "queued"
    public: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What becomes of a document. model: None leaves it as it is. name: of the result."""

    document: Document
    model: str | None
    options: TextOptions
    name: str


class Jobs:
    """Documents that were sent to this process, or to another that shares its records."""

    def __init__(self, records: Records, lifetime: float, most: int = MOST) -> None:
        """most: documents that this process translates at once."""
        self._records, self._lifetime, self._most = records, lifetime, most
        self.clock = steady(records.folder)
        self.tasks: set[asyncio.Task[None]] = set()

    def new(self, characters: int) -> tuple[Job, str]:
        """A job and its key. Raises Overloaded when too many are on their way."""
        self._sweep()
        if len(self.tasks) >= self._most:
            raise Overloaded(f"{self._most} documents are being translated: try again later", 5.0)
        key, now = secrets.token_hex(32).upper(), self.clock()
        digest = digest_of(key)
        job = Job(secrets.token_hex(16).upper(), digest, characters, now + self._lifetime, now)
        self.note(job)
        return job, key

    def note(self, job: Job) -> None:
        """Keep what has become of a job."""
        self._records.put(job.id, asdict(replace(job, seen=self.clock())))

    def find(self, id: str, key: Any) -> Job | None:
        record, now = self._records.get(id), self.clock()
        if record is None or not isinstance(key, str):
            return None
        job = Job(**record)
        if job.until <= now or not hmac.compare_digest(digest_of(key), job.key):
            return None
        if job.state in ("queued", "translating") and job.seen < now - 3 * BEAT:
            return replace(job, state="error", message=GONE)
        return job

    def _sweep(self) -> None:
        now = self.clock()
        for id in self._records.ids():
            record = self._records.get(id)
            if record and record["until"] <= now:
                self._records.drop(id)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings = app.state.house.settings
    records = Records(within(settings.store_folder, "documents"))
    most = max(1, MOST // settings.workers)
    jobs = app.state.jobs = Jobs(records, settings.file_lifetime, most)
    yield
    for task in jobs.tasks:
        task.cancel()
    await asyncio.gather(*jobs.tasks, return_exceptions=True)


router = APIRouter(prefix="/v2/document", tags=["DeepL"], lifespan=lifespan)


class Handle(BaseModel):
    document_id: str
    document_key: str


class Status(BaseModel):
    document_id: str
    status: State
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


KEY: Final = request_of({"document_key": {"type": "string"}}, ["document_key"], None)
ERRORS: Final = errors(400, 404, 413, 429, 503, model=MessageAnswer)


@router.post(
    "",
    response_model=Handle,
    responses=errors(400, 403, 404, 413, 429, 503, 504, model=MessageAnswer),
    openapi_extra=request_of(
        {"file": FILE} | dict.fromkeys(("target_lang", "source_lang", "glossary_id"), {"type": "string"}),
        ["file", "target_lang"],
        {"file": "Guten Morgen!", "source_lang": "DE", "target_lang": "EN-GB"},
        (MULTIPART,),
    ),
)
async def submit(request: Request) -> Response:
    """Take a document; it is translated while the client asks for its status."""
    house = house_of(request)
    if not house.settings.files:
        return failure(OFF, 403)
    values, name, data = await upload(request, house.settings.file_limit + FRAME)
    if data is None:
        raise InvalidRequest("Parameter 'file' not specified.")
    source, target = codes_of(house.service, values)
    name = values.get("filename") or name
    document = await open_file(house, name, data)
    model = await model_of(house, document, source, target)
    named = [values["glossary_id"]] if values.get("glossary_id") else []
    texts = [segment.text for segment in document.segments]
    entries = entries_of(request, named, source, target)
    options = TextOptions(protect=True, glossary=await asyncio.to_thread(present, entries, texts))
    characters = await charge(request, texts)
    jobs = jobs_of(request)
    job, key = jobs.new(characters)
    wanted = Wanted(document, model, options, translated_name(name, target))
    task = asyncio.create_task(_work(house, store_of(request), jobs, job, wanted))
    jobs.tasks.add(task)
    task.add_done_callback(jobs.tasks.discard)
    return JSONResponse({"document_id": job.id, "document_key": key})


@router.post(
    "/{document_id}",
    response_model=Status,
    response_model_exclude_none=True,
    responses=ERRORS,
    openapi_extra=KEY,
)
async def status(request: Request, document_id: str) -> Response:
    """How far a document is."""
    job = await _job(request, document_id)
    if job is None:
        return failure("Document not found.", 404)
    found = {"document_id": job.id, "status": job.state}
    more: dict[str, Any] = {
        "queued": {},
        "translating": {"seconds_remaining": 1},
        "done": {"billed_characters": job.characters},
        "error": {"error_message": job.message},
    }
    return JSONResponse(found | more[job.state])


@router.post("/{document_id}/result", response_class=FileResponse, responses=ERRORS, openapi_extra=KEY)
async def result(request: Request, document_id: str) -> Response:
    """The translated document; 503 until it is done."""
    job = await _job(request, document_id)
    if job is None:
        return failure("Document not found.", 404)
    if job.state == "error":
        return failure(job.message, 400)
    kept = store_of(request).get(job.public)
    if job.state != "done":
        return failure("The document is still being translated.", 503, {"Retry-After": "1"})
    if kept is None:
        return failure("Document not found.", 404)
    return sent(kept)


def jobs_of(request: Request) -> Jobs:
    jobs = request.app.state.jobs
    assert isinstance(jobs, Jobs)
    return jobs


async def _job(request: Request, id: str) -> Job | None:
    values = await parameters(request, house_of(request).settings.body_limit)
    return jobs_of(request).find(id, values.get("document_key"))


async def _work(house: House, store: Store, jobs: Jobs, job: Job, wanted: Wanted) -> None:
    """Translate a document and note what became of it. While it runs, the server counts as busy."""
    job = replace(job, state="translating")
    jobs.note(job)
    house.in_flight += 1
    beating = asyncio.create_task(_beat(jobs, job))
    deadline = time.monotonic() + job.until - jobs.clock()
    try:
        data = await translate_document(house, wanted.document, wanted.model, wanted.options, deadline)
        job = replace(job, public=store.put(wanted.name, data), state="done")
    except ConvoyError as error:
        job = replace(job, state="error", message=str(error))
    except Exception:  # nobody awaits this task: its fault ends here
        logger.exception("a document failed")
        job = replace(job, state="error", message="internal error: see the server's log")
    finally:
        beating.cancel()
        jobs.note(job)
        house.in_flight -= 1


async def _beat(jobs: Jobs, job: Job) -> None:
    while True:
        await asyncio.sleep(BEAT)
        jobs.note(job)
