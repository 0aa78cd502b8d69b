"""Answers many texts by one engine, in order and in bounded memory: for files and pipes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from engine.answers.compose import Retry, TextResult, settle
from engine.answers.options import TextOptions
from engine.answers.plan import Plan, plan
from engine.answers.text_model import TextModel
from engine.errors import ConvoyError, Overloaded, Stopping
from engine.schedule.aio import equality_key
from engine.schedule.any_engine import AnyEngine
from engine.schedule.slices import at_once
from engine.text.placeables.masked_text import MarkedText
from engine.types import DecodeJob, Outcome, Request, Result


class Jobs(Protocol):
    """An object with jobs for the engine."""

    @property
    def jobs(self) -> Sequence[DecodeJob]:
        """Sources with their decoding options."""


class SizedJobs(Jobs, Protocol):
    """Jobs with a number of tokens."""

    @property
    def tokens(self) -> int:
        """Number of tokens of all sources."""


T = TypeVar("T")
Item = TypeVar("Item")
J = TypeVar("J", bound=Jobs)
P = TypeVar("P", bound=SizedJobs)
Outcomes: TypeAlias = Generator[TextResult | ConvoyError]
MAX_BUFFERED_TEXTS: Final = 4_096  # largest number of texts that were read and not yielded


@dataclass(eq=False, slots=True)
class _Entry(Generic[J]):
    """A text in flight.

    requests: requests that this text submits.
    submitted: outcomes of these requests by `equality_key`; the engine's thread sets them.
    outcomes: outcomes of all jobs; the outcome of an equal job may belong to an earlier text.
    """

    plan: J
    requests: list[Request]
    submitted: dict[Hashable, Future[Outcome]]
    outcomes: list[Future[Outcome]]


def stream(
    engine: AnyEngine, model: TextModel, texts: Iterable[tuple[str | MarkedText, TextOptions]]
) -> Outcomes:
    """Yield the answers of texts in input order, by `flow`.

    engine: engine of the model.
    model: text side of the model.
    texts: texts with their options.
    """
    return flow(
        engine,
        texts,
        lambda text: at_once(plan(model, *text)),
        lambda planned, results: _compose_or_retry(engine, model, planned, results),
    )


def flow(
    engine: AnyEngine,
    items: Iterable[Item],
    prepare: Callable[[Item], P],
    finish: Callable[[P, list[Result]], T],
) -> Generator[T | ConvoyError]:
    """Yield the answer or the error of each item, in the order of the items.

    engine: engine that answers.
    items: texts or other inputs of `prepare`; they are read ahead as far as the engine's queue and
        MAX_BUFFERED_TEXTS allow.
    prepare: function that makes the jobs of an item.
    finish: function that makes the answer of the jobs and their results.

    Equal jobs of items in flight are decoded once, unless they draw samples. Closing the iterator cancels the
    requests in flight. Raises Stopping if the engine does not run.
    """
    if not engine.healthy:
        raise Stopping("the engine does not run: start the service first")
    pending: deque[_Entry[P] | ConvoyError] = deque()
    known = WeakValueDictionary[Hashable, Future[Outcome]]()  # outcomes of entries in flight
    ahead = 0  # source tokens of `pending`

    def next_answer() -> T | ConvoyError:
        """Wait for the oldest entry, and return its answer or its error."""
        nonlocal ahead
        entry = pending.popleft()
        if isinstance(entry, ConvoyError):
            return entry
        ahead -= entry.plan.tokens
        try:
            return finish(entry.plan, _wait_for_results(entry))
        except ConvoyError as error:
            return error

    try:
        for item in items:
            try:
                entry = _entry(prepare(item), known)
                ahead += entry.plan.tokens
                while pending and (
                    ahead > engine.settings.queue_tokens or len(pending) >= MAX_BUFFERED_TEXTS
                ):
                    yield next_answer()
                while not _try_submit(engine, entry, must=not pending):
                    yield next_answer()
            except ConvoyError as error:
                pending.append(error)
            else:
                pending.append(entry)
                known.update(entry.submitted)
        while pending:
            yield next_answer()
    finally:
        engine.cancel([r for entry in pending if isinstance(entry, _Entry) for r in entry.requests])


def answers_of(
    outcomes: Generator[T | ConvoyError], on_done: Callable[[int], object] | None = None
) -> Generator[T]:
    """Yield the answers of texts. Raises the first error, with the number of its text, counted from 1.

    outcomes: generator of answers and errors; it is closed at the end.
    on_done: function that is called with the number of newly answered texts.
    """
    with closing(outcomes):
        for number, outcome in enumerate(outcomes, 1):
            if isinstance(outcome, ConvoyError):
                raise type(outcome)(f"line {number}: {outcome}") from outcome
            if on_done:
                on_done(1)
            yield outcome


def _entry(plan: J, known: Mapping[Hashable, Future[Outcome]]) -> _Entry[J]:
    """Make an entry with requests for all jobs that no earlier entry has submitted, or that failed there."""
    entry = _Entry(plan, [], {}, [])
    for job in plan.jobs:
        key = equality_key(*job) or object()
        outcome = entry.submitted.get(key) or known.get(key)
        if outcome is None or (outcome.done() and not isinstance(outcome.result(), Result)):
            outcome = entry.submitted[key] = Future()
            entry.requests.append(Request(*job, outcome.set_result))
        entry.outcomes.append(outcome)
    return entry


def _try_submit(engine: AnyEngine, entry: _Entry[P], *, must: bool) -> bool:
    """Submit an entry; returns False if the queue is full.

    must: whether to raise Overloaded then, because no earlier text will make room.
    """
    try:
        engine.submit(entry.requests)
    except Overloaded:
        if must:
            raise
        return False
    return True


def _compose_or_retry(
    engine: AnyEngine, model: TextModel, planned: Plan, results: list[Result]
) -> TextResult:
    """Compose the answer; sentences with garbled answers are decoded again first."""
    outcome = at_once(settle(model, planned, results))
    while isinstance(outcome, Retry):
        entry = _entry(outcome, {})
        engine.submit(entry.requests, follow_up=True)
        merged = outcome.merge(iter(_wait_for_results(entry)))
        outcome = at_once(settle(model, outcome.plan, merged))
    return outcome


def _wait_for_results(entry: _Entry[J]) -> list[Result]:
    """Wait for the results of all jobs. Raises the first error after all jobs have ended."""
    results: list[Result] = []
    for outcome in [outcome.result() for outcome in entry.outcomes]:
        if not isinstance(outcome, Result):
            raise outcome
        results.append(outcome)
    return results
