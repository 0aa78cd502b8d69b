"""Many texts through one engine, in order and in bounded memory: for files and pipes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from engine.answers.compose import Retry, TextResult, settle
from engine.answers.options import TextOptions
from engine.answers.plan import Plan, plan
from engine.answers.text_model import TextModel
from engine.errors import ConvoyError, Overloaded, Stopping
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
    """A text in flight; `answers` is filled by the engine's thread."""

    plan: J
    requests: list[Request] = field(default_factory=list)
    answers: dict[int, Outcome] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        jobs = self.plan.jobs
        self.requests = [Request(s, options, self._answer(i)) for i, (s, options) in enumerate(jobs)]
        if not jobs:
            self.done.set()

    def _answer(self, index: int) -> Callable[[Outcome], None]:
        def reply(outcome: Outcome) -> None:
            self.answers[index] = outcome
            if len(self.answers) == len(self.requests):
                self.done.set()

        return reply


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

    Leaving the iterator early cancels the requests in flight. Raises Stopping when the engine does not run.
    """
    if not engine.healthy:
        raise Stopping("the engine does not run: start the service first")
    pending: deque[_Entry[P] | ConvoyError] = deque()
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
                entry = _Entry(prepare(item))
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
        entry = _Entry(outcome)
        engine.submit(entry.requests, again=True)
        merged = outcome.merge(iter(_wait_for_results(entry)))
        outcome = at_once(settle(model, outcome.plan, merged))
    return outcome


def _wait_for_results(entry: _Entry[J]) -> list[Result]:
    """Wait for the engine."""
    entry.done.wait()
    results: list[Result] = []
    for index in range(len(entry.requests)):
        outcome = entry.answers[index]
        if not isinstance(outcome, Result):
            raise outcome
        results.append(outcome)
    return results
