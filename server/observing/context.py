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
TRACE_HEADER: Final = "traceparent"
TRACE: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
ID_BITS: Final = 128  # bits of a generated id; it names a request and protects nothing
NO_MODEL: Final = "none"  # model of a request that reached no model
SEVERAL_MODELS: Final = "several"
OTHER_ROUTE: Final = "other"  # a path that no route has
OK: Final = "ok"
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

    model: label of the model, from `ModelRoute.models`.
    languages: codes of source and target, as de-en.
    timings: longest times of its sentences.
    sentences: number of sentences.
    ended: end of the work, a time.time_ns().
    """

    model: str
    languages: str
    timings: Timings
    sentences: int
    ended: int


@dataclass(eq=False, slots=True)
class RequestContext:
    """The context of one request.

    id: id of the request.
    began: start of the request, a time.time_ns().
    started: start of the request, a time.monotonic().
    models: models that the request was sent to, in the form of `ModelRoute.models`.
    work: work of each model for the request.
    owner: name of the visitor whose share of the workers is used; "": not known yet.
    outcome: outcome if it differs from the status, as in a stream that fails after its head.
    trace_id, span_id: ids of OpenTelemetry in hexadecimal; "": the request belongs to no trace.
    """

    id: str
    began: int = field(default_factory=time.time_ns)
    started: float = field(default_factory=time.monotonic)
    models: set[str] = field(default_factory=set)
    work: list[ModelWork] = field(default_factory=list)
    owner: str = ""
    outcome: str = ""
    trace_id: str = ""
    span_id: str = ""

    @property
    def model(self) -> str:
        """Name of the only model that the request was sent to, NO_MODEL or SEVERAL_MODELS."""
        return next(iter(self.models), NO_MODEL) if len(self.models) < 2 else SEVERAL_MODELS

    def outcome_of(self, status: int) -> str:
        """Return the outcome: ok, invalid, rejected, late, cancelled or failed.

        status: status of the answer, 0 without an answer.
        """
        if self.outcome:
            return self.outcome
        return OUTCOMES.get(status) or (OK if status < 400 else "invalid" if status < 500 else FAILED)


current: Final[ContextVar[RequestContext | None]] = ContextVar("current", default=None)


def context_of(scope: Scope) -> RequestContext:
    """Return a context for a new request, with the client's X-Request-ID if it is safe to log.

    The trace is the one of the header `traceparent`, also on a server that sends no traces.
    """
    headers = Headers(scope=scope)
    header = headers.get(ID_HEADER, "")
    trace = TRACE.fullmatch(headers.get(TRACE_HEADER, ""))
    return RequestContext(
        header if ID.fullmatch(header) else f"{random.getrandbits(ID_BITS):0{ID_BITS // 4}x}",
        trace_id=trace[1] if trace else "",
    )


def route_of(scope: Scope) -> str:
    """Return the pattern of a request's path, which is known once its route is found, or OTHER_ROUTE."""
    return getattr(scope.get("route"), "path", OTHER_ROUTE)


def note_model(model: str) -> None:
    """Note that the current request is sent to a model.

    model: result of `ModelRoute.models`.
    """
    if context := current.get():
        context.models.add(model)


def set_owner(owner: str) -> None:
    """Set the owner of the current request's work."""
    if context := current.get():
        context.owner = owner


def current_owner() -> str:
    """Return the owner of the current request's work; "" without a request."""
    context = current.get()
    return context.owner if context else ""


def set_outcome(outcome: str) -> None:
    """Set the outcome of the current request."""
    if context := current.get():
        context.outcome = outcome
