"""An engine that other processes host, as those who submit see it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from engine.errors import ConvoyError, Stopping
from engine.repository.figures import NO_STATS
from engine.repository.ipc.links import Asking, Links
from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats
from engine.types import Request

POLL_SECONDS: Final = 0.01  # between two looks whether all requests are answered


class RemoteEngine:
    """The engines of one bundle in all engine processes. Methods may be called from any thread.

    A refusal comes as the outcome of every request of the group, for the engine decides and nobody waits.
    """

    device_lost, stall_seconds = False, 0.0  # of this process, which has no device and no turns

    def __init__(self, links: Links, model: str, digest: str, settings: EngineSettings) -> None:
        """Make one.

        links: to the engine processes.
        model: the model's name.
        digest: of the bundle whose tokens are sent.
        settings: what an engine takes at once.
        """
        self.settings = settings
        self._links, self._model, self._digest = links, model, digest
        self._stopped = False

    @property
    def healthy(self) -> bool:
        """Whether any engine process decodes tokens of this bundle."""
        return not self._stopped and self._links.offers(self._model, self._digest)

    def start(self) -> None:
        """Do nothing: the engines run."""

    def release(self) -> None:
        """Do nothing: it holds nothing."""

    def submit(self, group: Sequence[Request], *, follow_up: bool = False) -> None:
        """Hand a group over.

        group: requests of one deadline.
        follow_up: as of `Engine.submit`.

        Raises Stopping.
        """
        if self._stopped:
            raise Stopping()
        self._links.soon(self._submit, list(group), follow_up)

    def _submit(self, group: list[Request], follow_up: bool) -> None:
        try:
            self._links.ask(Asking(self._model, self._digest, dict(enumerate(group)), follow_up))
        except ConvoyError as error:
            for request in group:
                request.reply(error)

    def _under_way(self) -> list[Request]:
        return self._links.under_way(self._model, self._digest)

    def cancel(self, requests: Iterable[Request]) -> None:
        """Give requests up. No reply will come."""
        self._links.soon(self._links.cancel, list(requests))

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take nothing more and wait until all is answered, at most `timeout` seconds. Not in the event loop.

        drain: whether accepted requests are finished; otherwise they are answered with Stopping.
        timeout: seconds.
        """
        self._stopped = True
        if not drain:
            self._links.soon(self._abandon)
            return
        end = None if timeout is None else time.monotonic() + timeout
        while self._under_way() and (end is None or time.monotonic() < end):
            time.sleep(POLL_SECONDS)

    def _abandon(self) -> None:
        requests = self._under_way()
        self._links.cancel(requests)
        for request in requests:
            request.reply(Stopping())

    def stats(self) -> Stats:
        """Count what this process waits for."""
        return replace(NO_STATS, waiting_requests=len(self._under_way()))
