"""Reads server-sent events (HTML standard, 9.2.6), as far as a stream of answers uses them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: str


class EventReader:
    """Parses events from chunks of bytes.

    The lines of httpx can't be used: they also end at characters that JSON may contain.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name, self._data = "", list[str]()

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that a chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = (self._line(line.removesuffix(b"\r").decode("utf-8", "replace")) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: str) -> Event | None:
        """Add a line to the open event; return the event if a blank line ends it."""
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        # a comment has no name; the server sends it to keep the connection alive
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        return None
