"""Parameters of requests, taken as LibreTranslate takes them, and a watch on the client's connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Coroutine
from typing import Any, NoReturn, TypeVar

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from engine.api import Cancelled, InvalidRequest, TooLarge

T = TypeVar("T")


async def parameters(
    request: Request, body_limit: int, repeated: Collection[str] = frozenset()
) -> dict[str, Any]:
    """The JSON object of the body, or else query string and form together, the query string first.

    repeated: names that may come several times in a form; their values are lists. Raises InvalidRequest on a
    body that can't be read, TooLarge on one above the limit, Cancelled when the client goes before its end.
    """
    raw = await body_of(request, body_limit)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return await parsed(raw)
    query, form = request.query_params, await _form(request, raw)
    several = {name: query.getlist(name) + _texts(form, name) for name in repeated}
    single = {name: value for name, value in form.items() if isinstance(value, str)}
    await form.close()
    single |= {name: query.getlist(name)[0] for name in query}
    return single | {name: values for name, values in several.items() if values}


async def upload(request: Request, body_limit: int) -> tuple[dict[str, str], str, bytes | None]:
    """Fields of a multipart form, and the name and the content of its `file`; None without one.

    Raises what `parameters` raises.
    """
    form = await _form(request, await body_of(request, body_limit))
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    file = form.get("file")
    content = await file.read() if isinstance(file, UploadFile) else None
    await form.close()
    return values, (file.filename or "") if isinstance(file, UploadFile) else "", content


async def parsed(raw: bytes) -> dict[str, Any]:
    """A JSON object; a long one is read in a thread. Raises InvalidRequest."""
    return await asyncio.to_thread(_parse, raw) if len(raw) > 65_536 else _parse(raw)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes (then raises Cancelled).

    For requests whose body has been read.
    """
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Cancelled("the client has gone")
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body. Raises TooLarge and Cancelled."""
    message = f"the body is longer than this server's limit of {limit} bytes: send fewer or shorter texts"
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise TooLarge(message)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TooLarge(message)
            parts.append(part)
    except ClientDisconnect:
        raise Cancelled("the client has gone") from None
    return b"".join(parts)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        if b"\\u" in raw:  # half a surrogate pair has no UTF-8 form, so no answer could name it
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise InvalidRequest("Invalid JSON format") from None
    if not isinstance(data, dict):
        raise InvalidRequest("Invalid JSON format")
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


async def _form(request: Request, raw: bytes) -> FormData:
    """A form; what is uploaded stays in memory after the request is closed."""

    async def replay() -> Message:
        return {"type": "http.request", "body": raw, "more_body": False}

    try:
        return await Request(request.scope, replay).form(max_part_size=max(1, len(raw)))
    except HTTPException as error:
        raise InvalidRequest(f"Invalid form: {error.detail}") from None


def _texts(form: FormData, name: str) -> list[str]:
    return [value for value in form.getlist(name) if isinstance(value, str)]
