"""Lanes and engines with a late stepper, as on a GPU: flags are read one step after the step that set
them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.search.executor import Ended
from engine.search.finished import finished_hypotheses
from engine.search.state import SNAPSHOT
from engine.search.stepper import CompletedStep, PlainStepper
from engine.types import Hypothesis
from tests.support.fake import FakeExecutor


class Snapshot:
    """A copy of the fields of finished and running slots at the time of the call."""

    def __init__(self, state: Any, done: list[int], going: list[int]) -> None:
        self.fields = SimpleNamespace(**{n: np.array(getattr(state, n)[done + going]) for n in SNAPSHOT})
        self.done, self.going = range(len(done)), range(len(done), len(done) + len(going))

    def hypotheses(self, ended: list[Ended]) -> list[list[Hypothesis]]:
        return finished_hypotheses(self.fields, self.done, ended)

    def rows(self) -> tuple[Any, range]:
        return self.fields, self.going


class LateStepper(PlainStepper):
    late = 1

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        landed = super().launch(n, attention=attention)
        return landed._replace(weights=[weights.copy() for weights in landed.weights])

    def snapshot(self, done: Any, going: Any) -> Any:
        return Snapshot(self.search.state, list(done), list(going))


@pytest.fixture(params=["plain", "late"])
def stepper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the plain stepper and with the late one; return the kind."""
    if request.param == "late":
        monkeypatch.setattr(FakeExecutor, "stepper", lambda self: LateStepper(self))
    return str(request.param)
