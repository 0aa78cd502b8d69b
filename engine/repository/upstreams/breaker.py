"""Pauses of an upstream after failures in a row, or for the time of its Retry-After."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

FAILURES: Final = 5  # failures in a row after which requests pause
PAUSE_SECONDS: Final = 15.0
LONGEST_PAUSE: Final = 300.0
# a request without a deadline waits so long for an upstream that has answered before
RECOVERY_SECONDS: Final = 300.0


@dataclass(slots=True)
class Breaker:
    """A circuit breaker, for one thread.

    failures: failures since the last answer.
    until: time.monotonic() at which the pause ends.
    answered: time.monotonic() of the last answer.
    """

    failures: int = 0
    until: float = 0.0
    answered: float = -math.inf

    @property
    def pause(self) -> float:
        """Seconds until the next request may be sent; the first failure after a pause starts another."""
        return max(0.0, self.until - time.monotonic())

    @property
    def may_recover(self) -> bool:
        """Whether the last answer is recent, so that the upstream probably answers again soon."""
        return time.monotonic() - self.answered < RECOVERY_SECONDS

    def succeed(self) -> None:
        self.failures, self.until, self.answered = 0, 0.0, time.monotonic()

    def fail(self, wait: float | None = None) -> None:
        """Count a failure.

        wait: seconds that the upstream asks for; None: it names none.
        """
        self.failures += 1
        seconds = PAUSE_SECONDS if self.failures >= FAILURES else 0.0
        seconds = max(seconds, min(wait or 0.0, LONGEST_PAUSE))
        self.until = max(self.until, time.monotonic() + seconds) if seconds else self.until
