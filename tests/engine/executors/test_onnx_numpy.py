"""Sessions with bound numpy arrays equal sessions with fed arrays bit for bit."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.executors.onnx.executor import OnnxExecutor
from engine.search.state import trace
from tests.engine.executors.test_executors import inputs, join, leave
from tests.support import models

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["glu", "transformer"])
def test_step_with_bound_arrays_equals_step_with_fed_arrays_bit_for_bit(name):
    """Slots are filled and freed, memory and caches are resized, k, bans and attention change, and two lanes
    share the session."""
    rng, found = np.random.default_rng(3), models.sessions(name)
    assert not hasattr(found.step, "run_with_iobinding")
    both = [found, replace(found, step=found.step.session)]
    lanes = [[OnnxExecutor(sessions, beams, 4) for sessions in both] for beams in (2, 3)]
    slots: list[list[list]] = [[[], []], [[], []]]
    for step in range(60):
        which = int(rng.integers(2))
        pair, held = lanes[which], slots[which]
        if len(held[0]) < 4 and (not held[0] or rng.random() < 0.4):
            source = [*rng.integers(4, 47, int(rng.choice([3, 40, 70]))).tolist(), 2]
            for lane, own in zip(pair, held, strict=True):
                join(lane, own, [source])
        elif len(held[0]) > 1 and rng.random() < 0.3:
            gone = int(rng.integers(len(held[0])))
            for lane, own in zip(pair, held, strict=True):
                leave(lane, own, gone)
        n, beams = len(held[0]), pair[0].beams
        parents = rng.integers(0, beams, (n, beams))
        banned = rng.integers(4, 47, (n, beams, int(rng.integers(1, 4))))
        new = rng.integers(4, 47, (n, beams)).tolist()
        answers = []
        for lane, own in zip(pair, held, strict=True):
            fed = inputs(lane, own, parents, banned=banned, k=4 + 3 * (step % 2))
            answers.append(lane.step(n, fed, attention=step % 3 == 0))
            for slot, tokens in zip(own, new, strict=True):
                slot.prefixes = [[*p, token] for p, token in zip(slot.prefixes, tokens, strict=True)]
            if len(own[0].prefixes[0]) > 30:
                leave(lane, own, 0)
        for one, other in zip(*answers, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one, other)


def test_step_does_not_change_the_results_of_an_earlier_one():
    lane = models.executor("onnx", "glu", beams=2, slots=1)
    own: list = []
    join(lane, own, [[5, 9, 2]])
    first = lane.step(1, inputs(lane, own, np.zeros((1, 2), np.int64)))
    before = first.scores.copy(), first.ids.copy()
    own[0].prefixes = [[2, 7], [2, 11]]
    lane.step(1, inputs(lane, own, np.array([[0, 1]])))
    np.testing.assert_array_equal(first.scores, before[0])
    np.testing.assert_array_equal(first.ids, before[1])


def test_trace_follows_a_hypothesis_back_through_its_rows():
    rng = np.random.default_rng(1)
    trail = rng.integers(0, 3, (9, 3))
    for row in range(3):
        rows = trace(trail.tolist(), row, 8)
        assert len(rows) == 9
        assert rows[8] == row
        assert all(rows[at - 1] == trail[at][rows[at]] for at in range(1, 9))
        assert trace(trail.tolist(), row, 8, 5) == rows[5:]


def test_onnx_runtime_sends_no_telemetry(tmp_path):
    """If telemetry is on, ONNX Runtime stores data in a folder of the user."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", "import engine.executors.onnx.sessions"],
        env=environment | {"HOME": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name.lower()]
