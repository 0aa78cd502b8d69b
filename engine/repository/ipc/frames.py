"""A connection that exchanges lists of messages, as frames of a length and msgpack."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

logger = logging.getLogger(__name__)

HEAD_BYTES: Final = 4  # size of the length before a frame
MAX_FRAME_BYTES: Final = 1 << 28
READ_BYTES: Final = 1 << 16  # size of the buffer for reading
SLOW_BYTES: Final = 1 << 16  # a peer that leaves more bytes unread is slow


class FrameConnection(asyncio.BufferedProtocol):
    """A connection for lists of messages. For the event loop's thread, except for `send_now`.

    The transport reads; messages are written to the socket directly, because engines' threads send too.
    """

    def __init__(self, kind: Any, receive: Callable[[list[Any]], None], on_lost: Callable[[], None]) -> None:
        """Make a connection for a transport.

        kind: union of the types of received messages.
        receive: function that is called with the messages of a frame; it raises LookupError or ValueError on
            invalid messages.
        on_lost: function that is called once when the peer has gone, or has sent an invalid frame.
        """
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode
        self._receive, self._on_lost = receive, on_lost
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received, self._outgoing = bytearray(), list[Any]()
        self._loop = asyncio.get_running_loop()
        self._will_flush = False
        self._transport: asyncio.Transport | None = None
        self._lock = threading.Lock()  # guards `_socket` and `_unsent`
        self._socket: socket.socket | None = None  # socket of the transport, for writing
        self._unsent = bytearray()  # bytes that the socket has not accepted yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._socket = transport, transport.get_extra_info("socket").dup()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        with self._lock:
            if self._socket:
                self._loop.remove_writer(self._socket)
                self._socket.close()
                self._socket = None
        self._on_lost()

    @property
    def slow(self) -> bool:
        """Whether the peer has left more than SLOW_BYTES bytes unread."""
        return len(self._unsent) > SLOW_BYTES

    def close(self) -> None:
        """Send the outgoing messages, and close the connection."""
        self._flush()
        if self._transport:
            self._transport.close()

    def send(self, message: Any) -> None:
        """Send a message, in one frame with other messages of this turn of the event loop."""
        self._outgoing.append(message)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send the outgoing messages at the end of this turn of the event loop."""
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def send_now(self, messages: Sequence[Any]) -> None:
        """Send messages as one frame, without the event loop unless the peer is slow. For any thread."""
        frame = bytearray(HEAD_BYTES)
        self._encode_into(messages, frame, HEAD_BYTES)
        frame[:HEAD_BYTES] = (len(frame) - HEAD_BYTES).to_bytes(HEAD_BYTES, "big")
        with self._lock:
            if not self._socket:
                return
            if self._unsent:  # older bytes go first
                self._unsent += frame
                return
            del frame[: _write(self._socket, frame)]
            if frame:
                self._unsent = frame
                self._loop.call_soon_threadsafe(self._await_writable)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._received += self._buffer[:count]
        while self._transport and len(self._received) >= HEAD_BYTES:
            size = int.from_bytes(self._received[:HEAD_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                return self._refuse(f"a frame of {size} bytes")
            if len(self._received) < HEAD_BYTES + size:
                break
            frame = bytes(self._received[HEAD_BYTES : HEAD_BYTES + size])
            del self._received[: HEAD_BYTES + size]
            try:
                self._receive(self._decode(frame))
            except (msgspec.MsgspecError, LookupError, ValueError) as error:
                return self._refuse(f"an invalid frame: {error!r}")
        return None

    def _refuse(self, what: str) -> None:
        """Log that the peer has sent `what`, and drop the connection."""
        logger.error("an ipc connection ends: its peer has sent %s", what)
        self._received.clear()
        if self._transport:
            self._transport.abort()
            self._transport = None

    def _flush(self) -> None:
        self._will_flush = False
        if self._outgoing and self._transport:
            messages, self._outgoing = self._outgoing, []
            self.send_now(messages)

    def _await_writable(self) -> None:
        if self._socket:
            self._loop.add_writer(self._socket, self._write_rest)

    def _write_rest(self) -> None:
        """Write unsent bytes when the socket accepts more."""
        with self._lock:
            if self._socket:
                del self._unsent[: _write(self._socket, self._unsent)]
                if not self._unsent:
                    self._loop.remove_writer(self._socket)


def _write(connection: socket.socket, data: bytearray) -> int:
    """Write to a socket; returns the number of accepted bytes, all of them if the peer has gone."""
    try:
        return connection.send(data)
    except (BlockingIOError, InterruptedError):
        return 0
    except OSError:
        return len(data)
