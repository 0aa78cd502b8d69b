"""Groups of requests that a front end has sent, and the silence of the processes that should answer them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from engine.types import Request

TICK_SECONDS: Final = 0.5  # seconds between two ticks of a front end's clock
# ticks without a message after which a process counts as stopped. The front end's own ticks count, so that a
# front end that was stopped itself suspects no process
SILENT_TICKS: Final = 6


@dataclass(eq=False, slots=True)
class PendingGroup:
    """Requests with one deadline, by job, until they are answered.

    model: name of the model.
    digest: digest of the bundle that made the tokens.
    follow_up: parameter of `Engine.submit`.
    tried: connections that the requests were sent to.
    streamed: whether a caller has received certain tokens.
    """

    model: str
    digest: str
    requests: dict[int, Request]
    follow_up: bool
    tried: frozenset[object] = frozenset()
    streamed: bool = False

    @property
    def late(self) -> bool:
        """Whether the deadline of the requests has passed."""
        return any(request.deadline < time.monotonic() for request in self.requests.values())


@dataclass(eq=False, slots=True)
class Silence:
    """The silence of a process since its last message, in ticks.

    ticks: ticks since a message was expected; 0 if none is.
    """

    ticks: int = 0

    @property
    def long(self) -> bool:
        """Whether the process counts as stopped."""
        return self.ticks >= SILENT_TICKS

    def tick(self, *, expecting: bool) -> bool:
        """Count a tick; returns whether to send a Ping, one for each silence.

        expecting: whether the process should answer a request.
        """
        asks = expecting and not self.ticks
        self.ticks += bool(expecting or self.ticks)
        return asks
