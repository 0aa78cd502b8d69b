"""POST /suggest: better translations from users of LibreTranslate's page."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine.api import InvalidRequest
from server.answering.texts import resolve_pair
from server.callers.access import share_of
from server.errors import Refusal
from server.files.shared_records import storage_full
from server.http.openapi import CODES, errors, request_of
from server.http.parameters import parameters
from server.http.schemas import check_sizes
from server.state import deadline_of, state_of

MAX_SUGGESTION_BYTES: Final = 67_108_864  # size of the file
FIELDS: Final = ("q", "s", "source", "target")

router = APIRouter(tags=["LibreTranslate"])


@router.post(
    "/suggest",
    response_model=dict[str, bool],
    responses=errors(400, 403, 413, 429, 503),
    openapi_extra=request_of(
        {
            "q": {"type": "string", "minLength": 1, "description": "The original text."},
            "s": {"type": "string", "minLength": 1, "description": "The better translation."},
            "source": CODES["source"],
            "target": CODES["target"],
        },
        list(FIELDS),
        None,
    ),
)
async def suggest(request: Request) -> JSONResponse:
    """Append a better translation to the operator's file, as a line of JSON."""
    state = state_of(request)
    path = state.settings.suggestions
    if path is None:
        raise Refusal("disabled", "Suggestions are disabled on this server: --suggestions FILE enables them.")
    deadline_of(request, state)  # refuses an invalid timeout
    values = await parameters(request, state.settings.body_limit)
    texts = {name: _text(values, name) for name in FIELDS}
    check_sizes([texts["q"], texts["s"]], state.settings.char_limit, -1)
    resolve_pair(state.service, texts["source"], texts["target"])
    record: dict[str, Any] = texts | {"time": round(time.time()), "from": share_of(request)}
    await asyncio.to_thread(append_line, path, json.dumps(record, ensure_ascii=False))
    return JSONResponse({"success": True})


def append_line(path: Path, line: str) -> None:
    """Append a line to a file atomically, also among processes. Raises Refusal when there is no room."""
    data = f"{line}\n".encode()
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            if os.fstat(descriptor).st_size + len(data) > MAX_SUGGESTION_BYTES:
                raise Refusal("storage_full", f"the suggestions have {MAX_SUGGESTION_BYTES} bytes already")
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_full(error) from error


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"Invalid request: missing {name} parameter")
    return value
