"""HTTP/1.1 connections: limits for heads, chunks and trailers, and clients that have closed their half."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any, Final

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

HEAD_SECONDS: Final = 20.0  # time limit for the head of a request
# bytes of a read. The C library would map asyncio's 256 KiB again for each read, which takes 12 microseconds
READ_BYTES: Final = 1 << 16
MAX_HEAD_BYTES: Final = 1 << 16  # bytes of a head that comes in one read; h11 limits others to 16 KiB
MAX_HEADERS: Final = 100  # lines of a head, or of the trailers of a body in chunks
MAX_CHUNK_LINE: Final = 256  # bytes of the line before a chunk; h11 takes quadratic time for its extensions
FREE_CHUNKS: Final = 1_000  # number of chunks of a body without a least size
CHUNK_BYTES: Final = 64  # least mean size of the other chunks of a body: each chunk costs the same time
TINY_CHUNKS: Final = f"Too many chunks of fewer than {CHUNK_BYTES} bytes: send the body in larger ones."
LONG_HEAD: Final = f"The head may have {MAX_HEADERS} headers and {MAX_HEAD_BYTES} bytes: send fewer."
LONG_CHUNK_LINE: Final = f"The line before a chunk may have {MAX_CHUNK_LINE} bytes."
TWO_LENGTHS: Final = "A request with Content-Length and Transfer-Encoding is ambiguous: send one of them."
ODD_BYTES: Final = "The head contains control characters."
BLANK_LINE: Final = re.compile(rb"\n\r?\n")
# bytes that no line of a head may have: h11 would take quadratic time to refuse them after spaces
CONTROL: Final = re.compile(rb"[\0\v\f\x7f]|\r(?!\n)")
RESET_CHECK_SECONDS: Final = 0.05  # first pause between two checks of a half-closed connection
MAX_RESET_CHECK_SECONDS: Final = 1.0
OLD_CLIENT_SECONDS: Final = 2.0  # time to answer a half-closed client of HTTP/1.0, which may have left


class RefusedRequest(h11.RemoteProtocolError):
    """Bytes of a client that are refused with a message of ours."""


class LimitedBuffer(ReceiveBuffer):
    """Received bytes of a connection, from which no long list of lines is taken."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines of a whole head or of trailers, or None. Raises RefusedRequest."""
        blank = BLANK_LINE.search(self._data)
        end = blank.start() if blank else len(self._data)
        if end > MAX_HEAD_BYTES or self._data.count(b"\n", 0, end) > MAX_HEADERS:
            raise RefusedRequest(LONG_HEAD, error_status_hint=431)
        if blank and CONTROL.search(self._data, 0, end + 1):
            raise RefusedRequest(ODD_BYTES)
        return super().maybe_extract_lines()

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the line before a chunk, or None. Raises RefusedRequest."""
        if len(self._data) > MAX_CHUNK_LINE and self._data.find(b"\r\n", 0, MAX_CHUNK_LINE) < 0:
            raise RefusedRequest(LONG_CHUNK_LINE)
        return super().maybe_extract_next_line()


class Grammar(h11.Connection):
    """A connection that refuses ambiguous requests, long heads and a body in many tiny chunks, since each
    line and each chunk takes time of the event loop."""

    refusal = (400, "Invalid HTTP request received.")  # status and message of the last error
    _lacking = 0  # bytes by which this body is smaller than CHUNK_BYTES for each chunk

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self._receive_buffer = LimitedBuffer()

    def next_event(self) -> Any:
        """Return the next event. Raises h11.RemoteProtocolError on invalid HTTP, two lengths of a body, and
        too many headers or tiny chunks; `refusal` is then the answer to the client."""
        try:
            event = super().next_event()
            self._check(event)
        except RefusedRequest as error:
            self.refusal = error.error_status_hint, str(error)
            raise
        return event

    def _check(self, event: Any) -> None:
        """Raise RefusedRequest on two lengths of a body, and on too many tiny chunks."""
        if isinstance(event, h11.Request):
            self._lacking = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise RefusedRequest(TWO_LENGTHS)
        elif isinstance(event, h11.Data):
            # chunk_start is true only for the first event of a chunk
            self._lacking = max(0, self._lacking + CHUNK_BYTES * event.chunk_start - len(event.data))
            if self._lacking > FREE_CHUNKS * CHUNK_BYTES:
                raise RefusedRequest(TINY_CHUNKS)


class HttpProtocol(H11Protocol):
    """Uvicorn's protocol in Python, which limits the length of a head; its other protocol does not. It closes
    a connection whose head is not complete in time, and answers a client that has closed its half."""

    conn: Grammar
    _head_timer: asyncio.TimerHandle | None = None
    _half_closed = False  # whether the client sends nothing more, but may read

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first head."""
        self.conn = Grammar()
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # a transport without TLS
            transport.max_size = READ_BYTES
        self._start_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, or close the connection if an answer has begun."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # its answer can't be sent any more
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is being sent, or has been sent
            return
        status, message = self.conn.refusal
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
        head = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (head, h11.Data(data=message.encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """Return False: requests that offer another protocol are answered in this one."""
        return False

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; the time limit runs while no request is being answered."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio reads the value
        """Keep a connection on which a whole request waits for its answer. TLS has no half-closed state."""
        cycle = self.cycle
        waiting = cycle is not None and not cycle.response_complete and not cycle.more_body
        if not waiting or self.transport.get_extra_info("sslcontext"):
            return False
        if not self._half_closed:
            self._half_closed = True
            self._provoke_reset()
        return True

    def _provoke_reset(self) -> None:
        """Find out whether a client has left: the system of such a client answers any bytes by a reset."""
        if self.scope["http_version"] != "1.1":  # a client of HTTP/1.0 knows no preliminary answers
            self.loop.call_later(OLD_CLIENT_SECONDS, self._close_unanswered)
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            processing = h11.InformationalResponse(status_code=102, headers=[], reason=b"Processing")
            self.transport.write(self.conn.send(processing) or b"")
        self.loop.call_later(RESET_CHECK_SECONDS, self._check_reset, RESET_CHECK_SECONDS)

    def _check_reset(self, pause: float) -> None:
        """Close the connection after a reset, which cancels the request; otherwise check again later."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        pause = min(2 * pause, MAX_RESET_CHECK_SECONDS)
        self.loop.call_later(pause, self._check_reset, pause)

    def _close_unanswered(self) -> None:
        if not self.cycle.response_started:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Go on with the next request; a half-closed connection ends after its last one."""
        super().on_response_complete()
        if self._half_closed and self.cycle.response_complete:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        """Start the time limit of the next head. Parts of the head don't extend it."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_late)

    def _close_late(self) -> None:
        """Close a connection whose head is not complete in time."""
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        """End the time limit, because a head is complete or the connection is closed."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
