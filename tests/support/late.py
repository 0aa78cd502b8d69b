"""Lanes and engines with a late stepper, as on a GPU: flags are read one step after the step that set
them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.search.executor import SlotRequest
from engine.search.finished import finished_hypotheses
from engine.search.state import SNAPSHOT
from engine.search.stepper import CompletedStep, PlainStepper
from engine.types import Hypothesis
from tests.support.fake import FakeExecutor


class Snapshot:
    """A copy of the fields of finished and running slots at the time of the call."""

    def __init__(self, state: Any, done: list[int], running: list[int]) -> None:
        self.fields = SimpleNamespace(**{n: np.array(getattr(state, n)[done + running]) for n in SNAPSHOT})
        self.done, self.running = range(len(done)), range(len(done), len(done) + len(running))

    def hypotheses(self, finished: list[SlotRequest]) -> list[list[Hypothesis]]:
        return finished_hypotheses(self.fields, self.done, finished)

    def rows(self) -> tuple[Any, range]:
        return self.fields, self.running


class LateStepper(PlainStepper):
    flag_delay = 1

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        landed = super().launch(n, attention=attention)
        return landed._replace(weights=[weights.copy() for weights in landed.weights])

    def snapshot(self, done: Any, running: Any) -> Any:
        return Snapshot(self.search.state, list(done), list(running))


@pytest.fixture(params=["plain", "late"])
def stepper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the plain stepper and with the late one; return the kind."""
    if request.param == "late":
        monkeypatch.setattr(FakeExecutor, "stepper", lambda self: LateStepper(self))
    return str(request.param)
