"""Lanes: taking, moving and reusing slots changes no answer."""

import dataclasses
import time

import numpy as np
import pytest

from engine.errors import ExecutorFailed
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request, Result
from tests.support import cases
from tests.support.fake import EOS, FakeExecutor, FakeModel
from tests.support.late import stepper  # noqa: F401

pytestmark = pytest.mark.usefixtures("stepper")
LONG = DecodeOptions(beam_size=4, n_best=2, min_length=13, max_length=13)


def lane_of(executor):
    outcomes = {}
    return Lane(executor, outcomes.__setitem__), outcomes


def assert_equals_oracle(model, request, outcome):
    wanted = cases.expect(model, request.source, request.options, 14)
    if wanted:
        assert isinstance(outcome, Result)
        cases.same(outcome.hypotheses, wanted, model, request.source)
    else:
        assert isinstance(outcome, ExecutorFailed)


@pytest.mark.parametrize("seed", range(4))
def test_random_drops_do_not_change_other_answers(seed):
    """The last active slot moves into the hole of any dropped request, and its answer does not change."""
    g = np.random.default_rng(seed)
    model = FakeModel(seed=seed)
    lane, outcomes = lane_of(FakeExecutor(model, slots=5, beams=6))
    waiting = [Request(cases.source(g, 19), cases.options(g, 19, 6), print) for _ in range(150)]
    everybody, dropped = list(waiting), []
    while waiting or lane.active:
        if waiting and lane.free and g.random() < 0.7:
            count = int(g.integers(1, lane.free + 1))
            lane.admit(waiting[:count])
            del waiting[:count]
        if lane.active:
            lane.step()
        if lane.active and g.random() < 0.3:
            flight = lane.active[int(g.integers(len(lane.active)))]
            request = flight.request
            assert lane.drop(flight) is request
            assert request not in [f.request for f in lane.active]
            dropped.append(request)
    assert len(dropped) > 10
    assert set(outcomes) == set(everybody) - set(dropped)
    for request, outcome in outcomes.items():
        assert_equals_oracle(model, request, outcome)


def test_a_moved_slot_keeps_its_position_and_its_beams():
    model = FakeModel(seed=8)
    lane, outcomes = lane_of(FakeExecutor(model, slots=3, beams=4))
    requests = [Request([5 + i, 6, EOS], LONG, print) for i in range(3)]
    lane.admit(requests[:1])
    lane.step()
    lane.step()
    lane.admit(requests[1:])  # the last two are two steps behind
    lane.step()
    parents = lane.search.state.parents[2].tolist()
    lane.drop(lane.active[0])
    inputs = lane.search.inputs(2)
    assert inputs.positions.tolist() == [[1], [1]]
    assert inputs.parents[0].tolist() == parents
    lane.drain()
    for request in requests[1:]:
        assert_equals_oracle(model, request, outcomes[request])


def test_a_reused_slot_has_no_state_of_its_last_request():
    model = FakeModel(seed=6)
    g = np.random.default_rng(0)
    executor = FakeExecutor(model, slots=1, beams=4)
    lane, outcomes = lane_of(executor)
    loud = DecodeOptions(
        beam_size=4,
        prefix=(5, 6, 7),
        no_repeat_ngram_size=1,
        min_length=9,
        max_length=12,
        unk_penalty=50.0,
        temperature=3.0,
        alignment=True,
    )
    for kind in ({}, {"sampling": True, "top_k": 2, "top_p": 0.3}, {"diverse_groups": 2}):
        for steps in (1, 5, 20):
            lane.admit([Request([4, 5, 6, 7, EOS], dataclasses.replace(loud, **kind), print)])
            for _ in range(steps):
                if lane.active:
                    lane.step()
            if lane.active:
                lane.drop(lane.active[0])
            request = Request(cases.source(g, 19), cases.options(g, 19, 4), print)
            lane.admit([request])
            inputs = lane.search.inputs(1)
            assert (inputs.tokens.tolist(), inputs.positions.tolist()) == ([[EOS] * 4], [[0]])
            assert inputs.parents.tolist() == [[0, 1, 2, 3]]
            lane.drain()
            assert_equals_oracle(model, request, outcomes[request])


