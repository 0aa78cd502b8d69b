"""Steps as captured graphs: emulated on the CPU (`tests.support.emulated`) and run on a GPU if any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.errors import DeadlineExceeded
from engine.executors.cuda import captured_slots, executor, stepper
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.stepper import CapturedStepper
from engine.executors.cuda.streams import CudaWork, LaneStreams
from engine.executors.torch import executor as torch_executor
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.launch import Device
from engine.kernels.launches import Call
from engine.schedule.engine import Engine, EngineSettings
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Request, Result
from loadtest.engine.nothing import Nothing
from tests.engine.models.test_golden_search import TORCH_KINDS, check, decode, options_of, settings_of
from tests.support import cases
from tests.support.emulated import Emulation, Forbidden, Over
from tests.support.fake import FakeExecutor, FakeModel
from tests.support.golden_fixtures import fixture, parameters
from tests.support.host_kernels import COMPILER
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model
from tests.support.rig import MODEL, PAST, Inbox, assert_right, exhaust, turn
from tests.support.thorough import THOROUGH, some, some_of

NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU, or a torch without CUDA"),
]
PLACES = ["emulated", pytest.param("gpu", marks=GPU)]
NAMES = (
    "glu",
    "light",
    "transformer",
    "windowed",
    "aan",
    "convs2s",
    "slicenet",
    "lm adaptive",
    "ensemble",
    "fused",
)
BEAMS, SLOTS = 3, 4
FORTY_TOKENS = DecodeOptions(beam_size=3, min_length=40, max_length=40)


def captured(
    place: str, name: str, work: LaneStreams | None = None, dtype=torch.float32, slots=SLOTS
) -> Lane:
    if place == "gpu":
        net = deepcopy(model(name)).to("cuda", dtype)
        return lane_of(
            CapturedExecutor(net, (BEAMS, slots), CudaWork("cuda"), Kernels(Device("cuda")), warm=True)
        )
    return lane_of(CapturedExecutor(model(name), (BEAMS, slots), work or Emulation()))


def random_jobs(name: str, seed: int, count: int) -> list[tuple[list[int], DecodeOptions]]:
    """Mostly plain searches, of one of every kind of options among the others."""
    g, jobs, reads = np.random.default_rng(seed), [], CONFIGS[name].reads_source
    for _ in range(count):
        options = cases.options(g, 47, BEAMS, longest=20)
        if g.random() < 0.6:
            options = DecodeOptions(beam_size=options.beam_size, n_best=options.n_best, max_length_b=20)
        if name == "fused":
            options = replace(options, lm_weight=float(g.choice([0.0, 0.5, 2.0])))
        if not reads:
            options = replace(options, alignment=False, coverage_penalty=0.0)
        source = g.integers(4, 47, g.integers(0, 70)).tolist() if reads else []
        jobs.append(([*source, 2], options))
    return jobs


@contextmanager
def no_waiting(on: bool) -> Iterator[None]:
    """On a GPU, whatever waits for the device raises."""
    if on:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if on:
            torch.cuda.set_sync_debug_mode("default")


def run(lane: Lane, jobs, seed: int, *, strict: bool = False) -> list[Result]:
    """Jobs that join a few at a time; now and then one in a slot is dropped and begins anew."""
    g, results = np.random.default_rng(seed), {}
    waiting = [Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)]
    while waiting or lane.active:
        joining = min(len(waiting), lane.free, int(g.integers(0, 3)))
        if joining:
            lane.admit([waiting.pop(0) for _ in range(joining)])
        if lane.active:
            with no_waiting(strict):
                lane.step()
        if lane.active and g.random() < 0.05:
            waiting.append(lane.drop(lane.active[int(g.integers(len(lane.active)))]))
    return [results[i] for i in range(len(jobs))]


def assert_same(found, wanted, scores: float = 1e-4) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other), (one, other)
        if not isinstance(one, Result):
            continue
        assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.finish == b.finish
            np.testing.assert_allclose(a.score, b.score, rtol=scores, atol=scores)
            np.testing.assert_allclose(a.token_scores, b.token_scores, atol=scores)
            if b.attention is not None:
                np.testing.assert_allclose(a.attention, b.attention, atol=scores)


@pytest.mark.parametrize("name", some_of(NAMES, 3))
@pytest.mark.parametrize("place", PLACES)
def test_requests_in_flight_through_graphs_are_answered_as_without_them(place: str, name: str) -> None:
    jobs = random_jobs(name, 5, some(24, 2))
    wanted = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS)), jobs, 1)
    lane = captured(place, name)
    assert_same(run(lane, jobs, 1), wanted)
    if place == "gpu":  # everything has been compiled and captured: now nothing may wait
        assert_same(run(lane, jobs, 1, strict=True), wanted)
    if place == "emulated":
        assert lane.executor.work.replays > 3 * lane.executor.work.captures
        # and everything again: what is captured now serves later requests too
        before = lane.executor.work.captures
        assert_same(run(lane, jobs, 1), wanted)
        assert lane.executor.work.captures < 2 * before


@pytest.mark.parametrize("name", ["glu", "transformer", "aan"])
@pytest.mark.parametrize("place", PLACES)
def test_alone_and_among_others_tokens_are_equal_in_fp32(place: str, name: str) -> None:
    lane, jobs = captured(place, name), random_jobs(name, 9, some(12, 2))
    together = run(lane, jobs, 2)
    for job, among in zip(jobs, together, strict=True):
        assert_same(run(lane, [job], 0), [among])


@pytest.mark.parametrize("name", parameters("dyn_glu", "light_noglu", "transformer_base"))
@pytest.mark.parametrize("place", PLACES)
def test_graphs_find_the_references_hypotheses(place: str, name: str) -> None:
    from engine.models import load

    golden, bundle = fixture(name).golden, fixture(name).bundle
    net = load(bundle.config, bundle.weights())
    kinds = TORCH_KINDS
    for number, (label, setting) in enumerate(settings_of(name, "torch").items()):
        if label not in kinds or (place == "gpu" and "prefix" in label):
            continue  # a prefix changes the shortest length between steps, which no stream of ours waits for
        params, prefixes = setting["params"], setting.get("prefix")
        lane_width = max(4, params["beam_size"])
        work: LaneStreams = CudaWork("cuda") if place == "gpu" else Emulation()
        kernels = Kernels(Device("cuda")) if place == "gpu" else None
        made = net.to("cuda") if place == "gpu" else net
        lane = lane_of(CapturedExecutor(made, (lane_width, 16), work, kernels))
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
def test_our_kernels_append_to_rings_and_read_prefixes_of_blocks_within_graphs(name, host) -> None:
    work = Emulation(host)
    lane = lane_of(CapturedExecutor(model(name), (2, 2), work, Kernels(work)))
    plain = {"beam_size": 2, "max_length": 7}
    jobs = [([*range(4, 4 + n), 2], DecodeOptions(**plain, alignment=n == 9)) for n in (3, 9, 40)]
    wanted = run(lane_of(TorchExecutor(model(name), 2, 2)), jobs, 3)
    assert_same(run(lane, jobs, 3), wanted)
    assert work.replays > work.captures


def test_blocks_that_grow_move_and_what_was_captured_is_captured_anew(monkeypatch) -> None:
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


def test_idle_slots_of_a_bucket_touch_nothing_wherever_their_last_tenants_were(monkeypatch) -> None:
    """Four requests are dropped after 30 steps; the next three run in a bucket of four, in 16 columns."""
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
    """Has always something left to do when the host asks."""

    def mark(self) -> Over:
        return Over(0 if self._encoding else 1 << 30)


@pytest.mark.parametrize(
    ("work", "alignment", "slots", "steps"),
    [
        (Emulation, False, SLOTS, [1, 2, 3, 4, 4]),
        (Emulation, False, SLOTS + 1, [1, 2, 2, 2, 2]),
        (Busy, False, SLOTS, [1] * 5),
        (Emulation, True, SLOTS, [1] * 5),
    ],
)
def test_as_many_plain_steps_go_together_as_the_device_does_in_a_turn_of_its_host(
    work, alignment, slots, steps
) -> None:
    """So a request may keep its slot for some steps after its last, and gets the very same answer."""
    jobs = [
        ([4 + i, 7, 2], DecodeOptions(beam_size=3, min_length=15, max_length=15 + i, alignment=alignment))
        for i in range(SLOTS)
    ]
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane, results = captured("emulated", "glu", work(), slots=slots), dict[int, Result]()
    lane.admit([Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)])
    launched = [lane.step() for _ in steps]
    assert launched == steps
    lane.drain()
    assert_same([results[i] for i in range(SLOTS)], wanted)
    for i, one in enumerate(wanted):
        assert one.timings.steps <= results[i].timings.steps < one.timings.steps + max(steps)


def test_a_device_that_has_work_left_is_given_a_step_fewer_each_time() -> None:
    work = Emulation()
    lane = captured("emulated", "glu", work, slots=2)
    lane.admit([Request([4, 7, 2], FORTY_TOKENS, print) for _ in range(2)])
    launched = [lane.step() for _ in range(4)]
    work.mark = lambda: Over(1 << 30)
    launched += [lane.step() for _ in range(5)]
    assert launched == [1, 2, 3, 4, 4, 3, 2, 1, 1]


def test_a_sentence_that_has_a_lane_of_one_slot_gets_two_steps_at_a_time_at_most() -> None:
    """It waits for each launch, and steps behind its end would do nothing for anybody."""
    lane = captured("emulated", "glu", slots=1)
    lane.admit([Request([4, 7, 2], FORTY_TOKENS, print)])
    assert [lane.step() for _ in range(5)] == [1, 2, 2, 2, 2]


def test_common_graphs_are_captured_before_the_first_request() -> None:
    work = Emulation()
    executor = CapturedExecutor(model("transformer"), (BEAMS, SLOTS), work, warm=True)
    lane = lane_of(executor)
    # 1, 2, 4 slots; 32, 64, 96 positions; 64 columns are all there are; encoders of 8, 16, ... 64 positions
    assert work.captures == 3 * 3 * 1 + 8
    jobs = [([*range(4, 30), 2], DecodeOptions(beam_size=3, max_length=12)) for _ in range(6)]
    wanted = run(lane_of(TorchExecutor(model("transformer"), BEAMS, SLOTS)), jobs, 1)
    assert_same(run(lane, jobs, 1), wanted)
    assert work.captures <= 9 + 8 + 2  # and moves


def test_encoders_of_every_common_size_and_width_are_captured_before_the_first_request() -> None:
    work, g = Emulation(), np.random.default_rng(3)
    narrow = deepcopy(model("transformer")).to(torch.bfloat16)
    executor = CapturedExecutor(narrow, (1, SLOTS), work, warm=True)
    executor.stepper()
    before = work.captures
    for together in (1, 2, 3, 4):
        executor.encode([[*g.integers(4, 40, n), 2] for n in g.integers(1, 63, together)])
    assert work.captures == before


def test_graphs_that_nobody_used_lately_are_let_go(monkeypatch) -> None:
    monkeypatch.setattr(stepper, "MAX_GRAPHS", 2)
    lane, jobs = captured("emulated", "glu"), random_jobs("glu", 4, 12)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    assert_same(run(lane, jobs, 1), wanted)
    assert isinstance(lane.stepper, CapturedStepper)
    assert len(lane.stepper._graphs) <= 2


# --- encoding beside the steps


def test_sources_are_encoded_while_others_are_stepped_and_placed_when_they_are_ready() -> None:
    jobs = random_jobs("glu", 7, 16)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane, staged = captured("emulated", "glu", Emulation(slow=3)), 0
    results: dict[int, object] = {}
    waiting = [Request(s, o, lambda x, i=i: results.__setitem__(i, x)) for i, (s, o) in enumerate(jobs)]
    everybody = list(waiting)
    while waiting or lane.active:
        if waiting and lane.free:
            lane.admit([waiting.pop(0)])
        assert lane.active
        assert lane.free == SLOTS - len(lane.active) - len(lane.waiting)
        staged += len(lane.waiting)
        lane.step()
    assert staged > 10
    assert_same([results[i] for i in range(len(jobs))], wanted)
    assert all(r.admitted > 0 and r.encode_seconds > 0 for r in everybody)


def test_a_request_that_is_cancelled_while_it_is_encoded_takes_no_slot() -> None:
    lane = captured("emulated", "glu", Emulation(slow=3))
    long = DecodeOptions(beam_size=2, min_length=12, max_length=12)
    first, second, third = (Request([4 + i, 2], long, [].append) for i in range(3))
    lane.admit([first])
    lane.admit([second, third])
    second.cancelled = True
    for _ in range(4):
        lane.step()
    assert [f.request for f in lane.active] == [first, third]


def test_a_lane_that_is_cleared_gives_back_what_is_staged_and_what_is_done_but_not_yet_told() -> None:
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
def test_an_engine_over_two_devices_answers_among_cancellations_and_deadlines(place: str) -> None:
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


# --- what the emulation would notice


def test_an_emulated_graph_repeats_what_was_captured_and_nothing_else() -> None:
    work, total, host = Emulation(), torch.zeros(2), [1.0]

    def step() -> None:
        total.add_(host[0] * torch.ones_like(total))

    step()
    replay = work.capture(step)
    assert total.tolist() == [1, 1]  # capturing does nothing
    host[0] = 5.0
    replay()
    assert total.tolist() == [2, 2]  # the host's value is what it was
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
def test_a_step_that_waits_for_values_or_copies_them_from_the_host_is_refused(step) -> None:
    with pytest.raises(Forbidden):
        Emulation().capture(lambda: step(torch.ones(3)))


def test_a_value_of_the_hosts_in_a_step_of_the_model_shows(monkeypatch) -> None:
    """The clock of the rings as an int, which is right without graphs: a replay writes one column always."""
    jobs = [([*range(4, 12), 2], DecodeOptions(beam_size=3, min_length=9, max_length=9))]
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, SLOTS)), jobs, 1)
    lane = captured("emulated", "glu")
    lane.executor.history.rings.clock = 0
    with pytest.raises(AssertionError):
        assert_same(run(lane, jobs, 1), wanted)


# --- precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", some_of([n for n in CONFIGS if n.split()[0] != "slicenet" or n == "slicenet"], 4)
)
def test_narrow_models_score_nearly_as_in_fp32(name: str, dtype: torch.dtype) -> None:
    """Forced along one target, so that a near tie that falls otherwise does not end the comparison."""
    rng = np.random.default_rng(2)
    source = [*rng.integers(4, 47, 20).tolist(), 2] if CONFIGS[name].reads_source else [2]
    target = tuple(rng.integers(4, 47, 12).tolist())
    jobs = [(source, DecodeOptions(beam_size=2, prefix=target, max_length=12))]
    (wide,) = run(lane_of(TorchExecutor(model(name), 2, 1)), jobs, 0)
    narrow = deepcopy(model(name)).to(dtype)
    (found,) = run(lane_of(TorchExecutor(narrow, 2, 1)), jobs, 0)
    a, b = (np.array(r.hypotheses[0].token_scores) for r in (wide, found))
    scale = np.abs(a).max()
    assert np.abs(a - b).max() < (0.08 if dtype == torch.bfloat16 else 0.02) * scale
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("name", ["glu", "transformer", "aan", "lm plain"])
def test_narrow_models_run_through_graphs(name: str) -> None:
    narrow, jobs = deepcopy(model(name)).to(torch.bfloat16), random_jobs(name, 3, some(8, 2))
    wanted = run(lane_of(TorchExecutor(narrow, BEAMS, SLOTS)), jobs, 1)
    work = Emulation()
    found = run(lane_of(CapturedExecutor(narrow, (BEAMS, SLOTS), work)), jobs, 1)
    assert work.replays
    same = [
        a.hypotheses[0].tokens == b.hypotheses[0].tokens
        for a, b in zip(found, wanted, strict=True)
        if isinstance(b, Result)
    ]
    assert np.mean(same) > 0.5  # near ties fall otherwise in a bucket of more rows


@pytest.mark.parametrize("slots", [1, 16])
def test_the_cuda_backend_selects_from_logits_that_were_never_rounded(slots: int) -> None:
    """Of bf16's logits 0.7 % have another best token. Of few rows and of many, which take other products."""
    calls: list[Call] = []
    narrow = deepcopy(model("glu")).to(torch.bfloat16)
    made = CapturedExecutor(narrow, (1, slots), Nothing(), Kernels(calls.append)).stepper()
    request = Request([5, 6, 2], DecodeOptions(beam_size=1), print)
    encoded = made.executor.encode([request.source] * slots)
    for slot in range(slots):
        made.place(encoded, [slot], [slot], [request])
    made.launch(slots, attention=False)
    (selection,) = [call for call in calls if call.kernel.entry == "select_best"]
    logits = selection.arguments[0]
    assert isinstance(logits, torch.Tensor)
    assert (selection.kernel.element, logits.dtype) == ("float", torch.float32)


def test_the_torch_backend_selects_from_logits_that_were_never_rounded(monkeypatch) -> None:
    given: list[torch.Tensor] = []
    plain = torch_executor.select

    def noted(logits: torch.Tensor, *more: object) -> object:
        given.append(logits)
        return plain(logits, *more)

    monkeypatch.setattr(torch_executor, "select", noted)
    job = [5, 6, 2], DecodeOptions(beam_size=1, max_length=3)
    run(lane_of(TorchExecutor(deepcopy(model("glu")).to(torch.bfloat16), 1, 1)), [job], 0)
    assert given[0].dtype == torch.float32
    assert not torch.equal(given[0], given[0].bfloat16().float())


# --- one lane for each device


def test_lanes_of_one_width_share_a_queue_and_the_emptier_one_takes_the_next() -> None:
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


def test_a_device_that_is_busy_leaves_its_queue_to_the_other() -> None:
    """One group of long requests fills the first device; the next requests don't wait behind it."""
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
