"""The requests of the API, each with the meaning of its answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import httpx

from convoy_client import results
from convoy_client.errors import ApiError, BadAnswer
from convoy_client.events import Event
from convoy_client.exchange import ApiCall, json_of
from convoy_client.results import Detection, Language, Model, Partial, Score, Summary, Translation

FAILED_STATUS: Final = 500  # status of an error event without one; the stream itself has status 200


def translate(text: str, target: str, source: str, options: Mapping[str, Any]) -> ApiCall[Translation]:
    body = {"q": text, "source": source, "target": target, **options}
    return ApiCall("POST", "/translate", lambda r: results.translations(json_of(r), None)[0], body)


def translate_all(
    texts: Sequence[str], target: str, source: str, options: Mapping[str, Any]
) -> ApiCall[list[Translation]]:
    body = {"q": list(texts), "source": source, "target": target, **options}
    return ApiCall("POST", "/translate", lambda r: results.translations(json_of(r), len(texts)), body)


def summarize(text: str, options: Mapping[str, Any]) -> ApiCall[Summary]:
    body = {"q": text, **options}
    return ApiCall("POST", "/summarize", lambda r: results.summaries(json_of(r), None)[0], body)


def summarize_all(texts: Sequence[str], options: Mapping[str, Any]) -> ApiCall[list[Summary]]:
    body = {"q": list(texts), **options}
    return ApiCall("POST", "/summarize", lambda r: results.summaries(json_of(r), len(texts)), body)


def score(text: str, source_text: str | None, options: Mapping[str, Any]) -> ApiCall[Score]:
    body = {"q": text, "source_text": source_text, **options}
    return ApiCall("POST", "/score", lambda r: results.scores(json_of(r), None)[0], body)


def score_all(
    texts: Sequence[str], source_texts: Sequence[str] | None, options: Mapping[str, Any]
) -> ApiCall[list[Score]]:
    sources = None if source_texts is None else list(source_texts)
    body = {"q": list(texts), "source_text": sources, **options}
    return ApiCall("POST", "/score", lambda r: results.scores(json_of(r), len(texts)), body)


def detect(text: str) -> ApiCall[list[Detection]]:
    return ApiCall("POST", "/detect", lambda r: results.from_array(Detection, json_of(r)), {"q": text})


def languages() -> ApiCall[list[Language]]:
    return ApiCall("GET", "/languages", lambda r: results.from_array(Language, json_of(r)))


def models() -> ApiCall[list[Model]]:
    return ApiCall("GET", "/models", lambda r: results.from_array(Model, json_of(r)))


def health() -> ApiCall[bool]:
    return ApiCall("GET", "/health/ready", lambda r: r.is_success, accepts=frozenset({503}))


def upload(name: str, content: bytes, target: str, source: str, options: Mapping[str, str]) -> ApiCall[str]:
    """Return the request to translate a file; its answer is the path of the translated file.

    name: name of the file, with the ending of its format.
    content: bytes of the file.
    target: code of the language to translate into.
    source: code of the language of the file, or "auto".
    options: further fields of the form.
    """
    fields = {**options, "source": source, "target": target}
    return ApiCall("POST", "/translate_file", _file_path, fields, file=(name, content))


def download(path: str) -> ApiCall[bytes]:
    return ApiCall("GET", path, lambda r: r.content)


def parts(events: Iterable[Event]) -> list[Partial | Translation]:
    """Return the answers in events of a streamed translation. Raises ApiError and BadAnswer."""
    pieces = map(_part, events)
    return [part for part in pieces if part is not None]


def _part(event: Event) -> Partial | Translation | None:
    """Return the answer in an event; None: an unknown event."""
    if event.name not in ("partial", "result", "error"):
        return None
    try:
        data = json.loads(event.data)
        if event.name == "partial":
            return Partial(data["index"], data["text"])
        if event.name == "error":
            raise ApiError(str(data.get("error", data)), int(data.get("status", FAILED_STATUS)))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadAnswer("the stream has an event that can't be read") from None
    return results.translations(data, None)[0]


def _file_path(response: httpx.Response) -> str:
    """Return the path of the translated file.

    Only the name in the URL is used, because a server behind a proxy may not have its public address.
    """
    data = json_of(response)
    url = data.get("translatedFileUrl") if isinstance(data, dict) else None
    name = unquote(urlsplit(url).path.rpartition("/")[2]) if isinstance(url, str) else ""
    if not name:
        raise BadAnswer("the server's answer names no translated file")
    return f"/download_file/{quote(name, safe='')}"