class Recording(FakeExecutor):
    """An executor that records its calls, and fails on demand."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.attention, self.encoded, self.moves = [], [], []
        self.bad_slot = None

    def encode(self, sources):
        self.encoded.append(list(sources))
        return super().encode(sources)

    def place(self, encoded, i, slot, prefix=()):
        if slot == self.bad_slot:
            raise MemoryError("no room")
        super().place(encoded, i, slot, prefix)

    def step(self, n, inputs, *, attention=False):
        self.attention.append(attention)
        return super().step(n, inputs, attention=attention)

    def move(self, source, target):
        self.moves.append((source, target))
        super().move(source, target)


def test_attention_is_computed_only_while_a_request_needs_it(stepper):  # noqa: F811
    model = FakeModel(seed=2)
    executor = Recording(model)
    lane, outcomes = lane_of(executor)
    plain = Request([4, 5, EOS], LONG, print)
    short = DecodeOptions(beam_size=3, n_best=3, min_length=3, max_length=4, alignment=True)
    aligned = Request([6, 7, 8, 9, EOS], short, print)
    lane.admit([plain, aligned])
    lane.drain()
    steps, late = outcomes[aligned].timings.steps, int(stepper == "late")
    assert executor.attention == [True] * (steps + late) + [False] * (14 - steps)
    assert all(h.attention is None for h in outcomes[plain].hypotheses)
    for h in outcomes[aligned].hypotheses:
        assert h.attention.shape == (len(h.tokens) + 1, 5)
        np.testing.assert_allclose(h.attention.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(h.attention, model.attention(aligned.source, h.tokens), atol=1e-5)


def test_the_sources_of_one_admission_are_encoded_together():
    executor = Recording(FakeModel())
    lane, _ = lane_of(executor)
    requests = [Request([4, EOS], LONG, print), Request([5, 6, EOS], LONG, print)]
    assert lane.admit(requests) >= 0
    assert executor.encoded == [[[4, EOS], [5, 6, EOS]]]
    assert lane.free == 2


def test_active_slots_stay_a_prefix():
    executor = Recording(FakeModel())
    lane, _ = lane_of(executor)
    requests = [Request([4 + i, EOS], LONG, print) for i in range(4)]
    lane.admit(requests)
    lane.drop(lane.active[1])
    lane.drop(lane.active[2])
    assert executor.moves == [(3, 1)]
    assert [f.request for f in lane.active] == [requests[0], requests[3]]


@pytest.mark.parametrize("come", [0, 1, 2, 3])
def test_a_new_request_takes_a_freed_slot_and_no_other_slot_moves(come):
    model = FakeModel(seed=4)
    executor = Recording(model, slots=5, beams=4)
    lane, outcomes = lane_of(executor)
    short = DecodeOptions(beam_size=4, min_length=2, max_length=2)
    requests = [Request([4 + i, EOS], short if i in (0, 2) else LONG, print) for i in range(5)]
    lane.admit(requests)
    while lane.free < 2:
        lane.step()
    assert [(f.request, f.slot) for f in lane.active] == [(requests[i], i) for i in (1, 3, 4)]
    new = [Request([9, 4 + i, EOS], LONG, print) for i in range(come)]
    lane.admit(new[:2])
    lane.step()
    assert len(executor.moves) == max(0, 2 - come)
    assert [f.slot for f in lane.active] == [*range(3 + min(come, 2))]
    stay = {0: {1: 1, 3: 2, 4: 0}, 1: {1: 1, 3: 3, 4: 2}}.get(come, {1: 1, 3: 3, 4: 4})
    assert {i: f.slot for f in lane.active for i in stay if f.request is requests[i]} == stay
    if come > 2:
        lane.drop(lane.active[0])
        lane.admit(new[2:])
    lane.drain()
    for request in (*requests, *new):
        if request in outcomes:
            assert_equals_oracle(model, request, outcomes[request])
    assert len(outcomes) == 5 + come - (come > 2)


def test_a_failed_placement_takes_no_slot():
    model = FakeModel()
    executor = Recording(model)
    lane, outcomes = lane_of(executor)
    first = Request([4, 5, EOS], LONG, print)
    lane.admit([first])
    lane.step()
    executor.bad_slot = 2
    with pytest.raises(MemoryError):
        lane.admit([Request([6, EOS], LONG, print), Request([7, EOS], LONG, print)])
    assert lane.free == 3
    executor.bad_slot = None
    second = Request([8, 9, EOS], LONG, print)
    lane.admit([second])
    lane.drain()
    assert_equals_oracle(model, first, outcomes[first])
    assert_equals_oracle(model, second, outcomes[second])


def test_clearing_a_lane_frees_all_slots():
    model = FakeModel()
    lane, outcomes = lane_of(FakeExecutor(model))
    lost = [Request([4 + i, EOS], LONG, print) for i in range(3)]
    lane.admit(lost)
    lane.step()
    assert lane.clear() == lost
    assert lane.free == 4
    request = Request([9, 8, EOS], LONG, print)
    lane.admit([request])
    lane.drain()
    assert set(outcomes) == {request}
    assert_equals_oracle(model, request, outcomes[request])


def test_timings_add_up_to_the_time_since_arrival():
    lane, outcomes = lane_of(FakeExecutor(FakeModel()))
    request = Request([4, 5, EOS], LONG, print)
    lane.admit([request])
    lane.drain()
    total = time.monotonic() - request.arrived
    timings = outcomes[request].timings
    assert timings.steps == 14
    assert min(timings.queue, timings.encode, timings.decode) >= 0
    assert timings.queue + timings.encode + timings.decode <= total
