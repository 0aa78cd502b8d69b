"""Logs: lines for people, or JSON for machines; both name the request that they are about."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from server.notes import current
from server.settings import Settings

TEXT: Final = "%(asctime)s %(levelname)s %(name)s%(request)s: %(message)s"


def set_up(settings: Settings) -> None:
    """For a process of its own: replaces the handlers of the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(Json() if settings.log_format == "json" else Lines(TEXT))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        note = current.get()
        record.request = f" [{note.id}]" if note else ""
        return super().format(record)


class Json(logging.Formatter):
    """One object a line: time (RFC 3339, UTC), level, logger, message; request_id and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        note = current.get()
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if note:
            found["request_id"] = note.id
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)
