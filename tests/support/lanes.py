"""Decode jobs in one lane, as soon as slots are free or in small groups that join running ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import DecodeOptions, Outcome, Request


def lane_of(executor: Executor) -> Lane:
    """Return a lane that answers each request by the request's own `reply`."""
    return Lane(executor, lambda request, outcome: request.reply(outcome))


def outcomes_of(
    lane: Lane,
    jobs: Sequence[tuple[list[int], DecodeOptions]],
    joining: Callable[[], int] | None = None,
) -> list[Outcome]:
    """Return the outcome of each job, in their order.

    lane: lane that decodes.
    jobs: source and options of each.
    joining: returns the number of jobs that may join before a step; by default all for which there are slots.
    """
    outcomes: dict[int, Outcome] = {}
    requests = [
        Request(source, options, lambda outcome, i=i: outcomes.__setitem__(i, outcome))
        for i, (source, options) in enumerate(jobs)
    ]
    if joining is None:
        lane.drain(requests)
    while len(outcomes) < len(jobs):
        count = min(lane.free, len(requests), joining()) if joining else 0
        if count:
            lane.admit(requests[:count])
            del requests[:count]
        if lane.active:
            lane.step()
    return [outcomes[i] for i in range(len(jobs))]


def decode(
    executor: Executor,
    jobs: Sequence[tuple[list[int], DecodeOptions]],
    g: np.random.Generator | None = None,
) -> list[Outcome]:
    """Return the outcomes of jobs on one lane, all started at once, or joining at random steps by `g`."""
    return outcomes_of(lane_of(executor), jobs, None if g is None else lambda: int(g.integers(0, 3)))
