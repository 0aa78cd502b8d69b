"""Messages between a front end and an engine process.

The front end numbers its groups, models, options and orders; the engine process refers to these numbers.
Times are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from engine import errors
from engine.errors import ConvoyError, ExecutorFailed, Overloaded, Unavailable
from engine.repository.figures import RepositoryEntry
from engine.repository.loading import ModelInfo
from engine.schedule.stats import Stats
from engine.types import DecodeOptions, Hypothesis, Outcome, Result, Timings

MODEL_NUMBERS: Final = 1 << 12  # numbers for models on a connection; the oldest is reused
OPTION_NUMBERS: Final = 64  # numbers for options on a connection; the oldest is reused


class UsedModel(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Number of a model in later groups; `digest` is the digest of the bundle that makes their tokens."""

    number: int
    name: str
    digest: str


class UsedOptions(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Number of decoding options in later groups."""

    number: int
    options: DecodeOptions


class GroupRequest(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Sources to decode, all accepted or none.

    model: number of the model.
    options: distinct decoding options, or their numbers.
    chosen: index in `options` for each source.
    deadline: time at which the requests fail; None: never.
    progress: whether certain tokens are sent.
    follow_up: parameter of `Engine.submit`.
    """

    number: int
    model: int
    sources: list[list[int]]
    options: list[int | DecodeOptions]
    chosen: list[int]
    deadline: float | None
    progress: bool
    follow_up: bool


class Cancel(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """Cancellation of jobs of a group."""

    group: int
    jobs: list[int]


class Order(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """An order for a model: a verb of `engine.repository.ipc.orders`."""

    number: int
    verb: str
    name: str


class CertainTokens(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """Certain target tokens of a job."""

    group: int
    job: int
    tokens: list[int]


class JobResult(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """Result of a job. A hypothesis is (tokens, score, token scores, finish, rows and bytes of attention).

    Attention is a float32 matrix [target, source]; 0 rows: none.
    """

    group: int
    job: int
    hypotheses: list[tuple[list[int], float, list[float], str, int, bytes]]
    timings: tuple[float, float, float, int]


class JobFailure(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Error of a job; `job` is -1 if the group was refused."""

    group: int
    job: int
    code: str
    message: str
    retry_after: float | None


class EngineLoad(msgspec.Struct, array_like=True, tag=9, frozen=True):
    """Statistics of the engine of a model."""

    model: str
    stats: Stats


class OfferedModel(msgspec.Struct, array_like=True, frozen=True):
    """A model of an engine process.

    path: folder of the bundle.
    digests: digests of the bundles whose tokens the model decodes; empty before its first answer.
    """

    path: str
    info: ModelInfo
    digests: list[str]
    entry: RepositoryEntry


class Offer(msgspec.Struct, array_like=True, tag=10, frozen=True):
    """All models of an engine process, sent after each change."""

    models: list[OfferedModel]


class OrderResult(msgspec.Struct, array_like=True, tag=11, frozen=True):
    """Result of an order: code and message of an error, empty on success."""

    number: int
    code: str
    message: str


class Ping(msgspec.Struct, array_like=True, tag=12, frozen=True):
    """A question whether the engine process still runs."""


class Pong(msgspec.Struct, array_like=True, tag=13, frozen=True):
    """The answer to a Ping."""


ToEngine = UsedModel | UsedOptions | GroupRequest | Cancel | Order | Ping
FromEngine = CertainTokens | JobResult | JobFailure | EngineLoad | Offer | OrderResult | Pong

_CLASSES: Final = {
    one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ConvoyError)
}


class NumberTable:
    """A table of numbers for models or options that many messages name; the oldest number is reused."""

    def __init__(self, count: int) -> None:
        """count: number of different numbers; they are 0 to count - 1."""
        self._count, self._of = count, dict[object, int]()

    def number_of(self, key: object) -> tuple[int, bool]:
        """Return the number of a key, and whether the number is new to the peer."""
        known = self._of.get(key)
        if known is not None:
            return known, False
        number = len(self._of)
        if number == self._count:
            number = self._of.pop(next(iter(self._of)))  # the oldest
        self._of[key] = number
        return number, True

    def clear(self) -> None:
        """Remove all numbers, for a new peer."""
        self._of.clear()


def reply_of(group: int, job: int, outcome: Outcome) -> JobResult | JobFailure:
    """Return the message of an outcome.

    group: number of the group.
    job: number of the job in the group.
    outcome: result or error of the job.
    """
    if not isinstance(outcome, Result):
        retry = outcome.retry_after if isinstance(outcome, Overloaded | Unavailable) else None
        return JobFailure(group, job, outcome.code, str(outcome), retry)
    timings = outcome.timings
    rows = [
        (h.tokens, h.score, h.token_scores, h.finish, *_attention_bytes(h.attention))
        for h in outcome.hypotheses
    ]
    return JobResult(group, job, rows, (timings.queue, timings.encode, timings.decode, timings.steps))


def result_of(answer: JobResult) -> Result:
    """Return the result in a message. Raises ValueError on attention that is not a matrix."""
    hypotheses = [
        Hypothesis(tokens, score, scores, finish, _attention_of(rows, data))
        for tokens, score, scores, finish, rows, data in answer.hypotheses
    ]
    return Result(hypotheses, Timings(*answer.timings))


def error_of(code: str, message: str, retry_after: float | None = None) -> ConvoyError:
    """Return the error in a message; ExecutorFailed for an unknown code.

    code: code of the error.
    message: text of the error.
    retry_after: seconds until a retry may succeed, if known.
    """
    kind = _CLASSES.get(code, ExecutorFailed)
    if issubclass(kind, Overloaded | Unavailable) and retry_after is not None:
        return kind(message, retry_after)
    return kind(message)


def _attention_bytes(attention: np.ndarray | Sequence[np.ndarray] | None) -> tuple[int, bytes]:
    if attention is None:
        return 0, b""
    matrix = np.asarray(attention, np.float32)
    return len(matrix), matrix.tobytes()


def _attention_of(rows: int, data: bytes) -> np.ndarray | None:
    return np.frombuffer(data, np.float32).reshape(rows, -1).copy() if rows else None
