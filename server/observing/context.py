"""The context of a request: data for its metrics, its log lines and its trace.

A context belongs to the task that serves a request and to the tasks that this task starts, so that no
function has to pass it on.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.types import Scope

if TYPE_CHECKING:
    from engine.api import Timings

ID_HEADER: Final = "x-request-id"
ID: Final = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
ID_BITS: Final = 128  # bits of a generated id; it names a request and protects nothing
NO_MODEL: Final = "none"  # model of a request that reached no model
SEVERAL_MODELS: Final = "several"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"
OUTCOMES: Final[Mapping[int, str]] = {
    0: CANCELLED,
    429: "rejected",
    456: "rejected",
    499: CANCELLED,
    503: "rejected",
    504: "late",
}


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The work of a model for a request.

    model: name of the model.
    timings: longest times of its sentences.
    sentences: number of sentences.
    ended: end of the work, a time.time_ns().
    """

    model: str
    timings: Timings
    sentences: int
    ended: int


@dataclass(eq=False, slots=True)
class RequestContext:
    """The context of one request.

    id: id of the request.
    began: start of the request, a time.time_ns().
    work: work of each model for the request.
    outcome: outcome if it differs from the status, as in a stream that fails after its head.
    """

    id: str
    began: int = field(default_factory=time.time_ns)
    work: list[ModelWork] = field(default_factory=list)
    outcome: str = ""

    @property
    def model(self) -> str:
        """Name of the only model that worked for the request, NO_MODEL or SEVERAL_MODELS."""
        models = {work.model for work in self.work}
        return next(iter(models), NO_MODEL) if len(models) < 2 else SEVERAL_MODELS

    def outcome_of(self, status: int) -> str:
        """Return the outcome: ok, invalid, rejected, late, cancelled or failed.

        status: status of the answer, 0 without an answer.
        """
        if self.outcome:
            return self.outcome
        return OUTCOMES.get(status) or ("ok" if status < 400 else "invalid" if status < 500 else FAILED)


current: Final[ContextVar[RequestContext | None]] = ContextVar("current", default=None)


def context_of(scope: Scope) -> RequestContext:
    """Return a context for a new request, with the client's X-Request-ID if it is safe to log."""
    header = Headers(scope=scope).get(ID_HEADER, "")
    return RequestContext(
        header if ID.fullmatch(header) else f"{random.getrandbits(ID_BITS):0{ID_BITS // 4}x}"
    )


def set_outcome(outcome: str) -> None:
    """Set the outcome of the current request."""
    if context := current.get():
        context.outcome = outcome
