"""Attacks in bytes of HTTP/1.1 and HTTP/2, which no client library would send."""

from collections.abc import Iterable

PLAIN_BYTES = 60_000  # of one header; a head may have 64 KiB
CONTENT = b'{"q":"Das ist gut.","source":"de","target":"en","stream":true}'
MESSAGE = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
JSON = b"Content-Type: application/json"


def head(line: bytes, *fields: bytes, content: bytes = b"") -> bytes:
    """Return a request of HTTP/1.1.

    line: method and target.
    fields: lines of the head, without Host.
    content: body.
    """
    length = [b"Content-Length: %d" % len(content)] if content else []
    return b"\r\n".join([line + b" HTTP/1.1", b"Host: localhost", *length, *fields, b"", content])


def long(name: bytes, piece: bytes) -> bytes:
    """Return the line of a header that repeats a piece."""
    return name + b": " + piece * (PLAIN_BYTES // len(piece))


WEBSOCKET = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
EVENTS = (JSON, b"Accept: text/event-stream")
HEADS: dict[str, bytes] = {
    "extensions of a WebSocket": head(
        b"GET /translate", *WEBSOCKET, long(b"Sec-WebSocket-Extensions", b"a; b=c, ")
    ),
    "protocols of a WebSocket": head(b"GET /mcp", *WEBSOCKET, long(b"Sec-WebSocket-Protocol", b"a,")),
    "a key of a WebSocket": head(b"GET /", *WEBSOCKET, long(b"Sec-WebSocket-Key", b"=")),
    "offers of other protocols": head(b"GET /health", b"Connection: Upgrade", long(b"Upgrade", b"h2c, ")),
    "a place in a stream of events": head(b"GET /mcp", *EVENTS, long(b"Last-Event-ID", b"1-")),
    "places in an answer of events": head(
        b"POST /translate", *EVENTS, long(b"Last-Event-ID", b"1-"), content=CONTENT
    ),
    "kinds of an agent's answer": head(b"POST /mcp", JSON, long(b"Accept", b","), content=MESSAGE),
    "kinds of a stream of events": head(
        b"POST /v1/chat/completions", JSON, long(b"Accept", b"*/*;q=1,"), content=b'{"stream":true}'
    ),
    "a text in a stream's address": head(
        b"GET /language/translate/v2?target=en&q=" + b"%61" * (PLAIN_BYTES // 3)
    ),
    "ranges of a file": head(b"GET /download_file/a", long(b"Range", b"0-0,")),
    "cookies": head(b"GET /", long(b"Cookie", b";")),
    "states of a trace": head(
        b"GET /health",
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        long(b"tracestate", b"a=b,"),
    ),
    "headers of a preflight": head(
        b"OPTIONS /translate", b"Origin: null", long(b"Access-Control-Request-Headers", b"a,")
    ),
    "requests in one another's packet": head(b"GET /health") * 500,
}


# the types of HTTP/2's frames (RFC 9113, 6), and their flags
DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
CANCEL = (8).to_bytes(4)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + bytes([SETTINGS]) + bytes(5)
INDEXED = b"\x40"  # a field that later fields may refer to
LATEST = b"\xbe"  # a reference to the latest one
EMPTY_MESSAGE = bytes(5)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Return a frame of HTTP/2.

    kind: type of the frame.
    flags: flags of the frame.
    stream: number of the call; 0: the connection.
    content: payload.
    """
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


def _text(text: bytes) -> bytes:
    """Return a text with its length (RFC 7541, 5)."""
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    coded, length = bytearray([127]), length - 127
    while length > 127:
        coded.append(length & 127 | 128)
        length >>= 7
    return bytes([*coded, length]) + text


def field(name: bytes, value: bytes, form: bytes = b"\0") -> bytes:
    """Return a field of a call's head as HPACK."""
    return form + _text(name) + _text(value)


def calls(more: bytes = b"", count: int = 100, flags: int = END_HEADERS) -> Iterable[bytes]:
    """Yield the heads of calls of a method without an argument, with further metadata."""
    path = b"/inference.GRPCInferenceService/ServerLive"
    named = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"localhost"}
    own = named | {b"te": b"trailers", b"content-type": b"application/grpc"}
    fields = b"".join(field(*one) for one in own.items()) + more
    return (frame(HEADERS, flags, number, fields) for number in range(1, 2 * count, 2))


def _one(more: bytes = b"", flags: int = END_HEADERS) -> bytes:
    return b"".join(calls(more, 1, flags))


FLOODS: dict[str, bytes] = {
    "metadata without end": _one(flags=0) + frame(CONTINUATION, 0, 1, field(b"a", b"") * 4_000) * 80,
    "metadata of many names": b"".join(
        frames for frames in calls(b"".join(field(b"k%d" % n, b"") for n in range(400)))
    ),
    "metadata that repeats other metadata": _one(field(b"x-request-id", b"a" * 3_900, INDEXED))
    + b"".join(list(calls(LATEST * 16_000))[1:]),
    "calls that are cancelled": b"".join(
        call + frame(RESET, 0, 2 * number + 1, CANCEL) for number, call in enumerate(calls(count=5_000))
    ),
    "messages without end": _one() + frame(DATA, 0, 1, EMPTY_MESSAGE) * 50_000,
    "empty parts of a message": _one() + frame(DATA, 0, 1) * 50_000,
    "pings": frame(PING, 0, 0, bytes(8)) * 20_000,
    "settings": frame(SETTINGS, 0, 0) * 50_000,
}
