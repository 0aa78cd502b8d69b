"""An end of a link: messages go in frames of a length and msgpack; what is said together goes as one."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

logger = logging.getLogger(__name__)

HEAD_BYTES: Final = 4  # of a frame's length
MAX_FRAME_BYTES: Final = 1 << 28
READ_BYTES: Final = 1 << 16  # at once
SLOW_BYTES: Final = 1 << 16  # left unread from which on the other end is slow


class LinkEnd(asyncio.BufferedProtocol):
    """Sends and receives lists of messages. For the event loop's thread, but for `send_now`.

    The transport reads. What is sent goes past it, as the engines' threads send too.
    """

    def __init__(self, kind: Any, receive: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        """Make an end.

        kind: union of the messages that come.
        receive: called with those of a frame; a LookupError or ValueError of its own says that they make no
            sense.
        lost: called once when the other end has gone, or has sent what is no frame or makes no sense.
        """
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode
        self._receive, self._lost = receive, lost
        self._room = memoryview(bytearray(READ_BYTES))
        self._bytes, self._waiting = bytearray(), list[Any]()
        self._loop = asyncio.get_running_loop()
        self._will_flush = False
        self._transport: asyncio.Transport | None = None
        self._lock = threading.Lock()  # guards the two below
        self._socket: socket.socket | None = None  # the transport's, to write to
        self._unsent = bytearray()  # what the socket did not take

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
        self._lost()

    @property
    def slow(self) -> bool:
        """Whether the other end leaves unread what it was sent."""
        return len(self._unsent) > SLOW_BYTES

    def close(self) -> None:
        """Send what waits, and end the link."""
        self._flush()
        if self._transport:
            self._transport.close()

    def send(self, message: Any) -> None:
        """Send a message, with others of this turn."""
        self._waiting.append(message)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Send what waits when what is due in this event loop by now is done, and what that sends with it."""
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def send_now(self, messages: Sequence[Any]) -> None:
        """Send messages as one frame, without the event loop where the other end reads. For any thread."""
        frame = bytearray(HEAD_BYTES)
        self._encode_into(messages, frame, HEAD_BYTES)
        frame[:HEAD_BYTES] = (len(frame) - HEAD_BYTES).to_bytes(HEAD_BYTES, "big")
        with self._lock:
            if not self._socket:
                return
            if self._unsent:  # which goes first
                self._unsent += frame
                return
            del frame[: _write(self._socket, frame)]
            if frame:
                self._unsent = frame
                self._loop.call_soon_threadsafe(self._await_room)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, count: int) -> None:
        self._bytes += self._room[:count]
        while self._transport and len(self._bytes) >= HEAD_BYTES:
            size = int.from_bytes(self._bytes[:HEAD_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                return self._refuse(f"a frame of {size} bytes")
            if len(self._bytes) < HEAD_BYTES + size:
                break
            frame = bytes(self._bytes[HEAD_BYTES : HEAD_BYTES + size])
            del self._bytes[: HEAD_BYTES + size]
            try:
                self._receive(self._decode(frame))
            except (msgspec.MsgspecError, LookupError, ValueError) as error:
                return self._refuse(f"a frame that makes no sense: {error!r}")
        return None

    def _refuse(self, what: str) -> None:
        logger.error("a link ends: its other end has sent %s", what)
        self._bytes.clear()
        if self._transport:
            self._transport.abort()
            self._transport = None

    def _flush(self) -> None:
        self._will_flush = False
        if self._waiting and self._transport:
            messages, self._waiting = self._waiting, []
            self.send_now(messages)

    def _await_room(self) -> None:
        if self._socket:
            self._loop.add_writer(self._socket, self._write_rest)

    def _write_rest(self) -> None:
        with self._lock:
            if self._socket:
                del self._unsent[: _write(self._socket, self._unsent)]
                if not self._unsent:
                    self._loop.remove_writer(self._socket)


def _write(connection: socket.socket, data: bytearray) -> int:
    """Return how many bytes the socket took; all, where the other end has gone, of which the reader hears."""
    try:
        return connection.send(data)
    except (BlockingIOError, InterruptedError):
        return 0
    except OSError:
        return len(data)
