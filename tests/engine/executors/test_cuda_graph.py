"""Steps as captured graphs, emulated on the CPU (`tests.support.emulated`) or run on a GPU."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from engine.executors.cuda import captured_slots, executor, stepper
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.stepper import CapturedStepper
from engine.executors.cuda.streams import CudaStreams, LaneStreams
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.launch import Device
from engine.types import DecodeOptions, Request, Result
from tests.engine.models.test_golden_search import TORCH_KINDS, check, decode, options_of, settings_of
from tests.support.captured import (
    BEAMS,
    FORTY_TOKENS,
    NEEDS_COMPILER,
    NEEDS_GPU,
    SLOTS,
    assert_same,
    captured,
    random_jobs,
    run,
)
from tests.support.emulated import Emulation, Over
from tests.support.golden_fixtures import fixture, parameters
from tests.support.lanes import lane_of
from tests.support.models import model
from tests.support.thorough import THOROUGH, some, some_of

PLACES = ["emulated", pytest.param("gpu", marks=[pytest.mark.gpu, NEEDS_GPU])]
NAMES = (
    *("glu", "light", "transformer", "windowed", "aan", "convs2s", "slicenet", "lm adaptive"),
    *("ensemble", "fused"),
)


@pytest.mark.parametrize("name", some_of(NAMES, 3))
@pytest.mark.parametrize("place", PLACES)
def test_answers_of_captured_steps_equal_plain_torch(place: str, name: str) -> None:
    jobs = random_jobs(name, 5, some(24, 2))
    wanted = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS)), jobs, 1)
    lane = captured(place, name)
    assert_same(run(lane, jobs, 1), wanted)
    if place == "gpu":  # everything has been compiled and captured, so nothing may wait from now on
        assert_same(run(lane, jobs, 1, strict=True), wanted)
    if place == "emulated":
        assert lane.executor.streams.replays > 3 * lane.executor.streams.captures
        # later requests replay the same graphs
        before = lane.executor.streams.captures
        assert_same(run(lane, jobs, 1), wanted)
        assert lane.executor.streams.captures < 2 * before


@pytest.mark.parametrize("name", ["glu", "transformer", "aan"])
@pytest.mark.parametrize("place", PLACES)
def test_batched_tokens_equal_single_tokens_in_fp32(place: str, name: str) -> None:
    lane, jobs = captured(place, name), random_jobs(name, 9, some(12, 2))
    together = run(lane, jobs, 2)
    for job, among in zip(jobs, together, strict=True):
        assert_same(run(lane, [job], 0), [among])


@pytest.mark.parametrize("name", parameters("dyn_glu", "light_noglu", "transformer_base"))
@pytest.mark.parametrize("place", PLACES)
def test_captured_steps_find_the_hypotheses_of_the_reference(place: str, name: str) -> None:
    from engine.models import load

    golden, bundle = fixture(name).golden, fixture(name).bundle
    net = load(bundle.config, bundle.weights())
    kinds = TORCH_KINDS
    for number, (label, setting) in enumerate(settings_of(name, "torch").items()):
        if label not in kinds or (place == "gpu" and "prefix" in label):
            continue  # a prefix changes the shortest length between steps, for which our streams do not wait
        params, prefixes = setting["params"], setting.get("prefix")
        lane_width = max(4, params["beam_size"])
        streams: LaneStreams = CudaStreams("cuda") if place == "gpu" else Emulation()
        kernels = Device("cuda").kernels() if place == "gpu" else None
        made = net.to("cuda") if place == "gpu" else net
        lane = lane_of(CapturedExecutor(made, (lane_width, 16), streams, kernels))
        both = golden["batches_as_given"][:2]
        for members in both if THOROUGH or place == "gpu" else both[number % 2 :][:1]:
            width = max(len(golden["src"][i]) for i in members)
            longest = int(params["max_len_a"] * width + params["max_len_b"])
            rows = {i: prefixes[i] if prefixes else [] for i in members}
            batch = [(golden["src"][i], options_of(params, longest, rows[i])) for i in members]
            free = max((sum(t != 1 for t in rows[i]) for i in members), default=0)
            for i, result in zip(members, decode(lane, batch, free), strict=True):
                assert isinstance(result, Result), result
                check(f"{name}/{label}/{i}", setting["results"][i], result)


@NEEDS_COMPILER
@pytest.mark.parametrize("name", some_of(["transformer", "light", "glu"]))
def test_kernels_append_to_rings_and_read_prefixes_of_blocks_in_graphs(name, host) -> None:
    streams = Emulation(host)
    lane = lane_of(CapturedExecutor(model(name), (2, 2), streams, Kernels(streams)))
    plain = {"beam_size": 2, "max_length": 7}
    jobs = [([*range(4, 4 + n), 2], DecodeOptions(**plain, alignment=n == 9)) for n in (3, 9, 40)]
    wanted = run(lane_of(TorchExecutor(model(name), 2, 2)), jobs, 3)
    assert_same(run(lane, jobs, 3), wanted)
    assert streams.replays > streams.captures


def test_graphs_are_captured_again_after_blocks_have_moved(monkeypatch) -> None:
    monkeypatch.setattr(executor, "INITIAL_POSITIONS", 32)
    monkeypatch.setattr(captured_slots, "SMALLEST_COLUMNS", 16)
    lane = captured("emulated", "transformer")
    jobs = [
        ([*([5 + i] * n), 2], DecodeOptions(beam_size=2, min_length=m, max_length=m))
        for i, (n, m) in enumerate([(5, 9), (20, 30), (60, 20), (9, 39), (31, 4), (94, 33)])
    ]
    before, after = (([token] * 5 + [2], jobs[0][1]) for token in (13, 14))  # of one size
    jobs = [before, *jobs, after]
    alone = lane_of(TorchExecutor(model("transformer"), BEAMS, SLOTS))
    for batch in ([before], jobs, [after]):
        assert_same(run(lane, batch, 0), run(alone, batch, 0))
    assert lane.executor.generation >= 2
    assert lane.executor.memory.mask.shape[1] == 96


def test_idle_slots_of_a_bucket_change_nothing(monkeypatch) -> None:
    """Four requests are dropped after 30 steps; the next three run in a bucket of four slots."""
    monkeypatch.setattr(captured_slots, "SMALLEST_COLUMNS", 16)
    lane = captured("emulated", "transformer")
    long = DecodeOptions(beam_size=3, min_length=39, max_length=39)
    lane.admit([Request([4 + i, 2], long, print) for i in range(4)])
    steps = 0
    while steps < 30:
        steps += lane.step()
    while lane.active:
        lane.drop(lane.active[0])
    jobs = [([9 + i, 5, 2], DecodeOptions(beam_size=3, min_length=8, max_length=8)) for i in range(3)]
    wanted = run(lane_of(TorchExecutor(model("transformer"), BEAMS, SLOTS)), jobs, 1)
    results: dict[int, object] = {}
    lane.admit([Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)])
    while lane.active:
        lane.step()
        state = lane.search.state
        assert state.done[3]
        assert state.step[3] == 0
    assert_same([results[i] for i in range(3)], wanted)


class Busy(Emulation):
    """A device that is busy whenever the host queries it."""

    def mark(self) -> Over:
        return Over(0 if self._encoding else 1 << 30)


@pytest.mark.parametrize(
    ("streams", "alignment", "slots", "steps"),
    [
        (Emulation, False, SLOTS, [1, 2, 3, 4, 4]),
        (Emulation, False, SLOTS + 1, [1, 2, 2, 2, 2]),
        (Busy, False, SLOTS, [1] * 5),
        (Emulation, True, SLOTS, [1] * 5),
    ],
)
def test_launches_grow_to_the_steps_that_the_device_runs_in_a_turn_of_the_host(
    streams, alignment, slots, steps
) -> None:
    """A request may keep its slot for some steps after its last one; its answer does not change."""
    jobs = [
        ([4 + i, 7, 2], DecodeOptions(beam_size=3, min_length=15, max_length=15 + i, alignment=alignment))
        for i in range(SLOTS)
    ]
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane, results = captured("emulated", "glu", streams(), slots=slots), dict[int, Result]()
    lane.admit([Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)])
    launched = [lane.step() for _ in steps]
    assert launched == steps
    lane.drain()
    assert_same([results[i] for i in range(SLOTS)], wanted)
    for i, one in enumerate(wanted):
        assert one.timings.steps <= results[i].timings.steps < one.timings.steps + max(steps)


def test_each_launch_to_a_busy_device_has_a_step_fewer() -> None:
    streams = Emulation()
    lane = captured("emulated", "glu", streams, slots=2)
    lane.admit([Request([4, 7, 2], FORTY_TOKENS, print) for _ in range(2)])
    launched = [lane.step() for _ in range(4)]
    streams.mark = lambda: Over(1 << 30)
    launched += [lane.step() for _ in range(5)]
    assert launched == [1, 2, 3, 4, 4, 3, 2, 1, 1]


def test_launch_of_a_lane_of_one_slot_has_at_most_two_steps() -> None:
    """Steps after the end of the only request would be of no use."""
    lane = captured("emulated", "glu", slots=1)
    lane.admit([Request([4, 7, 2], FORTY_TOKENS, print)])
    assert [lane.step() for _ in range(5)] == [1, 2, 2, 2, 2]


def test_common_steps_are_captured_before_the_first_request() -> None:
    streams = Emulation()
    executor = CapturedExecutor(model("transformer"), (BEAMS, SLOTS), streams, warm=True)
    lane = lane_of(executor)
    # 1, 2, 4 slots; 32, 64, 96 positions; 64 columns; encoders of 8, 16, ... 64 positions
    assert streams.captures == 3 * 3 * 1 + 8
    jobs = [([*range(4, 30), 2], DecodeOptions(beam_size=3, max_length=12)) for _ in range(6)]
    wanted = run(lane_of(TorchExecutor(model("transformer"), BEAMS, SLOTS)), jobs, 1)
    assert_same(run(lane, jobs, 1), wanted)
    assert streams.captures <= 9 + 8 + 2  # two for moves


def test_common_encoder_batches_are_captured_before_the_first_request() -> None:
    streams, g = Emulation(), np.random.default_rng(3)
    narrow = deepcopy(model("transformer")).to(torch.bfloat16)
    executor = CapturedExecutor(narrow, (1, SLOTS), streams, warm=True)
    executor.stepper()
    before = streams.captures
    for together in (1, 2, 3, 4):
        executor.encode([[*g.integers(4, 40, n), 2] for n in g.integers(1, 63, together)])
    assert streams.captures == before


def test_least_recently_used_graphs_are_dropped(monkeypatch) -> None:
    monkeypatch.setattr(stepper, "MAX_GRAPHS", 2)
    lane, jobs = captured("emulated", "glu"), random_jobs("glu", 4, 12)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    assert_same(run(lane, jobs, 1), wanted)
    assert isinstance(lane.stepper, CapturedStepper)
    assert len(lane.stepper._graphs) <= 2
