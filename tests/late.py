"""Lanes and engines with a stepper that is late, as on a GPU: flags are read a step after they were made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.search.state import SNAPSHOT
from engine.search.stepper import CompletedStep, PlainStepper
from tests.fake import FakeExecutor


class Snapshot:
    """Fields as they were when they were asked for."""

    def __init__(self, state: Any, slots: list[int]) -> None:
        self.fields = {name: np.array(getattr(state, name)[slots]) for name in SNAPSHOT}

    def rows(self) -> tuple[Any, list[int]]:
        return SimpleNamespace(**self.fields), list(range(len(self.fields["step"])))


class LateStepper(PlainStepper):
    late = 1

    def launch(self, n: int, *, attention: bool) -> CompletedStep:
        landed = super().launch(n, attention=attention)
        return landed._replace(weights=None if landed.weights is None else landed.weights.copy())

    def snapshot(self, slots: Any) -> Any:
        return Snapshot(self.search.state, list(slots))


@pytest.fixture(params=["plain", "late"])
def stepper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fake executors have this stepper."""
    if request.param == "late":
        monkeypatch.setattr(FakeExecutor, "stepper", lambda self: LateStepper(self))
    return str(request.param)
