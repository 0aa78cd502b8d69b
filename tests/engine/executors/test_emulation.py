"""The emulation of CUDA graphs (`tests.support.emulated`) detects steps that no graph may hold."""

from __future__ import annotations

import pytest
import torch

from engine.executors.torch.executor import TorchExecutor
from engine.types import DecodeOptions
from tests.support.captured import BEAMS, SLOTS, assert_same, captured, run
from tests.support.emulated import Emulation, Forbidden
from tests.support.lanes import lane_of
from tests.support.models import model


def test_emulated_graph_repeats_only_its_captured_operators() -> None:
    streams, total, host = Emulation(), torch.zeros(2), [1.0]

    def step() -> None:
        total.add_(host[0] * torch.ones_like(total))

    step()
    replay = streams.capture(step)
    assert total.tolist() == [1, 1]  # capturing does nothing
    host[0] = 5.0
    replay()
    assert total.tolist() == [2, 2]  # the captured value of the host
    total.fill_(10)
    replay()
    assert total.tolist() == [11, 11]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: torch.nonzero(x),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        lambda x: torch.masked_select(x, x > 0),
        lambda x: x + torch.arange(3),
    ],
)
def test_step_that_reads_values_back_or_copies_from_the_host_is_refused(step) -> None:
    with pytest.raises(Forbidden):
        Emulation().capture(lambda: step(torch.ones(3)))


def test_host_value_in_a_captured_step_gives_wrong_answers(monkeypatch) -> None:
    """The ring clock is an int here, so that each replay writes the same column."""
    jobs = [([*range(4, 12), 2], DecodeOptions(beam_size=3, min_length=9, max_length=9))]
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane = captured("emulated", "glu")
    lane.executor.history.rings.clock = 0
    with pytest.raises(AssertionError):
        assert_same(run(lane, jobs, 1), wanted)
