"""The protocol of engines that decode groups of requests, in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats
from engine.types import Request


class AnyEngine(Protocol):
    """Methods of `engine.schedule.engine.Engine` that callers and a repository use."""

    settings: EngineSettings

    @property
    def healthy(self) -> bool:
        """Whether the engine runs and accepts requests."""

    @property
    def device_lost(self) -> bool:
        """Whether this process can never use its device again."""

    @property
    def stall_seconds(self) -> float:
        """Seconds since the start of the current turn; 0 while the engine is idle."""

    def start(self) -> None:
        """Start to accept requests."""

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """See `Engine.stop`."""

    def release(self) -> None:
        """Free the memory of a stopped engine."""

    def submit(self, group: Sequence[Request], *, follow_up: bool = False) -> None:
        """See `Engine.submit`; a refusal may also be the outcome of each request."""

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel requests. They get no reply."""

    def stats(self) -> Stats:
        """Return a snapshot for metrics."""


class SteppedEngine(AnyEngine, Protocol):
    """An engine in this process.

    after_step: function that the engine's thread calls after replies.
    """

    after_step: Callable[[], None]
