"""DeepL's documents: POST /v2/document, its status and its result. The work goes on after the answer."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from server.routes.docs import MULTIPART, MessageAnswer, errors, request_of
from server.routes.files import FILE, FRAME, OFF, model_of, open_file, sent, store_of
from server.routes.glossaries import entries_of
from server.store import Store, translated_name
from server.translation import translate_document

logger = logging.getLogger(__name__)

MOST: Final = 32  # documents being translated at once
State = Literal["queued", "translating", "done", "error"]


@dataclass(eq=False, slots=True)
class Job:
    """A document on its way. public: the result's name in the store. until: a time.monotonic()."""

    id: str
    key: str
    characters: int
    until: float
    state: State = "queued"
    public: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What becomes of a document. model: None leaves it as it is. name: of the result."""

    model: str | None
    options: TextOptions
    name: str


class Jobs:
    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._jobs: dict[str, Job] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def new(self, characters: int) -> Job:
        """Raises Overloaded when too many are on their way."""
        now = time.monotonic()
        self._jobs = {id: job for id, job in self._jobs.items() if job.until > now}
        if len(self.tasks) >= MOST:
            raise Overloaded(f"{MOST} documents are being translated: try again later", 5.0)
        job = Job(
            secrets.token_hex(16).upper(), secrets.token_hex(32).upper(), characters, now + self._lifetime
        )
        self._jobs[job.id] = job
        return job

    def find(self, id: str, key: Any) -> Job | None:
        job = self._jobs.get(id)
        known = (
            job is not None and isinstance(key, str) and hmac.compare_digest(key.encode(), job.key.encode())
        )
        return job if known and job is not None and job.until > time.monotonic() else None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    jobs = app.state.jobs = Jobs(app.state.house.settings.file_lifetime)
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
    job = jobs.new(characters)
    task = asyncio.create_task(
        _work(house, store_of(request), job, document, Wanted(model, options, translated_name(name, target)))
    )
    jobs.tasks.add(task)
    task.add_done_callback(jobs.tasks.discard)
    return JSONResponse({"document_id": job.id, "document_key": job.key})


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


async def _work(house: House, store: Store, job: Job, document: Document, wanted: Wanted) -> None:
    """Translate a document and note what became of it. While it runs, the server counts as busy."""
    job.state = "translating"
    house.in_flight += 1
    try:
        data = await translate_document(house, document, wanted.model, wanted.options, job.until)
        job.public = store.put(wanted.name, data)
        job.state = "done"
    except ConvoyError as error:
        job.state, job.message = "error", str(error)
    except Exception:  # nobody awaits this task: its fault ends here
        logger.exception("a document failed")
        job.state, job.message = "error", "internal error: see the server's log"
    finally:
        house.in_flight -= 1
