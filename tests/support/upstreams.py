"""A language model of a few words behind OpenAI's protocol, with faults on request."""

import asyncio
import gzip
import json
import re
from collections import deque
from contextlib import contextmanager
from pathlib import Path

from tests.support.model_servers import running

GERMAN = """
Das Die Der ist ein eine Haus Hund Katze alt Es kostet Siehe heute und groß schläft Tür Wir haben Bahnhof ich
sehe den
"""
ENGLISH = """
This The The is a a house dog cat old It costs See today and big sleeps door We have terminus I see the
"""
WORDS = dict(zip(GERMAN.split(), ENGLISH.split(), strict=True))
CHAT = "Sure! Here is the translation:\n\n"


def translate(text):
    """Translate word by word; other words, numbers and tags stay."""
    return re.sub(r"[^\W\d_]+", lambda match: WORDS.get(match[0], match[0]), text)


class Model:
    """An ASGI application: the model, and the faults of its next answers.

    faults: faults of the next answers, in order; keys of `SPOILED`, statuses and others.
    always: fault of every answer, "" for none.
    asked: bodies of all requests.
    keys: headers Authorization of all requests.
    """

    def __init__(self, *faults, always=""):
        self.faults, self.always = deque(faults), always
        self.asked, self.keys, self.address = [], [], ""
        self.silent = asyncio.Event()

    async def __call__(self, scope, receive, send):
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        request = json.loads(body + message.get("body", b""))
        self.asked.append(request)
        self.keys.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        await _Answer(send, request, self.text_of(request), self.fault_of(request)).write(self.silent)

    def fault_of(self, request):
        """Return the fault of the answer to a request."""
        return self.faults.popleft() if self.faults else self.always

    def text_of(self, request):
        """Translate the text of a request; terms of a glossary have precedence."""
        terms = re.findall(r"([^\s:;]+) = ([^;.]+)", request["messages"][0]["content"])
        text = request["messages"][-1]["content"].rpartition("\n\n")[2]
        for source, target in terms:
            text = text.replace(source, target)
        return translate(text)


class _Answer:
    """One answer with a fault."""

    def __init__(self, send, request, text, fault):
        self.send, self.streams = send, request.get("stream", False)
        self.text, self.fault = SPOILED[fault](text) if fault in SPOILED else text, fault

    async def write(self, silent):
        if self.fault[:1].isdecimal():  # a status, and the seconds of Retry-After
            status, _, wait = self.fault.partition(" ")
            headers = [(b"retry-after", wait.encode())] if wait else []
            await self.start(int(status), [*headers, (b"location", b"/elsewhere")])
            await self.part(b"{}", more=False)
        elif self.fault == "silence":
            await silent.wait()
        elif self.fault == "garbage":
            await self.start(200)
            await self.part(b'{"choices": [{"message": ]', more=False)
        elif self.fault in HOSTILE:
            headers, parts = HOSTILE[self.fault](self.text)
            await self.start(200, headers)
            for part in parts:
                await self.part(part)
            await self.part(b"", more=False)
        elif self.streams:
            await self.stream()
        else:
            await self.start(200)
            await self.part(json.dumps(completion(self.text)).encode(), more=False)

    async def stream(self):
        await self.start(200, [(b"content-type", b"text/event-stream")])
        pieces = re.findall(r"\S+\s*", self.text)
        for number, piece in enumerate(pieces):
            if self.fault == "cut" and number == len(pieces) // 2:
                raise ConnectionError("cut on purpose")
            await self.event({"delta": {"content": piece}, "finish_reason": None})
        await self.event({"delta": {}, "finish_reason": "stop"})
        await self.part(b"data: [DONE]\n\n", more=False)

    async def event(self, choice):
        await self.part(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    async def start(self, status, headers=()):
        await self.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def part(self, body, more=True):
        await self.send({"type": "http.response.body", "body": body, "more_body": more})


# functions that spoil an answer, by fault
SPOILED = {
    "chat": lambda text: CHAT + text,
    "lost": lambda text: re.sub(r" ?<x\d+/>", "", text, count=1),
    "double": lambda text: re.sub(r"(<x\d+/>)", r"\1 \1", text, count=1),
    "number": lambda text: re.sub(r"\d+", "77", text, count=1),
    "long": lambda text: f"{text} " * 30,
    "empty": lambda text: "",
    "german": lambda text: "Das ist leider nicht übersetzt worden, weil ich es nicht wollte.",
}


EVENTS = (b"content-type", b"text/event-stream")
# functions that return headers and parts of an unusual response, by fault
HOSTILE = {
    "unasked events": lambda text: ([EVENTS], [b": ping\n\n", _event(text), b"data: [DONE]\n\n"]),
    "endless events": lambda text: ([EVENTS], [_event(text, None), b"data: [DONE]\n\n"]),
    "thoughts": lambda text: ([], [json.dumps(completion(None)).encode()]),
    "late error": lambda text: ([EVENTS], [b'data: {"error": {"message": "out of memory"}}\n\n']),
    "page": lambda text: ([(b"content-type", b"text/html")], [b"<html><b>Welcome</b></html>"]),
    "bytes": lambda text: ([EVENTS], [b"x"] * 3_000),
    "swollen": lambda text: ([(b"content-encoding", b"gzip")], [gzip.compress(bytes(1_000_000))]),
    "halves": lambda text: ([], [json.dumps(completion(f"ho\ud800use {text}")).encode()]),
    "half events": lambda text: ([EVENTS], [_event(f"ho\ud800use {text}"), b"data: [DONE]\n\n"]),
    "negative": lambda text: ([], [json.dumps(completion(text, (-(10**9), -5))).encode()]),
    "endless": lambda text: ([], [json.dumps(completion(text, (10**400, 10**400))).encode()]),
}


def _event(text, finish="stop"):
    choice = {"delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def completion(text, tokens=(10, 5)):
    usage = dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True))
    message = {"role": "assistant", "content": text}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@contextmanager
def serving(model):
    """Serve a model on a free port; silent answers end with the context."""
    with running(model):
        try:
            yield model
        finally:
            model.silent.set()


def settings_file(folder: Path, url, name="big", **entries):
    """Write the settings of an upstream of German and English; return the file."""
    values = {"url": url, "model": "m", "languages": ["de", "en"], "timeout": 60} | entries
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path = folder / "upstream.toml"
    path.write_text("\n".join([f"[{name}]", *lines, ""]), "utf-8")
    return path
