"""Many texts through one engine, in order and in bounded memory: for files and pipes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from engine.answers.compose import TextResult, compose, retry_of
from engine.answers.options import TextOptions
from engine.answers.plan import Plan, plan
from engine.answers.text_model import TextModel
from engine.errors import ConvoyError, Overloaded, Stopping
from engine.schedule.engine import Engine
from engine.text.protect import MarkedText
from engine.types import DecodeJob, Outcome, Request, Result


class Jobs(Protocol):
    """Something for the engine."""

    @property
    def jobs(self) -> Sequence[DecodeJob]:
        """Its sources, each with the options to decode it."""


class SizedJobs(Jobs, Protocol):
    """A text, ready for the engine."""

    @property
    def tokens(self) -> int:
        """Of all its sources."""


T = TypeVar("T")
Item = TypeVar("Item")
J = TypeVar("J", bound=Jobs)
P = TypeVar("P", bound=SizedJobs)
BUFFERED: Final = 4_096  # texts between the one read last and the one yielded next


@dataclass(eq=False, slots=True)
class _Entry(Generic[J]):
    """A text in flight; `answers` is filled by the engine's thread."""

    number: int
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
    engine: Engine, model: TextModel, lines: Iterable[str | MarkedText], options: TextOptions
) -> Generator[TextResult]:
    """Answer texts in input order; see `flow`."""
    return flow(
        engine,
        lines,
        lambda line: plan(model, line, options),
        lambda planned, results: _compose_or_retry(engine, model, planned, results),
    )


def flow(
    engine: Engine,
    items: Iterable[Item],
    prepare: Callable[[Item], P],
    finish: Callable[[P, list[Result]], T],
) -> Generator[T]:
    """Yield `finish` of each item's plan and results, one result of each job, in the order of the items.

    Reads ahead as far as the engine's queue and BUFFERED allow.

    An error carries the number of its text, counted from 1. Leaving the iterator early cancels what is in
    flight. Raises Stopping when the engine does not run.
    """
    if not engine.healthy:
        raise Stopping("the engine does not run: start the service first")
    pending: deque[_Entry[P]] = deque()
    ahead = 0  # source tokens of `pending`
    try:
        for number, item in enumerate(items, 1):
            entry = _Entry(number, _call_for_line(number, partial(prepare, item)))
            ahead += entry.plan.tokens
            while pending and (ahead > engine.settings.queue_tokens or len(pending) >= BUFFERED):
                ahead -= pending[0].plan.tokens
                yield _finish_entry(pending.popleft(), finish)
            while not _try_submit(engine, entry, must=not pending):  # somebody else fills the queue
                ahead -= pending[0].plan.tokens
                yield _finish_entry(pending.popleft(), finish)
            pending.append(entry)
        while pending:
            yield _finish_entry(pending.popleft(), finish)
    finally:
        engine.cancel([request for entry in pending for request in entry.requests])


def _try_submit(engine: Engine, entry: _Entry[P], *, must: bool) -> bool:
    try:
        _call_for_line(entry.number, partial(engine.submit, entry.requests))
    except Overloaded:
        if must:
            raise
        return False
    return True


def _compose_or_retry(engine: Engine, model: TextModel, planned: Plan, results: list[Result]) -> TextResult:
    """Compose the answer; a sentence whose numbers got lost is translated again, whose turn it is next."""
    retry = retry_of(model, planned, results)
    if retry:
        entry = _Entry(0, retry)
        engine.submit(entry.requests, again=True)
        planned, results = retry.plan, retry.merge(results, iter(_wait_for_results(entry)))
    return compose(model, planned, results)


def _finish_entry(entry: _Entry[P], finish: Callable[[P, list[Result]], T]) -> T:
    results = _call_for_line(entry.number, partial(_wait_for_results, entry))
    return _call_for_line(entry.number, partial(finish, entry.plan, results))


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


def _call_for_line(number: int, call: Callable[[], T]) -> T:
    try:
        return call()
    except ConvoyError as error:
        raise type(error)(f"line {number}: {error}") from error
