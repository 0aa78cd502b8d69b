"""The access log: a line for each request, for people or machines. It never has a text, a query or a key."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.types import Message, Receive, Scope

from server.observing.context import RequestContext

logger = logging.getLogger("convoy.access")

DOWNLOADS: Final = "/download_file/"  # to know the name of a file is to be let in
KEY_VISITOR: Final = "key:"  # begins the name of a visitor with a key
SECONDS_DIGITS: Final = 6
LONGEST_PATH: Final = 1_000  # characters, quoted ones as one


@dataclass(eq=False, slots=True)
class BodySizes:
    """Bytes of the bodies of a request and its answer, as far as they were read and sent."""

    received: int = 0
    sent: int = 0

    def counting(self, receive: Receive) -> Receive:
        """Make what receives a request's messages count the bytes of its body."""

        async def counted() -> Message:
            message = await receive()
            self.received += len(message.get("body", b""))
            return message

        return counted


def log_request(scope: Scope, context: RequestContext, sizes: BodySizes, status: int, seconds: float) -> None:
    """Write the line of a request that has just ended.

    scope: the request's.
    context: what is known of the request.
    sizes: bytes of its bodies.
    status: of the answer; 0 is none.
    seconds: from the request's head to the answer's end.
    """
    visitor = getattr(scope.get("state", {}).get("visitor"), "name", "")
    fields: dict[str, Any] = {
        "client": quote(scope["client"][0], safe=":.[]") if scope.get("client") else "-",
        "method": quote(scope["method"], safe=""),
        "path": _shown(scope["path"]),
        "status": status,
        "outcome": context.outcome_of(status),
        "received": sizes.received,
        "sent": sizes.sent,
        "seconds": round(seconds, SECONDS_DIGITS),
        "key": visitor.removeprefix(KEY_VISITOR) if visitor.startswith(KEY_VISITOR) else "-",
        "model": context.model,
    }
    # the arguments are one mapping, which a formatter for machines takes as fields
    logger.info(
        '%(client)s "%(method)s %(path)s" %(status)d %(outcome)s received=%(received)d sent=%(sent)d '
        "seconds=%(seconds).6f key=%(key)s model=%(model)s",
        fields,
    )


def _shown(path: str) -> str:
    """A path as it was sent, so that it is one line, without the name of a translated file."""
    folder, separator, _ = path[:LONGEST_PATH].partition(DOWNLOADS)
    return quote(folder + separator, errors="replace") + ("..." if separator else "")
