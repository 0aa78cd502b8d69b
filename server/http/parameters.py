"""Parameters of requests, taken as LibreTranslate takes them, and a watch on the client's connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.requests import ClientDisconnect, Request

from engine.api import Cancelled, InvalidRequest, TooLarge
from server.contract import RequestNames
from server.errors import Refusal
from server.http.forms import form_of

T = TypeVar("T")

FORM_OVERHEAD: Final = 65_536  # bytes of a form beside its file
# of a JSON body: the worst of 1 MiB that they let through takes 30 ms to read
MAX_JSON_VALUES: Final = 200_000
MAX_JSON_CONTAINERS: Final = 50_000  # arrays and objects
MAX_BLANKS: Final = 64  # before a body that is looked at
BODY_SECONDS: Final = 30.0  # for a body to come, where no settings say how many


async def parameters(
    request: Request, body_limit: int, repeated: Collection[str] = frozenset()
) -> dict[str, Any]:
    """Read the JSON object of the body, or else query string and form together, the query string first.

    A GET without a body may say that it is JSON, as pot's and Kiss Translator's do.

    request: the client's.
    body_limit: bytes that the body may have.
    repeated: names that may come several times in a form; their values are lists.

    Any other name that comes several times has a list too, which its field refuses where it is none.

    Raises InvalidRequest on a body that can't be read, TooLarge on one above the limit, Cancelled when the
    client goes before its end.
    """
    raw = await body_of(request, body_limit)
    kind = _kind(request)
    if (kind == "application/json" or kind.endswith("+json")) and (raw or request.method != "GET"):
        return parse_json(raw)
    if raw[:MAX_BLANKS].lstrip().startswith(b"{"):
        raise InvalidRequest("the body looks like JSON: send it with Content-Type: application/json")
    query, form = request.query_params, await form_of(request, kind, raw)
    several = {name: query.getlist(name) + _texts(form, name) for name in repeated}
    first = _names(request).single_fields
    single = _single(form, first) | _single(query, first)
    await form.close()
    return single | {name: values for name, values in several.items() if values}


async def upload(request: Request, body_limit: int) -> tuple[dict[str, Any], str, bytes | None]:
    """Read the fields of a multipart form, as `parameters` does, and the name and the content of its `file`;
    None without one.

    Raises what `parameters` raises.
    """
    form = await form_of(request, _kind(request), await body_of(request, body_limit))
    values, file = _single(form, _names(request).single_fields), form.get("file")
    content = await file.read() if isinstance(file, UploadFile) else None
    await form.close()
    return values, (file.filename or "") if isinstance(file, UploadFile) else "", content


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await the result of `work`, for a request whose body has been read.

    Raises Cancelled when the client goes; then the work is cancelled too.
    """
    own, gone = asyncio.current_task(), False
    assert own

    def leave(watch: asyncio.Task[None]) -> None:
        nonlocal gone
        gone = not watch.cancelled() and not own.cancelling()
        if gone:
            own.cancel()

    watch = asyncio.create_task(_wait_for_disconnect(request))
    watch.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and own.uncancel() == 0:  # else somebody has cancelled it besides
            raise Cancelled("the client has gone") from None
        raise
    finally:
        watch.remove_done_callback(leave)
        watch.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request, limit: int) -> bytes:
    """Read the whole body. Raises TooLarge, Cancelled, and Refusal when it takes too long to come."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    state = _shared(request)
    seconds = state.settings.body_timeout if state else BODY_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await _read_body(request, limit)
    except ClientDisconnect:
        raise Cancelled("the client has gone") from None
    except TimeoutError:
        raise Refusal(
            "slow_body", f"the body did not come within {seconds:g} seconds", {"Connection": "close"}
        ) from None


async def _read_body(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is longer than this server's limit of {limit} bytes: send fewer or shorter texts"
    )


def parse_json(raw: bytes) -> dict[str, Any]:
    """Parse the object that JSON text is. Raises InvalidRequest."""
    check_values(raw)
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        if b"\\u" in raw:  # half a surrogate pair has no UTF-8 form, so no answer could name it
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # also on numbers of more than 4,300 digits
        raise InvalidRequest(f"Invalid JSON format: {_json_fault(raw, error)}") from None
    if not isinstance(data, dict):
        raise InvalidRequest("Invalid JSON format: it must be an object, in braces")
    return data


def _json_fault(raw: bytes, error: Exception) -> str:
    """What is wrong with JSON text, in words of a line."""
    if not raw.strip():
        return "there is no text"
    if isinstance(error, UnicodeDecodeError):
        return "it is not in UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair is no character"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]


def check_values(raw: bytes) -> None:
    """Raise InvalidRequest on JSON text that has too many values to be parsed in the event loop."""
    containers, values = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    if containers > MAX_JSON_CONTAINERS or values > MAX_JSON_VALUES:
        raise InvalidRequest(
            f"the body has more than {MAX_JSON_CONTAINERS} arrays and objects or {MAX_JSON_VALUES} values: "
            "send several requests"
        )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _kind(request: Request) -> str:
    """The media type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _shared(request: Request) -> Any:
    """Return the state that routes share; None for a request that has not reached the application."""
    return getattr(getattr(request.scope.get("app"), "state", None), "convoy", None)


def _names(request: Request) -> RequestNames:
    state = _shared(request)
    return state.names if state else RequestNames()


def _single(form: FormData | QueryParams, first: Collection[str]) -> dict[str, Any]:
    """Return the texts of a form by name, as a list if a name is repeated.

    form: form or query string.
    first: names whose first value counts, even if they are repeated.
    """
    values: dict[str, Any] = {}
    for name in form:
        texts = _texts(form, name)
        if texts:
            values[name] = texts if len(texts) > 1 and name not in first else texts[0]
    return values


def _texts(form: FormData | QueryParams, name: str) -> list[str]:
    return [value for value in form.getlist(name) if isinstance(value, str)]
