"""An engine in other processes, with the methods of an engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from engine.errors import ConvoyError, Stopping
from engine.repository.figures import NO_STATS
from engine.repository.ipc.connections import EngineConnections
from engine.repository.ipc.groups import PendingGroup
from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats
from engine.types import Request

POLL_SECONDS: Final = 0.01  # seconds between two checks for unanswered requests


class RemoteEngine:
    """The engines of one bundle in all engine processes. Methods may be called from any thread.

    `submit` does not wait for the engine: a refusal is the outcome of each request of the group.
    """

    device_lost, stall_seconds = False, 0.0  # this process has no device and no turns

    def __init__(
        self, connections: EngineConnections, model: str, digest: str, settings: EngineSettings
    ) -> None:
        """Make an engine.

        connections: connections to all engine processes.
        model: name of the model.
        digest: digest of the bundle that makes the tokens.
        settings: limits of each engine.
        """
        self.settings = settings
        self._connections, self._model, self._digest = connections, model, digest
        self._stopped = False

    @property
    def healthy(self) -> bool:
        """Whether any engine process decodes tokens of this bundle."""
        return not self._stopped and self._connections.offers(self._model, self._digest)

    def start(self) -> None:
        """Do nothing: the engines run already."""

    def release(self) -> None:
        """Do nothing: this process holds no memory of the engines."""

    def submit(self, group: Sequence[Request], *, follow_up: bool = False) -> None:
        """Send a group to an engine process.

        group: requests with the same deadline.
        follow_up: parameter of `Engine.submit`.

        Raises Stopping.
        """
        if self._stopped:
            raise Stopping()
        self._connections.call_soon(self._submit, list(group), follow_up)

    def _submit(self, group: list[Request], follow_up: bool) -> None:
        """Submit a group in the event loop; a refusal is the outcome of each request."""
        try:
            self._connections.submit(
                PendingGroup(self._model, self._digest, dict(enumerate(group)), follow_up)
            )
        except ConvoyError as error:
            for request in group:
                request.reply(error)

    def _unanswered(self) -> list[Request]:
        return self._connections.unanswered(self._model, self._digest)

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel requests. They get no reply."""
        self._connections.call_soon(self._connections.cancel, list(requests))

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Accept no more requests, and wait for the answers. Not for the event loop's thread.

        drain: accepted requests are finished; otherwise they are answered with Stopping.
        timeout: longest wait in seconds.
        """
        self._stopped = True
        if not drain:
            self._connections.call_soon(self._abandon)
            return
        end = None if timeout is None else time.monotonic() + timeout
        while self._unanswered() and (end is None or time.monotonic() < end):
            time.sleep(POLL_SECONDS)

    def _abandon(self) -> None:
        """Cancel the unanswered requests, and answer them with Stopping."""
        requests = self._unanswered()
        self._connections.cancel(requests)
        for request in requests:
            request.reply(Stopping())

    def stats(self) -> Stats:
        """Return statistics with the unanswered requests of this process."""
        return replace(NO_STATS, waiting_requests=len(self._unanswered()))
