"""What an engine says of itself: numbers for metrics, and each step and encoding as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot for metrics. Waiting and active are now; the others only grow. Seconds are of wall clock.

    tokens: target tokens of the best hypotheses answered, end-of-sentence included.
    """

    waiting_requests: int
    waiting_tokens: int
    active: tuple[int, ...]  # slots in use, by lane
    slots: tuple[int, ...]  # slots there are, by lane
    steps: int
    step_seconds: float
    encoded_requests: int
    encode_seconds: float
    tokens: int
    answered: int
    failed: int


class Observer(Protocol):
    """What is told of steps and encodings, from the engine's thread; must be quick. What an observer raises
    is logged and forgotten."""

    def on_step(self, seconds: float, slots: int) -> None:
        """Note that one lane has decoded one token for `slots` requests."""

    def on_encode(self, seconds: float, requests: int, tokens: int) -> None:
        """Note that one batch of sources has been encoded.

        seconds: that it took.
        requests: whose sources they were.
        tokens: of all sources together.
        """
