"""Lanes and engines on the cuda backend: staged sources, cancellation, several devices."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import DeadlineExceeded
from engine.executors.torch.executor import TorchExecutor
from engine.schedule.engine import Engine, EngineSettings
from engine.types import DecodeOptions, Request
from tests.support import cases
from tests.support.captured import BEAMS, NEEDS_GPU, SLOTS, assert_same, captured, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.fake import FakeExecutor, FakeModel
from tests.support.lanes import lane_of
from tests.support.models import model
from tests.support.rig import MODEL, PAST, Inbox, assert_right, exhaust, turn

PLACES = ["emulated", pytest.param("gpu", marks=[pytest.mark.gpu, NEEDS_GPU])]


def test_sources_are_encoded_during_steps_and_placed_when_ready() -> None:
    jobs = random_jobs("glu", 7, 16)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane, staged = captured("emulated", "glu", Emulation(slow=3)), 0
    results: dict[int, object] = {}
    waiting = [Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)]
    requests = list(waiting)
    while waiting or lane.active:
        if waiting and lane.free:
            lane.admit([waiting.pop(0)])
        assert lane.active
        assert lane.free == SLOTS - len(lane.active) - len(lane.waiting)
        staged += len(lane.waiting)
        lane.step()
    assert staged > 10
    assert_same([results[i] for i in range(len(jobs))], wanted)
    assert all(r.admitted > 0 and r.encode_seconds > 0 for r in requests)


def test_request_cancelled_during_encoding_takes_no_slot() -> None:
    lane = captured("emulated", "glu", Emulation(slow=3))
    long = DecodeOptions(beam_size=2, min_length=12, max_length=12)
    first, second, third = (Request([4 + i, 2], long, [].append) for i in range(3))
    lane.admit([first])
    lane.admit([second, third])
    second.cancelled = True
    for _ in range(4):
        lane.step()
    assert [f.request for f in lane.active] == [first, third]


def test_cleared_lane_returns_staged_active_and_unanswered_requests() -> None:
    lane = captured("emulated", "glu", Emulation(slow=9))
    short, long = (DecodeOptions(beam_size=2, min_length=m, max_length=m) for m in (1, 12))
    done, active, staged = (Request([4 + i, 2], o, print) for i, o in enumerate((short, long, long)))
    lane.admit([done, active])
    lane.admit([staged])
    for _ in range(3):
        lane.step()
    assert [f.request for f in lane.active] == [active]
    assert set(lane.clear()) == {done, active, staged}
    assert lane.free == SLOTS
    results: list[object] = []
    lane.drain([Request([9, 2], short, results.append)])
    (wanted,) = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), [([9, 2], short)], 0)
    assert_same(results, [wanted])


@pytest.mark.parametrize("place", PLACES)
def test_engine_with_two_devices_answers_despite_cancellations_and_deadlines(place: str) -> None:
    jobs = random_jobs("glu", 8, 30)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lanes = [captured(place, "glu", Emulation(slow=2)) for _ in range(2)]
    engine = Engine([lane.executor for lane in lanes], EngineSettings(encode_tokens=40))
    inbox, g = Inbox(), np.random.default_rng(6)
    requests = [inbox.request(source, options) for source, options in jobs]
    for begin in range(0, 30, 5):
        engine.submit(requests[begin : begin + 5])
        for _ in range(int(g.integers(1, 5))):
            turn(engine)
        engine.cancel([requests[begin]])
        if requests[begin + 1] not in inbox.outcomes:
            requests[begin + 1].deadline = PAST
    exhaust(engine)
    assert inbox.twice == 0
    assert engine.stats().active == (0, 0)
    late = 0
    for i, request in enumerate(requests):
        outcome = inbox.outcomes.get(request)
        if isinstance(outcome, DeadlineExceeded):
            assert request.deadline == PAST
            late += 1
        elif outcome is None:
            assert request.cancelled
        else:
            assert_same([outcome], [wanted[i]])
    assert late > 2


def test_lanes_of_equal_width_share_a_queue_and_the_emptier_one_admits_first() -> None:
    engine = Engine([FakeExecutor(MODEL, 2, 4), FakeExecutor(MODEL, 2, 8), FakeExecutor(MODEL, 3, 4)])
    inbox, g = Inbox(), np.random.default_rng(3)
    long = DecodeOptions(beam_size=3, min_length=9, max_length=9)
    engine.submit([inbox.request([4 + i, 2], long) for i in range(4)])
    engine.turn()
    assert [lane.executor.slots for lane in engine.lanes] == [2, 3, 2]  # the narrow ones first
    assert engine.stats().active == (2, 2, 0) or engine.stats().active == (1, 3, 0)
    for _ in range(10):
        engine.submit([inbox.request(cases.source(g, 19), cases.options(g, 19)) for _ in range(3)])
    exhaust(engine)
    for request, outcome in inbox.outcomes.items():
        if cases.expect(MODEL, request.source, request.options, 14):
            assert_right(request, outcome)


def test_busy_device_leaves_its_queue_to_the_other_one() -> None:
    """A long request fills the first device; later requests do not wait for it."""
    engine = Engine([FakeExecutor(FakeModel(seed=1), slots, 4) for slots in (1, 2)])
    inbox = Inbox()
    long = DecodeOptions(beam_size=3, min_length=13, max_length=13)
    short = DecodeOptions(beam_size=3, max_length=2)
    slow = inbox.request(options=long)
    quick = [inbox.request(options=short) for _ in range(6)]
    engine.submit([slow])
    for request in quick:
        engine.submit([request])
    exhaust(engine)
    assert list(inbox.outcomes)[-1] is slow
