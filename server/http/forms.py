"""Forms of browsers and curl. Long forms are parsed in slices, outside of the event loop."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from engine.api import InvalidRequest, Slices, in_slices, one_slice

URL_ENCODED: Final = "application/x-www-form-urlencoded"
INLINE_BYTES: Final = 16_384  # longer forms are parsed in slices
MAX_FIELDS: Final = 2_000
PIECE_BYTES: Final = 16_384  # bytes decoded in one slice, during which no other thread runs


async def form_of(request: Request, kind: str, raw: bytes) -> FormData:
    """Return the form of a body; an empty form for another media type. Uploaded files stay in memory.

    request: request of the client, with its headers.
    kind: media type of the body.
    raw: whole body.

    Raises InvalidRequest.
    """
    small = len(raw) <= INLINE_BYTES
    if kind == URL_ENCODED:
        return await in_slices(read_fields(raw), small=small)

    async def replay() -> Message:
        return {"type": "http.request", "body": raw, "more_body": False}

    async def read() -> FormData:
        """Parse a multipart form."""
        whole = Request(request.scope, replay)
        return await whole.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=max(1, len(raw)))

    try:
        # a thread parses a long form in an event loop of its own
        return await read() if small else await in_slices(one_slice(lambda: asyncio.run(read())))
    except HTTPException as error:
        raise InvalidRequest(f"Invalid form: {error.detail}") from None


def read_fields(raw: bytes) -> Slices[FormData]:
    """Parse a URL-encoded form, in slices. Raises InvalidRequest when it has more than MAX_FIELDS."""
    if raw.count(b"&") >= MAX_FIELDS:
        raise InvalidRequest(f"Invalid form: it has more than {MAX_FIELDS} fields")
    items: list[tuple[str, str | UploadFile]] = []
    for field in raw.split(b"&"):
        name, _, value = field.partition(b"=")
        if field:
            items.append(((yield from _unquote_form(name)), (yield from _unquote_form(value))))
    return FormData(items)


def _unquote_form(text: bytes) -> Slices[str]:
    """Decode URL-encoded text in UTF-8, with + for spaces, in slices."""
    pieces, begin = [], 0
    while begin < len(text):
        end = begin + PIECE_BYTES
        escape = text.rfind(b"%", end - 2, end)  # an escape at the end belongs to the next piece
        end = escape if escape > begin else end
        pieces.append(unquote_to_bytes(text[begin:end].replace(b"+", b" ")))
        begin = end
        yield
    return b"".join(pieces).decode("utf-8", "replace")
