"""What decodes groups of requests: an engine of this process, or one that another process hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from engine.schedule.engine import EngineSettings
from engine.schedule.stats import Stats
from engine.types import Request


class AnyEngine(Protocol):
    """What `engine.schedule.engine.Engine` offers to those who submit, and to a repository that keeps it."""

    settings: EngineSettings

    @property
    def healthy(self) -> bool:
        """Whether it runs and takes requests."""

    @property
    def device_lost(self) -> bool:
        """Whether this process can never use its device again."""

    @property
    def stall_seconds(self) -> float:
        """Seconds for which it has been at the same piece of work; 0: it waits for some."""

    def start(self) -> None:
        """Begin to take requests."""

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """See `Engine.stop`."""

    def release(self) -> None:
        """Free what it holds, once it has stopped."""

    def submit(self, group: Sequence[Request], *, again: bool = False) -> None:
        """See `Engine.submit`; a refusal may also come as the outcome of each request."""

    def cancel(self, requests: Iterable[Request]) -> None:
        """Give requests up. No reply will come."""

    def check_size(self, tokens: int) -> None:
        """Raise TooLarge on more source tokens than a group may ever have."""

    def stats(self) -> Stats:
        """Tell what it does and has done."""
