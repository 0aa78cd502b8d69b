"""Many texts through one engine, in order and in bounded memory: for files and pipes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from engine.compose import Plan, TextModel, TextOptions, TextResult, compose, plan
from engine.engine import Engine
from engine.errors import ConvoyError, Overloaded, Stopping
from engine.types import Outcome, Request, Result

T = TypeVar("T")
BUFFERED: Final = 4_096  # texts between the one read last and the one yielded next


@dataclass(eq=False, slots=True)
class _Entry:
    """A text in flight; `answers` is filled by the engine's thread."""

    number: int
    plan: Plan
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
    engine: Engine, model: TextModel, lines: Iterable[str], options: TextOptions
) -> Iterator[TextResult]:
    """Answer texts in input order. Reads ahead as far as the engine's queue and BUFFERED allow.

    An error carries the number of its text, counted from 1. Leaving the iterator early cancels what is in
    flight. Raises Stopping when the engine does not run.
    """
    if not engine.healthy:
        raise Stopping("the engine does not run: start the service first")
    pending: deque[_Entry] = deque()
    ahead = 0  # source tokens of `pending`
    try:
        for number, line in enumerate(lines, 1):
            entry = _Entry(number, _numbered(number, partial(plan, model, line, options)))
            ahead += entry.plan.tokens
            while pending and (ahead > engine.settings.queue_tokens or len(pending) >= BUFFERED):
                ahead -= pending[0].plan.tokens
                yield _finish(model, pending.popleft())
            while not _submitted(engine, entry, must=not pending):  # somebody else fills the queue
                ahead -= pending[0].plan.tokens
                yield _finish(model, pending.popleft())
            pending.append(entry)
        while pending:
            yield _finish(model, pending.popleft())
    finally:
        engine.cancel([request for entry in pending for request in entry.requests])


def _submitted(engine: Engine, entry: _Entry, *, must: bool) -> bool:
    try:
        _numbered(entry.number, partial(engine.submit, entry.requests))
    except Overloaded:
        if must:
            raise
        return False
    return True


def _finish(model: TextModel, entry: _Entry) -> TextResult:
    entry.done.wait()
    results: list[Result] = []
    for index in range(len(entry.requests)):
        outcome = entry.answers[index]
        if not isinstance(outcome, Result):
            raise _named(entry.number, outcome)
        results.append(outcome)
    return compose(model, entry.plan, results)


def _numbered(number: int, call: Callable[[], T]) -> T:
    try:
        return call()
    except ConvoyError as error:
        raise _named(number, error) from error


def _named(number: int, error: ConvoyError) -> ConvoyError:
    return type(error)(f"line {number}: {error}")
