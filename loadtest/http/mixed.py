"""Requests of all kinds, mixed at random: the traffic of `loadtest.http.soak`.

Each kind takes its own way through a server: texts of any length, pages, forms, files, documents, streams,
summaries, the contracts of DeepL, KServe and OpenAI, plug-ins, gRPC, refusals, and clients that leave.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

import aiohttp

from loadtest.texts import document

DE_EN: Final = {"source": "de", "target": "en"}
LONG: Final = 30  # sentences of a text that a worker prepares
LEAVES_SECONDS: Final = 0.02  # until a client disconnects
POLL_SECONDS: Final = 0.1
READY: Final = 200
# sends the text, or one made of it; returns the status
Send = Callable[[aiohttp.ClientSession, str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind of requests.

    name: words for tables.
    share: weight among all kinds.
    send: function that sends a request and returns the status of the answer.
    wanted: status of the right answer.
    """

    name: str
    share: float
    send: Send
    wanted: int = 200


@dataclass(frozen=True, slots=True)
class MixedAnswer:
    """The status of an answer, 0 without one, and its time on the clock of the event loop, in seconds."""

    kind: RequestKind
    status: int
    done: float
    seconds: float


@dataclass(slots=True)
class Mixture:
    """Sends requests of random kinds, as an `Ask` of the open and closed loops.

    kinds: kinds with their shares.
    chance: random numbers.
    answers: all answers so far, in the order of their ends.
    """

    kinds: Sequence[RequestKind]
    chance: random.Random
    answers: list[MixedAnswer] = field(default_factory=list)

    async def __call__(self, client: aiohttp.ClientSession, text: str) -> tuple[int, None]:
        """Send a request; return 200 if the answer has the wanted status, otherwise its status."""
        (kind,) = self.chance.choices(self.kinds, [kind.share for kind in self.kinds])
        loop = asyncio.get_running_loop()
        began, status = loop.time(), 0
        with suppress(aiohttp.ClientError, TimeoutError):
            status = await kind.send(client, text)
        self.answers.append(MixedAnswer(kind, status, loop.time(), loop.time() - began))
        return (READY if status == kind.wanted else status), None


def kinds_of(
    chance: random.Random,
    translator: str,
    summarizer: str | None,
    channel: Any | None,
    *,
    plugins: bool = False,
) -> list[RequestKind]:
    """Return all kinds of requests that a server answers.

    chance: random numbers for the texts.
    translator: name of a model from German to English.
    summarizer: name of a model that summarizes, or None.
    channel: open gRPC channel, or None.
    plugins: whether the server has the plug-ins `ollama`, `immersive` and `mcp`.
    """
    kinds = [*_kinds_of_texts(chance), *_kinds_of_files(), *_kinds_of_contracts(translator)]
    kinds += _kinds_of_plugins() if plugins else []
    if summarizer:
        values = {"model": summarizer, "truncate": True}
        kinds.append(RequestKind("summary", 2, _post("/summarize", lambda text: values | {"q": text})))
    if channel is not None:
        kinds.append(RequestKind("gRPC", 3, _grpc(channel, translator)))
    return kinds


