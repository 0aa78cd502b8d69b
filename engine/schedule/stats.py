"""Statistics of an engine: counters for metrics, and calls for each step and encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UpstreamStats:
    """Totals of a model of another server, since the start.

    outcomes: number of answers by outcome: "ok", "error", or a fault of the answer.
    prompt_tokens, answer_tokens: tokens by the other server's count.
    price: price of these tokens.
    paused: whether requests pause after failures.
    """

    outcomes: tuple[tuple[str, int], ...]
    prompt_tokens: int
    answer_tokens: int
    price: float
    paused: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot for metrics: current numbers of waiting and active requests, and totals since the start.

    active: number of slots in use, by lane.
    slots: number of slots, by lane.
    step_seconds, encode_seconds: wall-clock time.
    tokens: target tokens of the best hypotheses of all answers, end-of-sentence included.
    upstream: totals of a model of another server; None: the model is local.
    """

    waiting_requests: int
    waiting_tokens: int
    active: tuple[int, ...]
    slots: tuple[int, ...]
    steps: int
    step_seconds: float
    encoded_requests: int
    encode_seconds: float
    tokens: int
    answered: int
    failed: int
    upstream: UpstreamStats | None = None


class Observer(Protocol):
    """Callbacks for steps and encodings, in the engine's thread: they must be quick; errors are logged."""

    def on_step(self, seconds: float, slots: int) -> None:
        """Note one step of a lane, which decoded one token for `slots` requests."""

    def on_encode(self, seconds: float, requests: int, tokens: int) -> None:
        """Note the encoding of one batch of sources.

        seconds: duration of the encoding.
        requests: number of sources.
        tokens: number of tokens of all sources.
        """
