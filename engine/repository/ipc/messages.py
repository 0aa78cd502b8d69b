"""What goes over a link. A front end numbers its groups, models, options and orders; the engine process
answers by these numbers.

Times are of the machine's monotonic clock, which its processes share.
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

MODEL_NUMBERS: Final = 1 << 12  # that a link may name, the oldest given anew
OPTION_NUMBERS: Final = 64  # that a link may name, the oldest given anew


class UsedModel(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A model that groups will name by a number; `digest` is of the bundle that made their tokens."""

    number: int
    name: str
    digest: str


class UsedOptions(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Options that groups will name by a number."""

    number: int
    options: DecodeOptions


class AskedGroup(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Sources to decode, all accepted or none.

    model: number of the model.
    options: the different ones of the sources, or their numbers; `chosen` are places in this list.
    deadline: None: there is none.
    progress: whether certain tokens are told.
    follow_up: whether it is more work for what was accepted before.
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
    """Jobs of a group that nobody waits for any more."""

    group: int
    jobs: list[int]


class Order(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """What to do with a model: a verb of `engine.repository.ipc.orders`."""

    number: int
    verb: str
    name: str


class CertainTokens(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """Target tokens of a job that are certain."""

    group: int
    job: int
    tokens: list[int]


class JobResult(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """A result: of each hypothesis tokens, score, scores of tokens, end, rows and bytes of attention."""

    group: int
    job: int
    hypotheses: list[tuple[list[int], float, list[float], str, int, bytes]]
    timings: tuple[float, float, float, int]


class JobFailure(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Why a job has no result; `job` -1: why its group was refused."""

    group: int
    job: int
    code: str
    message: str
    retry_after: float | None


class EngineLoad(msgspec.Struct, array_like=True, tag=9, frozen=True):
    """What the engine of a model has to do and has done."""

    model: str
    stats: Stats


class OfferedModel(msgspec.Struct, array_like=True, frozen=True):
    """A model of an engine process.

    path: of its bundle.
    digests: of the bundles whose tokens it decodes; none before it has answered.
    """

    path: str
    info: ModelInfo
    digests: list[str]
    entry: RepositoryEntry


class Offer(msgspec.Struct, array_like=True, tag=10, frozen=True):
    """All models of an engine process, each time that something of them has changed."""

    models: list[OfferedModel]


class Obeyed(msgspec.Struct, array_like=True, tag=11, frozen=True):
    """That an order is done, or the code and message of what stood against it."""

    number: int
    code: str
    message: str


Asked = UsedModel | UsedOptions | AskedGroup | Cancel | Order
Told = CertainTokens | JobResult | JobFailure | EngineLoad | Offer | Obeyed

_CLASSES: Final = {
    one.code: one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ConvoyError)
}


class Numbers:
    """Numbers for what messages name again and again: a few, of which the oldest is given anew."""

    def __init__(self, count: int) -> None:
        """count: how many numbers there are, from 0 on."""
        self._count, self._of = count, dict[object, int]()

    def number_of(self, key: object) -> tuple[int, bool]:
        """Return the number of a key, and whether the other end has yet to be told of it."""
        known = self._of.get(key)
        if known is not None:
            return known, False
        number = len(self._of)
        if number == self._count:
            number = self._of.pop(next(iter(self._of)))  # the oldest
        self._of[key] = number
        return number, True

    def clear(self) -> None:
        """Forget all, as another end does not know them."""
        self._of.clear()


def told_of(group: int, job: int, outcome: Outcome) -> JobResult | JobFailure:
    """Make the message of an outcome.

    group: number of the group.
    job: number of the job in it.
    outcome: a result, or an error of the closed set.
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
    """Make the result of a message. Raises ValueError on attention that is no matrix."""
    hypotheses = [
        Hypothesis(tokens, score, scores, finish, _attention_of(rows, data))
        for tokens, score, scores, finish, rows, data in answer.hypotheses
    ]
    return Result(hypotheses, Timings(*answer.timings))


def error_of(code: str, message: str, retry_after: float | None = None) -> ConvoyError:
    """Make the error of a message; one of a code that this version does not know is ExecutorFailed.

    code: of the closed set.
    message: what is wrong, and what to do about it.
    retry_after: seconds, of a refusal that names them.
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
