"""The access log: a line for each request. It never contains a text, a query or a key."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.types import Message, Receive, Scope

from server.observing.context import RequestContext

logger = logging.getLogger("convoy.access")

DOWNLOADS: Final = "/download_file/"  # the name of a file gives access to it
KEY_VISITOR: Final = "key:"  # prefix of the name of a visitor with a key
SECONDS_DIGITS: Final = 6
LONGEST_PATH: Final = 1_000  # characters; a quoted character counts as one


@dataclass(eq=False, slots=True)
class BodySizes:
    """Number of body bytes of a request that were read, and of its answer that were sent."""

    received: int = 0
    sent: int = 0

    def counting(self, receive: Receive) -> Receive:
        """Return a `receive` that counts the bytes of the request's body."""

        async def receive_counted() -> Message:
            message = await receive()
            self.received += len(message.get("body", b""))
            return message

        return receive_counted


def log_request(scope: Scope, context: RequestContext, sizes: BodySizes, status: int, seconds: float) -> None:
    """Write the line of a request that has just ended.

    scope: scope of the request.
    context: context of the request.
    sizes: body sizes of request and answer.
    status: status of the answer, 0 without an answer.
    seconds: time from the request's head to the answer's end.
    """
    visitor = getattr(scope.get("state", {}).get("visitor"), "name", "")
    fields: dict[str, Any] = {
        "client": quote(scope["client"][0], safe=":.[]") if scope.get("client") else "-",
        "method": quote(scope["method"], safe=""),
        "path": shown_path(scope["path"]),
        "status": status,
        "outcome": context.outcome_of(status),
        "received": sizes.received,
        "sent": sizes.sent,
        "seconds": round(seconds, SECONDS_DIGITS),
        "key": key_of(visitor) or "-",
        "model": context.model,
    }
    # the arguments are one mapping, which the JSON formatter writes as fields
    logger.info(
        '%(client)s "%(method)s %(path)s" %(status)d %(outcome)s received=%(received)d sent=%(sent)d '
        "seconds=%(seconds).6f key=%(key)s model=%(model)s",
        fields,
    )


def key_of(visitor: str) -> str:
    """Return the id of the key of a visitor; "" for a visitor without a key.

    visitor: name of the visitor.
    """
    return visitor.removeprefix(KEY_VISITOR) if visitor.startswith(KEY_VISITOR) else ""


def shown_path(path: str) -> str:
    """Return a path in quoted form, so that it is one line, without the name of a translated file."""
    folder, separator, _ = path[:LONGEST_PATH].partition(DOWNLOADS)
    return quote(folder + separator, errors="replace") + ("..." if separator else "")
