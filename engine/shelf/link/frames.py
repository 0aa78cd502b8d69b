"""An end of a link: messages of a turn of the event loop go as one frame of a length and msgpack."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

logger = logging.getLogger(__name__)

HEAD_BYTES: Final = 4  # of a frame's length
MAX_FRAME_BYTES: Final = 1 << 28


class LinkEnd(asyncio.Protocol):
    """Sends and receives lists of messages. For the event loop's thread."""

    def __init__(self, kind: Any, receive: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        """Make an end.

        kind: union of the messages that come.
        receive: called with those of a frame; a LookupError or ValueError of its own says that they make no
            sense.
        lost: called once when the other end has gone, or has sent what is no frame or makes no sense.
        """
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode
        self._receive, self._lost = receive, lost
        self._bytes, self._waiting = bytearray(), list[Any]()
        self._transport: asyncio.Transport | None = None
        self.slow = False  # whether the other end leaves unread what it was sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._lost()

    def pause_writing(self) -> None:
        self.slow = True

    def resume_writing(self) -> None:
        self.slow = False

    def close(self) -> None:
        """Send what waits, and end the link."""
        self._flush()
        if self._transport:
            self._transport.close()

    def send(self, message: Any) -> None:
        """Send a message at the end of this turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(message)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while self._transport and len(self._bytes) >= HEAD_BYTES:
            size = int.from_bytes(self._bytes[:HEAD_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                return self._refuse(f"a frame of {size} bytes")
            if len(self._bytes) < HEAD_BYTES + size:
                return None
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
        if self._waiting and self._transport:
            messages, self._waiting = self._waiting, []
            body = self._encode(messages)
            self._transport.write(len(body).to_bytes(HEAD_BYTES, "big") + body)
