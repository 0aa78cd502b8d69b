"""Generated heads and bodies: pieces that parsers look for, every kind with every kind, up to the limits.

One running server answers all of them. The cost of a request is the processor time of the server's threads:
it must stay below a bound, and must not grow faster than the request. The wall clock plays no part.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.support.served import server
from tests.support.sockets import exchange
from tests.support.thorough import THOROUGH
from tests.support.timing import slowness, thrice

MOST_SECONDS = 0.25  # of a request, on a processor as fast as a Zen 4
NOTICEABLE_SECONDS = 0.03 if THOROUGH else 0.06  # less is not compared with a shorter request
MOST_GROWTH = 24.0  # times as long for eight times the length: 8 is linear, 64 quadratic
HEAD_BYTES = 62_000
BODY_BYTES = 1_000_000
HEADS, BODIES = (6_000, 2_000) if THOROUGH else (150, 40)  # numbers of generated requests
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"

HEADERS = (
    *("Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "TE"),
    *("Cookie", "Authorization", "X-API-Key", "Origin", "X-Request-ID", "X-Request-Timeout", "traceparent"),
    *("Accept", "Accept-Language", "If-None-Match", "If-Modified-Since", "Range", "X-Forwarded-For", "a"),
)
HEAD_PIECES = (
    *(b" ", b"\t", b",", b";", b'"', b"=", b"a", b"a,", b"a;", b'a="', b"\\", b":", b"-", b"+", b"*"),
    *(b"%", b"%61", b"%0A", b"%2F", b"&", b"a=b&", b"a&", b"api_key=", b"/", b"//", b"..", b"/a", b"?"),
    *(b"[", b"]", b"{", b"0", b"9", b"1-", b"1-2,", b"bytes=", b"q=0.1,", b"en-", b'W/"a",', b"1.1.1.1,"),
    *(b"chunked", b"Basic ", b"\xe9", b"\0", b"\v", b"\r", b"\n", b"\n ", b"\r\n\t", b"\r\na:", b"\r\n0:b"),
)
FORM_PIECES = (
    *(
        b"&",
        b"=",
        b"a=b&",
        b"q=",
        b"%",
        b"%6",
        b"%61",
        b"%ff",
        b"+",
        b";",
        b"a",
        b"\xff",
        b"\xc3",
        b"\0",
        b" ",
    ),
    *(b"\r\n", b"\r\n\r\n", b"--", b"--x", b"\r\n--", b"\r\n--x", b"\r\n--x\r\n", b"\r\n--x--"),
    *(
        b"Content-Disposition: form-data; name=q",
        b"Content-Type: text/plain",
        b"; name=",
        b'; a="',
        b"\\",
        b'"',
    ),
    *(b"filename*=utf-8''%61", b"filename=a", b"a:b\r\n", b":", b"charset=punycode"),
)
JSON_PIECES = (
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b'"a":',
        b'"a",',
        b"1,",
        b",",
        b":",
        b"1",
        b"-",
        b".",
        b"e9",
        b" ",
        b"\n",
    ),
    *(
        b"\\",
        b"\\u0041",
        b"\\ud800",
        b"\\n",
        b"null,",
        b"true,",
        b'{"a":',
        b"[],",
        b'"q":"a",',
        b"\xc3\xa9",
        b"\xff",
    ),
)


class Made(NamedTuple):
    """A generated request: its name, and a function that makes it with a number of repeated bytes."""

    name: str
    make: Callable[[int], bytes]
    size: int


def _repeated(pieces: tuple[bytes, bytes, bytes], size: int) -> bytes:
    """Repeat two pieces up to a size, with another piece at the end, where it makes a match fail."""
    first, second, last = pieces
    pump = first + second
    return pump * (size // len(pump)) + last


def _head(line: bytes, headers: bytes, body: bytes = b"") -> bytes:
    return line + b" HTTP/1.1\r\n" + headers + b"\r\n" + body


HOST = b"Host: localhost\r\n"


def _in_path(text: bytes) -> bytes:
    return _head(b"PATCH /v2/" + text, HOST)


def _in_short_path(text: bytes) -> bytes:
    return _head(b"PATCH /v2/" + text[:4_000], HOST)


def _in_query(text: bytes) -> bytes:
    return _head(b"GET /translate?" + text, HOST)


def _in_method(text: bytes) -> bytes:
    return _head(text + b" /", HOST)


def _in_trailers(text: bytes) -> bytes:
    return _head(b"POST /translate", HOST + b"Transfer-Encoding: chunked\r\n", b"0\r\n" + text + b"\r\n\r\n")


def _in_chunk_line(text: bytes) -> bytes:
    return _head(
        b"POST /translate", HOST + b"Transfer-Encoding: chunked\r\n", b"5;" + text + b"\r\nabcde\r\n"
    )


def _in_header(name: str) -> Callable[[bytes], bytes]:
    lines = {"GET": b"GET /languages", "POST": b"POST /translate"}
    line = lines["POST" if name.startswith(("Content", "Transfer", "Expect")) else "GET"]
    start = {"Content-Type": b"multipart/form-data; ", "Authorization": b"Basic "}.get(name, b"")

    def make(text: bytes) -> bytes:
        own = b"" if name == "Host" else HOST
        return _head(line, own + name.encode() + b": " + start + text + b"\r\n")

    return make


def _in_body(path: str, kind: str, before: bytes = b"", after: bytes = b"") -> Callable[[bytes], bytes]:
    def make(text: bytes) -> bytes:
        body = before + text + after
        return _head(
            f"POST {path}".encode(),
            HOST + f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n".encode(),
            body,
        )

    return make


PART = b"--x\r\nContent-Disposition: form-data; name=q"
HEAD_PLACES: dict[str, Callable[[bytes], bytes]] = {
    "path": _in_path,
    "a path within the limit": _in_short_path,
    "query": _in_query,
    "method": _in_method,
    "trailers": _in_trailers,
    "the line of a chunk": _in_chunk_line,
    **{f"header {name}": _in_header(name) for name in HEADERS},
}
FORM_PLACES = {
    "form": _in_body("/translate", FORM),
    "a text of a form": _in_body("/v2/translate", FORM, b"text="),
    "parts": _in_body("/translate", MULTIPART),
    "the head of a part": _in_body("/translate", MULTIPART, PART, b"\r\n\r\n1\r\n--x--"),
    "a part": _in_body("/translate", MULTIPART, PART + b"\r\n\r\n", b"\r\n--x--"),
    "a file": _in_body("/translate_file", MULTIPART, PART + b"; filename=a.txt\r\n\r\n", b"\r\n--x--"),
}
JSON_PLACES = {
    "JSON": _in_body("/translate", JSON),
    "a value": _in_body("/translate", JSON, b'{"q":', b"}"),
    "a text": _in_body("/v2/translate", JSON, b'{"text":["', b'"]}'),
    "fields": _in_body("/translate", JSON, b'{"q":"a",', b"}"),
    "a message": _in_body("/v1/chat/completions", JSON, b'{"messages":[', b"]}"),
    "a tensor": _in_body("/v2/models/toy-de-en/infer", JSON, b'{"inputs":[', b"]}"),
    "an agent's message": _in_body("/mcp", JSON, b'{"jsonrpc":"2.0","id":1,"method":', b"}"),
    "a tool's texts": _in_body("/imme", JSON, b'{"text_list":[', b"]}"),
}


def generated(places: dict[str, Any], pieces: tuple[bytes, ...], size: int) -> Iterator[Made]:
    """Yield requests: each place in turn, a third of them with one piece, the others with a random pair."""
    random, kinds = Random(11), list(product(pieces, repeat=2))
    names = list(places)
    for number in range(HEADS if size == HEAD_BYTES else BODIES):
        name = names[number % len(names)]
        first, second = (pieces[number % len(pieces)], b"") if number % 3 == 0 else random.choice(kinds)
        used = first, second, random.choice((b"", b"\0", *pieces))

        def make(size: int, used=used, place=places[name]) -> bytes:
            return place(_repeated(used, size))

        yield Made(f"{name}: {used!r}", make, size)


@pytest.fixture(scope="module")
def port():
    with server(plugins="deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,ollama") as (client, _, _):
        yield client.base_url.port


def cost(port: int, data: bytes) -> tuple[float, bytes]:
    """Return the processor seconds of the other threads until a request is answered, and the answer."""
    began, own = time.process_time(), time.thread_time()
    answer = exchange(port, data, half_close=True).removeprefix(b"HTTP/1.1 102 Processing\r\n\r\n")
    return time.process_time() - began - (time.thread_time() - own), answer


@pytest.mark.parametrize(
    ("places", "pieces", "size"),
    [
        (HEAD_PLACES, HEAD_PIECES, HEAD_BYTES),
        (FORM_PLACES, FORM_PIECES, BODY_BYTES),
        (JSON_PLACES, JSON_PIECES, BODY_BYTES),
    ],
    ids=["heads", "forms", "JSON"],
)
@pytest.mark.no_cover
def test_no_generated_request_is_costly_or_an_internal_error(port, places, pieces, size):
    faults, longest = [], (0.0, "")
    for made in generated(places, pieces, size):
        data = made.make(made.size)
        seconds, answer = cost(port, data)
        status = answer[9:12]
        if status == b"500":
            faults.append(f"{made.name}: {answer[:80]!r}")
        if seconds > NOTICEABLE_SECONDS:
            faults += filter(None, [slow(port, made)])
        longest = max(longest, (seconds, made.name))
    print(f"the longest took {longest[0]:.3f} s: {longest[1]}")
    assert not faults, json.dumps(faults, indent=1)


def slow(port: int, made: Made) -> str:
    """Return why a request is too slow, or "". The shortest of three measurements counts."""

    def attempt() -> str:
        eighth = min(cost(port, made.make(made.size // 8))[0] for _ in range(2))
        seconds = min(cost(port, made.make(made.size))[0] for _ in range(2))
        if seconds > MOST_SECONDS * slowness():
            return f"{made.name}: {seconds:.2f} s"
        if seconds > NOTICEABLE_SECONDS and seconds > MOST_GROWTH * eighth:
            return f"{made.name}: {seconds:.2f} s, an eighth takes {eighth:.3f} s"
        return ""

    try:
        thrice(attempt)
    except AssertionError as error:
        return str(error)
    return ""


def test_quadratic_time_is_detected(port, monkeypatch):
    spaces = Made("spaces", lambda size: _in_header("a")(b" " * size + b"\0"), 10_000)
    assert not slow(port, spaces)
    monkeypatch.setattr("server.http.protocol.CONTROL", re.compile(rb"(?!)"))
    assert slow(port, spaces)
