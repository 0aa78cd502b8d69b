"""The synchronous and the asynchronous client; they differ only in sending and waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from convoy_client import calls
from convoy_client.errors import Unreachable
from convoy_client.events import EventReader
from convoy_client.exchange import ApiCall, Outcome, Pause, RetryPolicy, Send, exchange, request_of
from convoy_client.results import Detection, Language, Model, Partial, Score, Summary, Translation

T = TypeVar("T")

CUT: Final = "the stream ended before its result"


class _Base:
    def __init__(self, api_key: str | None, policy: RetryPolicy) -> None:
        self._policy = policy
        self._headers = {"User-Agent": "convoy-client"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def _exchange(
        self, call: ApiCall[Any], timeout: float | None
    ) -> Generator[Send | Pause, Outcome, httpx.Response]:
        policy = self._policy if timeout is None else replace(self._policy, timeout=timeout)
        return exchange(policy, call.accepts)


class Client(_Base):
    """A client; several threads may use it at once.

    url: address of the server.
    api_key: API key, sent as a bearer token.
    timeout: seconds for an answer, with all retries; each method has an argument for it, too.
    retries: number of retries after overload (429, 503; not before Retry-After) and lost connections.
    http: further arguments of httpx.Client.

    Options of methods are fields of the request, such as beam_size=1 or format="html" (docs/api.md). The
    client warns of unknown ones by UnreadOption. Methods raise ApiError, Unreachable and BadAnswer.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout: float = 60.0, retries: int = 4, **http: Any
    ) -> None:
        super().__init__(api_key, RetryPolicy(timeout, retries))
        self._http = httpx.Client(base_url=url, headers=self._headers, **http)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def translate(
        self, text: str, target: str, source: str = "auto", *, timeout: float | None = None, **options: Any
    ) -> Translation:
        """Return the translation of a text.

        text: text to translate.
        target: code of the language to translate into.
        source: code of the language of the text; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return self._ask(calls.translate(text, target, source, options), timeout)

    def translate_all(
        self,
        texts: Sequence[str],
        target: str,
        source: str = "auto",
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Translate texts in one request: all are accepted or none.

        texts: texts to translate.
        target: code of the language to translate into.
        source: code of the language of the texts; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return self._ask(calls.translate_all(texts, target, source, options), timeout) if texts else []

    def stream(
        self, text: str, target: str, source: str = "auto", *, timeout: float | None = None, **options: Any
    ) -> Iterator[Partial | Translation]:
        """Yield beginnings of the translation, then the translation; closing the iterator early cancels it.

        text: text to translate.
        target: code of the language to translate into.
        source: code of the language of the text; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        call = calls.translate(text, target, source, {**options, "stream": True})
        with closing(self._send(call, timeout, stream=True)) as response:
            reader = EventReader()
            try:
                for chunk in response.iter_bytes():
                    for part in calls.parts(reader.feed(chunk)):
                        yield part
                        if isinstance(part, Translation):
                            return
            except httpx.TransportError as error:
                raise Unreachable(f"the stream broke: {error or type(error).__name__}") from error
        raise Unreachable(CUT)

    def summarize(self, text: str, *, timeout: float | None = None, **options: Any) -> Summary:
        """Return the summary of a text; the timeout is in seconds."""
        return self._ask(calls.summarize(text, options), timeout)

    def summarize_all(
        self, texts: Sequence[str], *, timeout: float | None = None, **options: Any
    ) -> list[Summary]:
        """Summarize texts in one request: all are accepted or none.

        texts: texts to summarize.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return self._ask(calls.summarize_all(texts, options), timeout) if texts else []

    def score(
        self, text: str, source_text: str | None = None, *, timeout: float | None = None, **options: Any
    ) -> Score:
        """Return the probability of a text.

        text: text to score.
        source_text: source of the translation `text`; None: the text is scored without a source.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return self._ask(calls.score(text, source_text, options), timeout)

    def score_all(
        self,
        texts: Sequence[str],
        source_texts: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Score]:
        """Score texts in one request: all are accepted or none.

        texts: texts to score.
        source_texts: source of each translation; None: the texts are scored without sources.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return self._ask(calls.score_all(texts, source_texts, options), timeout) if texts else []

    def translate_file(
        self, path: Path | str, target: str, source: str = "auto", *, timeout: float | None = None, **how: Any
    ) -> bytes:
        """Return the translation of a document in the same format. Also raises OSError.

        path: file with the ending of its format.
        target: code of the language to translate into.
        source: code of the language of the document; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        file = Path(path)
        where = self._ask(calls.upload(file.name, file.read_bytes(), target, source, how), timeout)
        return self._ask(calls.download(where), timeout)

    def detect(self, text: str, *, timeout: float | None = None) -> list[Detection]:
        """Return the likely languages of a text, most likely first."""
        return self._ask(calls.detect(text), timeout)

    def languages(self, *, timeout: float | None = None) -> list[Language]:
        """Return the source languages of the server, each with its target languages."""
        return self._ask(calls.languages(), timeout)

    def models(self, *, timeout: float | None = None) -> list[Model]:
        """Return the loaded models."""
        return self._ask(calls.models(), timeout)

    def health(self, *, timeout: float | None = None) -> bool:
        """Return whether every model answers and the server is not stopping."""
        return self._ask(calls.health(), timeout)

    def _ask(self, call: ApiCall[T], timeout: float | None) -> T:
        return call.read(self._send(call, timeout))

    def _send(self, call: ApiCall[Any], timeout: float | None, *, stream: bool = False) -> httpx.Response:
        """Return the response to a call, after retries. Raises the errors of the exchange."""
        steps, outcome = self._exchange(call, timeout), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response
            if isinstance(step, Send):
                outcome = self._try(request_of(self._http, call, step), stream)
            else:
                time.sleep(step.seconds)
                outcome = None

    def _try(self, request: httpx.Request, stream: bool) -> Outcome:
        """Return the response to one request, or the error of the transport."""
        try:
            response = self._http.send(request, stream=stream)
            if not response.is_success:
                response.read()  # errors are read whole, even if the call streams
        except httpx.TransportError as error:
            return error
        return response


