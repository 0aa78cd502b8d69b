"""Many texts through one engine, in order and in bounded memory: for files and pipes."""

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
from engine.text.placeables.masking import MarkedText
from engine.types import DecodeJob, Outcome, Request, Result


class Jobs(Protocol):
    """Work for the engine."""

    @property
    def jobs(self) -> Sequence[DecodeJob]:
        """Sources, each with the options to decode it."""


class SizedJobs(Jobs, Protocol):
    """A text, ready for the engine."""

    @property
    def tokens(self) -> int:
        """Number of tokens of all sources."""


T = TypeVar("T")
Item = TypeVar("Item")
J = TypeVar("J", bound=Jobs)
P = TypeVar("P", bound=SizedJobs)
Outcomes: TypeAlias = Generator[TextResult | ConvoyError]
MAX_BUFFERED_TEXTS: Final = 4_096  # between the text read last and the one yielded next


@dataclass(eq=False, slots=True)
class _Entry(Generic[J]):
    """A text in flight.

    requests: what the engine is asked for it.
    asked: outcomes of these by `equality_key`; the engine's thread sets them.
    outcomes: of all its jobs; an equal job may be an earlier text's.
    """

    plan: J
    requests: list[Request]
    asked: dict[Hashable, Future[Outcome]]
    outcomes: list[Future[Outcome]]


def stream(
    engine: AnyEngine, model: TextModel, texts: Iterable[tuple[str | MarkedText, TextOptions]]
) -> Outcomes:
    """Answer texts in input order; see `flow`.

    engine: the engine of the model.
    model: its texts.
    texts: each with how it is answered.
    """
    return flow(
        engine,
        texts,
        lambda text: plan(model, *text),
        lambda planned, results: _compose_or_retry(engine, model, planned, results),
    )


def flow(
    engine: AnyEngine,
    items: Iterable[Item],
    prepare: Callable[[Item], P],
    finish: Callable[[P, list[Result]], T],
) -> Generator[T | ConvoyError]:
    """Yield an answer to each item, in the order of the items; an item that has none yields its error.

    engine: the engine that answers.
    items: texts, or whatever `prepare` understands; read ahead as far as the queue and MAX_BUFFERED_TEXTS
        allow.
    prepare: makes the jobs of an item.
    finish: makes the answer of the jobs and their results.

    Equal jobs of items in flight are decoded once, but for those that draw samples. Leaving the iterator
    early cancels the requests in flight. Raises Stopping when the engine does not run.
    """
    if not engine.healthy:
        raise Stopping("the engine does not run: start the service first")
    pending: deque[_Entry[P] | ConvoyError] = deque()
    known = WeakValueDictionary[Hashable, Future[Outcome]]()  # of entries that still wait for theirs
    ahead = 0  # source tokens of `pending`

    def leave() -> T | ConvoyError:
        """The oldest outcome, for which this waits."""
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
                    yield leave()
                while not _try_submit(engine, entry, must=not pending):  # somebody else fills the queue
                    yield leave()
            except ConvoyError as error:
                pending.append(error)
            else:
                pending.append(entry)
                known.update(entry.asked)
        while pending:
            yield leave()
    finally:
        engine.cancel([r for entry in pending if isinstance(entry, _Entry) for r in entry.requests])


def answers_of(
    outcomes: Generator[T | ConvoyError], on_done: Callable[[int], object] | None = None
) -> Generator[T]:
    """Yield the answers of texts. Raises the first error, with the number of its text, counted from 1.

    outcomes: are closed at the end.
    on_done: told how many more texts have been answered.
    """
    with closing(outcomes):
        for number, outcome in enumerate(outcomes, 1):
            if isinstance(outcome, ConvoyError):
                raise type(outcome)(f"line {number}: {outcome}") from outcome
            if on_done:
                on_done(1)
            yield outcome


def _entry(plan: J, known: Mapping[Hashable, Future[Outcome]]) -> _Entry[J]:
    """An entry that asks for the jobs that are not known; for one that failed it asks again."""
    entry = _Entry(plan, [], {}, [])
    for job in plan.jobs:
        key = equality_key(*job) or object()
        outcome = entry.asked.get(key) or known.get(key)
        if outcome is None or (outcome.done() and not isinstance(outcome.result(), Result)):
            outcome = entry.asked[key] = Future()
            entry.requests.append(Request(*job, outcome.set_result))
        entry.outcomes.append(outcome)
    return entry


def _try_submit(engine: AnyEngine, entry: _Entry[P], *, must: bool) -> bool:
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
    """Compose the answer; a sentence whose numbers got lost is translated again, before all other work."""
    outcome = at_once(settle(model, planned, results))
    while isinstance(outcome, Retry):
        entry = _entry(outcome, {})
        engine.submit(entry.requests, follow_up=True)
        merged = outcome.merge(iter(_wait_for_results(entry)))
        outcome = at_once(settle(model, outcome.plan, merged))
    return outcome


def _wait_for_results(entry: _Entry[J]) -> list[Result]:
    """Wait for the engine, for all requests before the first failure is raised."""
    results: list[Result] = []
    for outcome in [outcome.result() for outcome in entry.outcomes]:
        if not isinstance(outcome, Result):
            raise outcome
        results.append(outcome)
    return results
