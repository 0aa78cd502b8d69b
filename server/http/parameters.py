"""Parameters of requests, read like LibreTranslate reads them, and cancellation when a client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request

from engine.api import Cancelled, InvalidRequest, TooLarge, at_once
from server.contract import RequestNames
from server.errors import Refusal
from server.http.forms import Fields, UploadedFile, form_of, read_fields
from server.http.media import Media, media_of

T = TypeVar("T")

FORM_OVERHEAD: Final = 65_536  # bytes of a form in addition to its file
# values of a JSON body: the slowest body of 1 MiB within these limits is parsed in 30 ms
MAX_JSON_VALUES: Final = 200_000
MAX_JSON_CONTAINERS: Final = 50_000  # arrays and objects
MAX_BLANKS: Final = 64  # bytes of a body that are searched for the beginning of JSON
BODY_SECONDS: Final = 30.0  # time limit for reading a body, without settings


async def parameters(
    request: Request, body_limit: int, repeated: Collection[str] = frozenset()
) -> dict[str, Any]:
    """Return the JSON object of the body; or the values of query string and form, the query string first.

    request: request of the client.
    body_limit: greatest number of bytes of the body.
    repeated: names whose values are always lists.

    Another name that a form repeats has a list too, which the validation of its field refuses. A GET without
    a body may have a JSON content type, like those of pot and Kiss Translator.

    Raises InvalidRequest for a body that can't be parsed, TooLarge for one above the limit, Cancelled when
    the client disconnects.
    """
    raw, media = await body_of(request, body_limit), _media(request)
    kind = media.kind
    if (kind == "application/json" or kind.endswith("+json")) and (raw or request.method != "GET"):
        return parse_json(raw)
    if raw[:MAX_BLANKS].lstrip().startswith(b"{"):
        raise InvalidRequest("the body looks like JSON: send it with Content-Type: application/json")
    query = at_once(read_fields(request.scope["query_string"]))
    form = (await form_of(media, raw)).fields
    several = {name: query.get(name, []) + form.get(name, []) for name in repeated}
    first = _request_names(request).single_fields
    # the query string has precedence
    single = _single(form, first) | _single(query, first)
    return single | {name: values for name, values in several.items() if values}


async def upload(
    request: Request, body_limit: int, most_files: int = 1
) -> tuple[dict[str, Any], dict[str, UploadedFile]]:
    """Return the fields and the files of a multipart form by name.

    request: request of the client.
    body_limit: greatest number of bytes of the body.
    most_files: greatest number of files.

    Raises what `parameters` raises.
    """
    raw = await body_of(request, body_limit)
    form = await form_of(_media(request), raw, most_files)
    return _single(form.fields, _request_names(request).single_fields), form.files


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, and cancel it when the client disconnects.

    request: request whose body has been read.
    work: coroutine that makes the answer.

    Raises Cancelled when the client disconnects.
    """
    own, gone = asyncio.current_task(), False
    assert own

    def cancel_work(watch: asyncio.Task[None]) -> None:
        nonlocal gone
        # if this task is being cancelled already, the disconnect is not the cause
        gone = not watch.cancelled() and not own.cancelling()
        if gone:
            own.cancel()

    watch = asyncio.create_task(_wait_for_disconnect(request))
    watch.add_done_callback(cancel_work)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and own.uncancel() == 0:  # otherwise another caller has cancelled the task too
            raise Cancelled("the client has gone") from None
        raise
    finally:
        watch.remove_done_callback(cancel_work)
        watch.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request, limit: int) -> bytes:
    """Return the whole body. Raises TooLarge, Cancelled, and Refusal when the client sends it too slowly."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    state = _app_state(request)
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
    """Return the whole body. Raises TooLarge as soon as it exceeds the limit."""
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
    """Return the object of a JSON text. Raises InvalidRequest."""
    check_values(raw)
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        if b"\\u" in raw:  # half of a surrogate pair can't be encoded, so no answer could repeat it
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # numbers of more than 4,300 digits are ValueErrors
        raise InvalidRequest(f"Invalid JSON format: {_json_fault(raw, error)}") from None
    if not isinstance(data, dict):
        raise InvalidRequest("Invalid JSON format: it must be an object, in braces")
    return data


def _json_fault(raw: bytes, error: Exception) -> str:
    """Return the reason why a JSON text is invalid, as a short phrase."""
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
    """Raise InvalidRequest when a JSON text has too many values to be parsed in the event loop."""
    containers, values = raw.count(b"[") + raw.count(b"{"), raw.count(b",")
    if containers > MAX_JSON_CONTAINERS or values > MAX_JSON_VALUES:
        raise InvalidRequest(
            f"the body has more than {MAX_JSON_CONTAINERS} arrays and objects or {MAX_JSON_VALUES} values: "
            "send several requests"
        )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _media(request: Request) -> Media:
    """Return the media type of the body. Raises InvalidRequest."""
    return media_of(request.headers.get("content-type", ""))


def _app_state(request: Request) -> Any:
    """Return the state that routes share; None for a request that has not reached the application."""
    return getattr(getattr(request.scope.get("app"), "state", None), "convoy", None)


def _request_names(request: Request) -> RequestNames:
    state = _app_state(request)
    return state.names if state else RequestNames()


def _single(fields: Fields, first: Collection[str]) -> dict[str, Any]:
    """Return the text of each field; the list of its texts if it is repeated.

    fields: fields of a form or query string.
    first: names of fields whose first value counts, even if the form repeats them.
    """
    return {
        name: texts if len(texts) > 1 and name not in first else texts[0] for name, texts in fields.items()
    }