class AsyncClient(_Base):
    """A client for asyncio, with the methods of Client.

    url, api_key, timeout, retries: arguments of Client.
    http: further arguments of httpx.AsyncClient.
    """

    def __init__(
        self, url: str, api_key: str | None = None, *, timeout: float = 60.0, retries: int = 4, **http: Any
    ) -> None:
        super().__init__(api_key, RetryPolicy(timeout, retries))
        self._http = httpx.AsyncClient(base_url=url, headers=self._headers, **http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def translate(
        self, text: str, target: str, source: str = "auto", *, timeout: float | None = None, **options: Any
    ) -> Translation:
        """Return the translation of a text.

        text: text to translate.
        target: code of the language to translate into.
        source: code of the language of the text; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return await self._ask(calls.translate(text, target, source, options), timeout)

    async def translate_all(
        self,
        texts: Sequence[str],
        target: str,
        source: str = "auto",
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Translate texts in one request: all are accepted or none.

        texts: texts to translate.
        target: code of the language to translate into.
        source: code of the language of the texts; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return await self._ask(calls.translate_all(texts, target, source, options), timeout) if texts else []

    async def stream(
        self, text: str, target: str, source: str = "auto", *, timeout: float | None = None, **options: Any
    ) -> AsyncIterator[Partial | Translation]:
        """Yield beginnings of the translation, then the translation; closing the iterator early cancels it.

        text: text to translate.
        target: code of the language to translate into.
        source: code of the language of the text; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        call = calls.translate(text, target, source, {**options, "stream": True})
        response = await self._send(call, timeout, stream=True)
        try:
            reader = EventReader()
            async for chunk in response.aiter_bytes():
                for part in calls.parts(reader.feed(chunk)):
                    yield part
                    if isinstance(part, Translation):
                        return
        except httpx.TransportError as error:
            raise Unreachable(f"the stream broke: {error or type(error).__name__}") from error
        finally:
            await response.aclose()
        raise Unreachable(CUT)

    async def summarize(self, text: str, *, timeout: float | None = None, **options: Any) -> Summary:
        """Return the summary of a text; the timeout is in seconds."""
        return await self._ask(calls.summarize(text, options), timeout)

    async def summarize_all(
        self, texts: Sequence[str], *, timeout: float | None = None, **options: Any
    ) -> list[Summary]:
        """Summarize texts in one request: all are accepted or none.

        texts: texts to summarize.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return await self._ask(calls.summarize_all(texts, options), timeout) if texts else []

    async def score(
        self, text: str, source_text: str | None = None, *, timeout: float | None = None, **options: Any
    ) -> Score:
        """Return the probability of a text.

        text: text to score.
        source_text: source of the translation `text`; None: the text is scored without a source.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return await self._ask(calls.score(text, source_text, options), timeout)

    async def score_all(
        self,
        texts: Sequence[str],
        source_texts: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[Score]:
        """Score texts in one request: all are accepted or none.

        texts: texts to score.
        source_texts: source of each translation; None: the texts are scored without sources.
        timeout: seconds for the answer; None: timeout of the client.
        """
        return await self._ask(calls.score_all(texts, source_texts, options), timeout) if texts else []

    async def translate_file(
        self, path: Path | str, target: str, source: str = "auto", *, timeout: float | None = None, **how: Any
    ) -> bytes:
        """Return the translation of a document in the same format. Also raises OSError.

        path: file with the ending of its format.
        target: code of the language to translate into.
        source: code of the language of the document; "auto": detected by the server.
        timeout: seconds for the answer; None: timeout of the client.
        """
        file = Path(path)
        content = await asyncio.to_thread(file.read_bytes)
        where = await self._ask(calls.upload(file.name, content, target, source, how), timeout)
        return await self._ask(calls.download(where), timeout)

    async def detect(self, text: str, *, timeout: float | None = None) -> list[Detection]:
        """Return the likely languages of a text, most likely first."""
        return await self._ask(calls.detect(text), timeout)

    async def languages(self, *, timeout: float | None = None) -> list[Language]:
        return await self._ask(calls.languages(), timeout)

    async def models(self, *, timeout: float | None = None) -> list[Model]:
        return await self._ask(calls.models(), timeout)

    async def health(self, *, timeout: float | None = None) -> bool:
        """Return whether every model answers and the server is not stopping."""
        return await self._ask(calls.health(), timeout)

    async def _ask(self, call: ApiCall[T], timeout: float | None) -> T:
        return call.read(await self._send(call, timeout))

    async def _send(
        self, call: ApiCall[Any], timeout: float | None, *, stream: bool = False
    ) -> httpx.Response:
        """Return the response to a call, after retries. Raises the errors of the exchange."""
        steps, outcome = self._exchange(call, timeout), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                response: httpx.Response = done.value
                return response
            if isinstance(step, Send):
                outcome = await self._try(request_of(self._http, call, step), stream)
            else:
                await asyncio.sleep(step.seconds)
                outcome = None

    async def _try(self, request: httpx.Request, stream: bool) -> Outcome:
        """Return the response to one request, or the error of the transport."""
        try:
            response = await self._http.send(request, stream=stream)
            if not response.is_success:
                await response.aread()  # errors are read whole, even if the call streams
        except httpx.TransportError as error:
            return error
        return response