def _kinds_of_texts(chance: random.Random) -> list[RequestKind]:
    """Return the kinds of texts, pages, forms and files."""

    def page(text: str) -> str:
        body = "".join(f"<p>{text} <b>{part}</b></p>" for part in document(chance, LONG // 2).split(". "))
        return f"<html><body><h1>{text}</h1>{body}</body></html>"

    def translate(**values: Any) -> Send:
        return _post("/translate", lambda text: DE_EN | {"q": text} | values)

    long = _post("/translate", lambda _: DE_EN | {"q": document(chance, LONG)})
    html = _post("/translate", lambda text: DE_EN | {"q": page(text), "format": "html"})
    large = {"more": "a" * 20_480}
    return [
        RequestKind("sentence", 10, translate()),
        RequestKind("auto", 4, translate(source="auto", alternatives=2)),
        RequestKind("batch", 1, _post("/translate", lambda text: DE_EN | {"q": [text] * 4})),
        RequestKind("long text", 1, long),
        RequestKind("page", 1, html),
        RequestKind("stream", 3, translate(stream=True)),
        RequestKind("form", 2, _form("/translate", lambda text: DE_EN | {"q": text})),
        RequestKind("form of 20 KiB", 1, _form("/translate", lambda text: DE_EN | large | {"q": text})),
        RequestKind("language", 2, _post("/detect", lambda text: {"q": text})),
        RequestKind("several targets", 1, translate(target=["en"])),
        RequestKind("wrapped lines", 1, translate(newlines="auto")),
        RequestKind("web page file", 1, _file("a.html", page)),
        RequestKind("refused language", 1, translate(target="zz"), 400),
        RequestKind("refused body", 1, translate(q=1), 400),
        RequestKind("client leaves", 2, _leaving(translate())),
        RequestKind("client leaves a long text", 0.5, _leaving(long)),
    ]


def _kinds_of_files() -> list[RequestKind]:
    """Return the kinds of files with small contents."""

    def notebook(text: str) -> str:
        return json.dumps({"cells": [{"cell_type": "markdown", "source": [f"# {text}\n", text]}]})

    def cues(text: str) -> str:
        return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n\n2\n00:00:02,000 --> 00:00:03,000\n{text}\n"

    return [
        RequestKind("text file", 1, _file("a.txt", str)),
        RequestKind("Markdown file", 1, _file("a.md", lambda text: f"# {text}\n\n- *{text}*\n")),
        RequestKind("notebook file", 0.5, _file("a.ipynb", notebook)),
        RequestKind("subtitles with their source", 0.5, _file("a.srt", cues, bilingual="above")),
        RequestKind("column of a table", 0.5, _file("a.csv", _table, columns="text")),
        RequestKind(
            "strings of a program", 0.5, _file("a.json", lambda text: json.dumps({"a": {"b": text}}))
        ),
    ]


def _table(text: str) -> str:
    quoted = text.replace('"', '""')
    return f'id,text\n1,"{quoted}"\n2,"{quoted}"\n'


def _kinds_of_contracts(model: str) -> list[RequestKind]:
    """Return the kinds of other contracts.

    model: name of a model from German to English.
    """
    path, chats = f"/v2/models/{model}", "/v1/chat/completions"

    def chat(**values: Any) -> Send:
        return _post(chats, lambda text: _chat(model, text) | values)

    return [
        RequestKind(
            "DeepL", 3, _post("/v2/translate", lambda text: {"text": [text], "target_lang": "EN-GB"})
        ),
        RequestKind("DeepL document", 1, _document),
        RequestKind("KServe", 2, _post(f"{path}/infer", _tensors)),
        RequestKind("KServe stream", 2, _post(f"{path}/generate_stream", lambda text: {"text_input": text})),
        RequestKind("OpenAI", 2, chat()),
        RequestKind("OpenAI stream", 2, chat(stream=True)),
        RequestKind("OpenAI response", 1, _post("/v1/responses", lambda t: {"model": model, "input": t})),
        RequestKind("metrics", 1, _get("/metrics")),
    ]


def _kinds_of_plugins() -> list[RequestKind]:
    """Return the kinds of the plug-ins for chats, reading and agents."""

    def prompt(text: str) -> dict[str, Any]:
        return {"model": "convoy", "system": "Translate from German to English", "prompt": text}

    def texts(text: str) -> dict[str, Any]:
        return {"source_lang": "de", "target_lang": "en", "text_list": [text] * 2}

    def call(text: str) -> dict[str, Any]:
        tool = {"name": "translate_text", "arguments": DE_EN | {"text": text}}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}

    accepts = {"Accept": "application/json, text/event-stream"}
    return [
        RequestKind("Ollama", 1, _post("/api/generate", prompt)),
        RequestKind("Immersive Translate", 1, _post("/imme", texts)),
        RequestKind("tool of an agent", 1, _post("/mcp", call, accepts)),
    ]


@asynccontextmanager
async def channel_to(address: str | None) -> Any:
    """Open a gRPC channel to an address; yield None without an address or without `grpc`."""
    if address is None or find_spec("grpc") is None:
        yield None
        return
    import grpc.aio

    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


def _post(path: str, make: Callable[[str], dict[str, Any]], headers: dict[str, str] | None = None) -> Send:
    async def send(client: aiohttp.ClientSession, text: str) -> int:
        async with client.post(path, json=make(text), headers=headers) as answer:
            await answer.read()
            return answer.status

    return send


def _get(path: str) -> Send:
    async def send(client: aiohttp.ClientSession, _: str) -> int:
        async with client.get(path) as answer:
            await answer.read()
            return answer.status

    return send


def _form(path: str, make: Callable[[str], dict[str, str]]) -> Send:
    async def send(client: aiohttp.ClientSession, text: str) -> int:
        form = aiohttp.FormData(make(text), default_to_multipart=True)
        async with client.post(path, data=form) as answer:
            await answer.read()
            return answer.status

    return send


def _upload(fields: dict[str, str], name: str, content: str) -> aiohttp.FormData:
    form = aiohttp.FormData(fields)
    form.add_field("file", content.encode(), filename=name)
    return form


def _file(name: str, make: Callable[[str], str], **fields: str) -> Send:
    """Return a function that has a file translated, and downloads it."""

    async def send(client: aiohttp.ClientSession, text: str) -> int:
        async with client.post("/translate_file", data=_upload(DE_EN | fields, name, make(text))) as answer:
            if answer.status != READY:
                return answer.status
            address = (await answer.json())["translatedFileUrl"]
        async with client.get(address) as answer:
            await answer.read()
            return answer.status

    return send


async def _document(client: aiohttp.ClientSession, text: str) -> int:
    """Have a document translated as DeepL's clients do, and download it."""
    upload = _upload({"target_lang": "EN-GB"}, "a.txt", f"{text}\n" * 5)
    async with client.post("/v2/document", data=upload) as answer:
        if answer.status != READY:
            return answer.status
        values = await answer.json()
    path, key = f"/v2/document/{values['document_id']}", {"document_key": values["document_key"]}
    status = "queued"
    while status in ("queued", "translating"):
        await asyncio.sleep(POLL_SECONDS)
        async with client.post(path, json=key) as answer:
            if answer.status != READY:
                return answer.status
            status = (await answer.json())["status"]
    async with client.post(f"{path}/result", json=key) as answer:
        await answer.read()
        return answer.status


def _leaving(send: Send) -> Send:
    """Return a function that disconnects before the answer, which counts as the right answer."""

    async def leave(client: aiohttp.ClientSession, text: str) -> int:
        try:
            async with asyncio.timeout(LEAVES_SECONDS):
                return await send(client, text)
        except TimeoutError:
            return READY

    return leave


def _tensors(text: str) -> dict[str, Any]:
    return {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [text]}]}


def _chat(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def _grpc(channel: Any, model: str) -> Send:
    import grpc

    from server.grpc.messages import SERVICE, make_pool, message_classes

    messages = message_classes(make_pool())
    call = channel.unary_unary(
        f"/inference.{SERVICE}/ModelInfer",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=messages["ModelInferResponse"].FromString,
    )

    async def send(_: aiohttp.ClientSession, text: str) -> int:
        request = messages["ModelInferRequest"](model_name=model)
        tensor = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(text.encode())
        try:
            await call(request)
        except grpc.aio.AioRpcError as error:
            # a client's faults are 4xx, the server's 5xx
            return 429 if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else 500
        return READY

    return send
