"""One chat completion of an upstream, whole or as a stream of server-sent events."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from engine.repository.upstreams.prompts import Messages
from engine.repository.upstreams.settings import Upstream

MAX_ANSWER_BYTES: Final = 1 << 20
FREE_PARTS: Final = 1_000  # parts of any size that a response may come in
PART_BYTES: Final = 16  # least bytes of each further part, on average
MAX_COUNT: Final = 10**9  # tokens; a larger count is an error of the upstream
CONNECT_SECONDS: Final = 5.0
PLAIN: Final = "identity"
RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
HINTS: Final[Mapping[int, str]] = {
    **dict.fromkeys((301, 302, 303, 307, 308), "; redirects are not followed: set url to its address"),
    **dict.fromkeys((401, 403), "; check the key"),
    **dict.fromkeys((404, 405), "; check url and model"),
}
OF_TEXT: Final = frozenset({400, 413, 422})  # the text is too long, or a filter refuses it


class UpstreamError(Exception):
    """The upstream gave no answer.

    message: cause, without texts, keys and the body of the response.
    retry: whether the same request may be sent again.
    wait: seconds that the upstream asks for; None: it names none.
    of_text: whether the upstream refuses this text, and may answer others.
    """

    def __init__(
        self, message: str, *, retry: bool, wait: float | None = None, of_text: bool = False
    ) -> None:
        super().__init__(message)
        self.retry, self.wait, self.of_text = retry, wait, of_text


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer.

    cut: whether a limit of its length ended it.
    prompt_tokens, answer_tokens: numbers of tokens by the upstream's count, 0 if it names none.
    """

    text: str
    cut: bool = False
    prompt_tokens: int = 0
    answer_tokens: int = 0


class ChatClient:
    """The connections to an upstream, for one event loop."""

    def __init__(self, upstream: Upstream) -> None:
        headers = {"Accept-Encoding": PLAIN}  # a compressed answer may swell
        headers |= {"Authorization": f"Bearer {upstream.key}"} if upstream.key else {}
        limits = httpx.Limits(max_connections=upstream.parallel)
        timeout = httpx.Timeout(upstream.timeout, connect=min(CONNECT_SECONDS, upstream.timeout), pool=None)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout)
        self._upstream = upstream

    async def close(self) -> None:
        await self._http.aclose()

    async def complete(
        self,
        messages: Messages,
        fields: Mapping[str, Any],
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Return the answer to messages.

        messages: messages of the chat.
        fields: further fields of the request.
        on_text: function that is called with the growing answer, which is then streamed.

        Raises UpstreamError and TimeoutError.
        """
        body = {"model": self._upstream.model, "messages": messages, "temperature": 0}
        # a server may stream by default
        body |= {**fields, **self._upstream.body, "stream": on_text is not None}
        if on_text:
            body["stream_options"] = {"include_usage": True}
        try:
            async with self._http.stream("POST", self._upstream.url, json=body) as response:
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                if response.headers.get("content-encoding", PLAIN) != PLAIN:
                    raise UpstreamError("its answer is compressed, against the request", retry=False)
                if "text/event-stream" in response.headers.get("content-type", ""):
                    return await _read_stream(response, on_text or (lambda text: None))
                return _completion(json.loads(b"".join([part async for part in _bounded(response)])))
        except httpx.TimeoutException:
            raise TimeoutError from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            kind = error if isinstance(error, httpx.ConnectError) else type(error).__name__
            raise UpstreamError(f"the connection failed ({kind})", retry=True) from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise UpstreamError("its answer is no chat completion; check url", retry=True) from None


def _refusal(response: httpx.Response) -> UpstreamError:
    """Return the error of a status."""
    try:
        wait = float(response.headers.get("retry-after", "nan"))
    except ValueError:  # a date
        wait = math.nan
    status = response.status_code
    known = wait if 0 <= wait < math.inf else None
    message = f"it answered with status {status}{HINTS.get(status, '')}"
    return UpstreamError(message, retry=status in RETRIED, wait=known, of_text=status in OF_TEXT)


async def _bounded(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the parts of a response. Raises UpstreamError when it is too long, or its parts are too short."""
    size = parts = 0
    async for part in response.aiter_raw():
        size, parts = size + len(part), parts + 1
        if size > MAX_ANSWER_BYTES:
            raise UpstreamError(f"its answer is longer than {MAX_ANSWER_BYTES:,} bytes", retry=False)
        if parts > FREE_PARTS + size // PART_BYTES:
            raise UpstreamError("its answer comes in too many parts", retry=False)
        yield part


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a response that end. Raises UpstreamError like `_bounded`."""
    begun = list[bytes]()  # parts of the line that has not ended
    async for part in _bounded(response):
        first, *rest = part.split(b"\n")
        begun.append(first)
        for following in rest:
            yield b"".join(begun)
            begun = [following]


async def _read_stream(response: httpx.Response, on_text: Callable[[str], None]) -> Completion:
    """Read the events of a stream. Raises UpstreamError if it ends before the answer does."""
    text, finish = "", None
    usage: dict[str, Any] = {}
    async for line in _lines(response):
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data == b"[DONE]":
            finish = finish or "stop"
        if not data or data == b"[DONE]":
            continue
        event = json.loads(data)
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            new = (choice.get("delta") or {}).get("content")
            if isinstance(new, str) and new:
                text += _written(new)
                on_text(text)
    if finish is None:
        raise UpstreamError("its stream was cut", retry=True)
    return Completion(text, finish == "length", *_counts(usage))


def _completion(answer: Any) -> Completion:
    """Return the content of a response. Raises TypeError or LookupError on another form."""
    choice = answer["choices"][0]
    text = choice["message"].get("content") or ""  # null if all tokens were thoughts
    if not isinstance(text, str):
        raise TypeError
    cut, counts = choice.get("finish_reason") == "length", _counts(answer.get("usage") or {})
    return Completion(_written(text), cut, *counts)


def _counts(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of prompt and answer, 0 if they are no counts."""
    first, last = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return _count(first), _count(last)


def _count(value: Any) -> int:
    """Return a count of tokens; 0 for any other value. A negative one would lower the price of the day."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else 0


def _written(text: str) -> str:
    """Return a text with question marks for halves of code points, which no answer of ours can have."""
    return text.encode("utf-8", "replace").decode()
