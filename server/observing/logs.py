"""Log lines as text or JSON. Both contain the id of the request."""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from server.observing.context import current
from server.settings import ServerSettings

REPEAT_SECONDS: Final = 10.0
LINE_FORMAT: Final = "%(asctime)s %(processName)s[%(process)d] %(levelname)s %(name)s%(request)s: %(message)s"


def set_up(settings: ServerSettings, process: str) -> None:
    """Set up the logs of this process; replaces the handlers of the root logger.

    settings: settings of the server.
    process: name of this process in its lines.
    """
    multiprocessing.current_process().name = process
    handler = logging.StreamHandler()
    handler.setFormatter(Json() if settings.log_format == "json" else Lines(LINE_FORMAT))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").addFilter(Seldom("socket.accept() out of system resource"))


class Seldom(logging.Filter):
    """Limits a repeated message to one per REPEAT_SECONDS. Without file descriptors asyncio logs 2048
    tracebacks a second."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message, self._next = message, 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if not str(record.msg).startswith(self._message):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + REPEAT_SECONDS
        return True


class Lines(logging.Formatter):
    """Writes a line of text per message. No text of a client can begin a line: messages have no line breaks,
    and the lines of tracebacks are indented."""

    def format(self, record: logging.LogRecord) -> str:
        context = current.get()
        trace = f" trace_id={context.trace_id}" if context and context.trace_id else ""
        record.request = f" [{context.id}{trace}]" if context else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {_printable(line)}" for line in super().formatException(ei).split("\n"))


def _printable(text: str) -> str:
    """Return a text with control characters and line breaks of every kind as Python's escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Json(logging.Formatter):
    """Writes a JSON object per line: time (RFC 3339, UTC), level, process, pid, logger, message, and if
    present request_id, trace_id, span_id, exception and the fields of the line."""

    def format(self, record: logging.LogRecord) -> str:
        context = current.get()
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.processName,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if context:
            entry["request_id"] = context.id
            if context.trace_id:
                entry["trace_id"] = context.trace_id
            if context.span_id:
                entry["span_id"] = context.span_id
        if isinstance(record.args, Mapping):
            entry |= record.args
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
