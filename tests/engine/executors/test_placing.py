"""Placing and moving with kernels: one upload and one launch, nothing that waits, and the arrays that the
array code leaves."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.executors.cuda import placing
from engine.executors.cuda import stepper as cuda_stepper
from engine.executors.cuda.copies import SNAPSHOT_COLUMNS
from engine.executors.cuda.encoders import EXACT_SIZES, NARROW_SIZES
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.stepper import CapturedStepper
from engine.executors.cuda.streams import STAGING_NUMBERS, STAGING_PARTS, StagingRing
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.kernels.launches import Call
from engine.search.state import FIELDS, SNAPSHOT
from engine.types import DecodeOptions, Request
from tests.engine.executors.test_cuda_graph import CONFIGS, assert_same, random_jobs, run
from tests.support import cases
from tests.support.emulated import Emulation
from tests.support.host_kernels import COMPILER
from tests.support.lanes import lane_of
from tests.support.models import model

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
BEAMS, SLOTS = 3, 4


class Counted(Emulation):
    """Counts uploads and launches."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self.uploads, self.launches, self.downs = 0, [], 0

    def upload(self, parts: Any, target: torch.Tensor) -> None:
        self.uploads += 1
        with torch._C._DisableTorchDispatch():
            super().upload(parts, target)

    def fetch(self, tensor: torch.Tensor, target: torch.Tensor) -> None:
        self.downs += 1
        with torch._C._DisableTorchDispatch():
            super().fetch(tensor, target)

    def __call__(self, call: Call) -> None:
        self.launches.append(call.kernel.entry)
        with torch._C._DisableTorchDispatch():
            super().__call__(call)


class NoOperators(TorchDispatchMode):
    """Refuses every operator but views: what else there is would be a launch of its own, or would wait."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.is_view or func._schema.name in ("aten::detach", "aten::empty"), func
        return func(*args, **(kwargs or {}))


def stepper(work: Emulation, kernels: Kernels | None, name: str = "glu") -> CapturedStepper:
    return CapturedExecutor(model(name), (BEAMS, SLOTS), work, kernels).stepper()


def jobs(name: str, count: int = SLOTS) -> list[Request]:
    g = np.random.default_rng(3)
    reads = CONFIGS[name].reads_source
    made = []
    for _ in range(count):
        options = cases.options(g, 47, BEAMS, longest=20)
        source = [*g.integers(4, 47, g.integers(1, 40)).tolist(), 2] if reads else [2]
        made.append(Request(source, options, print))
    return made


def arrays(made: CapturedStepper) -> dict[str, torch.Tensor]:
    """All of a lane but what its last tenant left for nobody."""
    executor, state = made.executor, made.search.state
    held = {
        f"state.{name}": getattr(state, name) for name in FIELDS if name not in ("tokens", "scores", "trail")
    }
    held |= executor.memory.blocks | executor.history.rings.rings | {"mask": executor.memory.mask}
    held["ancestors"] = executor.history.rings.ancestors
    if (caches := executor.history.caches) is not None:
        held |= caches.blocks | {"writers": caches.writers}
    return held


@pytest.mark.parametrize("name", ["glu", "transformer", "aan", "lm plain"])
def test_placed_requests_and_moves_leave_what_the_array_code_leaves(host, name, monkeypatch):
    """Of searches that begin as others before, too, and where the device has no room for further ones."""
    monkeypatch.setattr(placing, "MAX_INITIAL_STATES", SLOTS + 2)
    work = Emulation(host)
    own, plain = stepper(work, Kernels(work), name), stepper(Emulation(), None, name)
    rounds = (jobs(name), [(3, 0)]), (jobs(name, 2), [(2, 1)]), (jobs(name)[::-1], [(1, 0)])
    for requests, moves in rounds:
        for made in (own, plain):
            encoded = made.executor.encode([r.source for r in requests])
            for slot, request in enumerate(requests):
                made.place(encoded, [slot], [slot], [request])
            made.move(moves)
        own._launch_changes_now()
        found, wanted = arrays(own), arrays(plain)
        for key, array in wanted.items():
            if key.endswith("plan"):  # as far as the longest target reaches
                for slot, longest in enumerate(plain.search.state.longest.tolist()):
                    assert torch.equal(found[key][slot, : longest + 1], array[slot, : longest + 1])
            elif key.endswith("history"):
                assert torch.equal(found[key][:, :, 0], array[:, :, 0])
            else:
                torch.testing.assert_close(
                    found[key], array, msg=lambda m, key=key: f"{key}: {m}", equal_nan=True
                )


def test_all_that_is_told_moved_and_placed_in_a_step_is_one_upload_and_a_launch_each_and_nothing_waits(host):
    work = Counted(host)
    made, requests = stepper(work, Kernels(work)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    made.executor.reserve(40, 20)
    for times in range(2):  # the first makes plans and room for the upload
        work.uploads, work.launches = 0, []
        with NoOperators() if times else nullcontext():
            for slot, request in enumerate(requests):
                made.place(encoded, [slot], [slot], [request])
            assert not work.launches
            made._launch_changes()
        # what searches begin with goes up once
        assert (work.uploads, work.launches) == (1 if times else 2, ["scatter"])
        work.uploads, work.launches, work.downs = 0, [], 0
        with NoOperators() if times else nullcontext():
            told = made.snapshot([], [0, 1])
            made.place(encoded, [0], [0], [requests[0]])
            made.move([(3, 1)])
            made.place(encoded, [2], [3], [requests[2]])
            assert not work.launches
            made._launch_changes_now()
        assert (work.uploads, work.launches, work.downs) == (1, ["scatter"] * 3, 1)
        state, _ = told.rows()
        longest = [r.options.lengths(len(r.source), made.executor.limits)[1] for r in requests]
        assert state.longest.tolist() == longest[:2]  # of those that have left
        there = made.search.state.longest.tolist()
        assert there == [longest[0], longest[3], longest[2], longest[2]]


def test_what_is_told_of_slots_is_one_upload_one_launch_and_one_copy_to_the_host(host):
    work = Counted(host)
    made, requests = stepper(work, Kernels(work)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    for _ in range(3):
        made.launch(SLOTS, attention=True)
    made.snapshot([1], [1]).rows()
    work.uploads, work.launches, work.downs = 0, [], 0
    with NoOperators():
        told = made.snapshot([1], [2, 0, 3])
        made._launch_changes_now()
    assert (work.uploads, work.launches, work.downs) == (1, ["follow_back", "scatter"], 1)
    state, rows = told.rows()
    assert list(rows) == [0, 1, 2]
    for name in SNAPSHOT:
        whole, found = getattr(made.search.state, name)[[2, 0, 3]].numpy(), getattr(state, name)
        assert found.dtype == whole.dtype
        wanted = whole[:, : found.shape[1]] if found.ndim > 2 else whole
        np.testing.assert_array_equal(found, wanted)
    assert state.tokens.shape[1] >= 3 + 2


def test_what_is_told_stays_as_it_was_until_what_is_told_next_is_read_too(host):
    work = Counted(host)
    made, requests = stepper(work, Kernels(work)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    made.launch(SLOTS, attention=True)
    wanted = [made.search.state.longest[slot].item() for slot in (1, 2)]
    told = [made.snapshot([], [slot]) for slot in (1, 2)]
    made._launch_changes_now()
    assert [int(one.rows()[0].longest[0]) for one in told] == wanted
    assert wanted[0] != wanted[1]


def test_who_is_placed_twice_in_a_slot_before_a_step_is_there_once(host):
    """A lane that was cleared gives its slots anew."""
    work = Counted(host)
    made, requests = stepper(work, Kernels(work)), jobs("glu", 2)
    encoded = made.executor.encode([r.source for r in requests])
    for i, request in enumerate(requests):
        made.place(encoded, [i], [0], [request])
    with work.decoding():
        made._launch_changes()
    assert int(made.search.state.words[0]) == len(requests[1].source) - 1


# --- encoding


@pytest.mark.parametrize("name", ["glu", "transformer", "convs2s", "slicenet"])
def test_in_fp32_an_encoding_is_the_same_bit_for_bit_whoever_is_encoded_with_it(name):
    encoders = CapturedExecutor(model(name), (1, 2), Emulation()).encoders
    g = np.random.default_rng(1)
    sources = [[*g.integers(4, 47, n).tolist(), 2] for n in (3, 5, 6, 7, 7, 12, 20, 3, 4, 5, 6, 70)]
    together = encoders(sources)
    specs = encoders.specs
    for source, row in zip(sources, together, strict=True):
        (alone,) = encoders([source])
        parts, others = (one.parts(specs, len(source)) for one in (alone, row))
        assert all(torch.equal(parts[spec.name], others[spec.name]) for spec in specs)


@pytest.mark.parametrize("name", ["glu", "light", "transformer"])
def test_packed_sources_are_encoded_as_padded_ones_are_and_whoever_lies_beside_them_changes_no_bit(
    host, name
):
    work, g = Emulation(host), np.random.default_rng(1)
    packed = CapturedExecutor(model(name), (1, 2), work, Kernels(work)).encoders
    padded = CapturedExecutor(model(name), (1, 2), Emulation()).encoders
    sources = [[*g.integers(4, 47, n).tolist(), 2] for n in (3, 5, 70, 7, 7, 12, 20, 3, 4, 5, 60, 33)]
    together, wanted = packed(sources), padded(sources)
    assert len({row.address for row in together}) == 2  # batches: 256 positions each
    for i, source in enumerate(sources):
        (alone,) = packed([source])
        parts = [row.parts(packed.specs, len(source)) for row in (together[i], alone, wanted[i])]
        for spec in packed.specs:
            assert torch.equal(parts[0][spec.name], parts[1][spec.name])
            torch.testing.assert_close(parts[0][spec.name], parts[2][spec.name], rtol=1e-4, atol=1e-5)


def test_packed_batches_have_a_few_sizes_each_captured_once_and_the_common_ones_at_the_start(host):
    work = Emulation(host)
    narrow = deepcopy(model("glu")).to(torch.bfloat16)
    executor = CapturedExecutor(narrow, (1, 2), work, Kernels(work), warm=True)
    executor.encoders.warm(2)
    captures = work.captures
    assert captures == 2  # 64 and 128 positions
    for count, size in ((1, 64), (8, 64), (9, 128), (16, 128)):
        rows = executor.encoders([[5, 6, 2]] * count)
        assert {row.width for row in rows} == {size}
        assert [row.begin for row in rows] == [*range(0, 8 * count, 8)]
    assert work.captures == captures
    assert executor.encoders([[5, 6, 2]] * 33)[0].width == 384
    exact = CapturedExecutor(model("glu"), (1, 2), work, Kernels(work)).encoders
    assert {row.width for row in exact([[5, 6, 2]] * 40)} == {256}
    assert len({row.address for row in exact([[5, 6, 2]] * 40)}) == 2


def test_models_whose_positions_meet_elsewhere_are_encoded_padded(host):
    """And those without kernels, whatever they are."""
    kinds = {}
    for name in ("glu", "transformer", "ensemble", "aan", "windowed", "convs2s", "slicenet"):
        work = Emulation(host)
        kinds[name] = type(CapturedExecutor(model(name), (1, 2), work, Kernels(work)).encoders).__name__
    packed = {name for name, kind in kinds.items() if kind == "PackedEncoders"}
    assert packed == {"glu", "transformer", "ensemble", "aan"}
    assert type(CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders).__name__ == "Encoders"


def test_batches_have_a_few_sizes_each_captured_once():
    work = Emulation()
    encoders = CapturedExecutor(deepcopy(model("glu")).to(torch.bfloat16), (1, 2), work).encoders
    source = [5, 6, 2]
    for count, size in ((1, 1), (3, 4), (4, 4), (33, 64), (64, 64), (65, 64)):
        rows = encoders([source] * count)
        assert rows[0].block.shape[0] == size
    assert work.captures == 3
    assert encoders.sizes == NARROW_SIZES
    assert CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders.sizes == EXACT_SIZES


def test_a_source_is_padded_by_its_own_length_to_at_most_an_eighth_more():
    encoders = CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders
    widest = -(-encoders.limits.source // 8) * 8
    for length in range(1, encoders.limits.source + 1):
        width = encoders.width(length)
        assert length <= width <= max(-(-length // 8) * 8, length * 9 / 8 + 8, 8)
        assert width % 8 == 0
        assert width <= widest


def test_a_hypothesis_reads_only_the_columns_that_were_told(host):
    """The tables of a long target are not copied whole for each token that is told."""
    work = Emulation(host)
    made = stepper(work, Kernels(work))
    request = Request([5, 6, 2], DecodeOptions(beam_size=2, min_length=3, max_length=9), print)
    made.place(made.executor.encode([request.source]), [0], [0], [request])
    for _ in range(2):
        made.launch(1, attention=False)
    state, rows = made.snapshot([], [0]).rows()
    assert 2 + 2 <= state.tokens.shape[1] == min(SNAPSHOT_COLUMNS, made.search.columns)
    assert list(rows) == [0]


def test_requests_of_one_encoding_are_waited_for_once():
    class Waits(Emulation):
        def __init__(self) -> None:
            super().__init__(slow=2)
            self.waits: list[int] = []

        def wait(self, mark, tensors):
            self.waits.append(len(tensors))

    work = Waits()
    made = stepper(work, Kernels(lambda call: None))
    jobs = random_jobs("glu", 5, 4)
    encoded = made.executor.encode([[5, 6, 2], [7, 8, 2], [4, 2], [9, 2]])
    for slot, (_, options) in enumerate(jobs):
        made.place(encoded, [slot], [slot], [Request([5, 6, 2], options, print)])
    made._launch_changes()
    assert work.waits == [1]


def test_a_large_lane_encodes_ahead_of_need_in_large_groups(monkeypatch):
    """And answers as if it did not: eight slots, with room for four more that are encoded."""
    monkeypatch.setattr(cuda_stepper, "MIN_SLOTS_TO_ENCODE_AHEAD", 8)
    monkeypatch.setattr(cuda_stepper, "SLOTS_PER_SOURCE_AHEAD", 2)
    wanted = run(lane_of(TorchExecutor(model("glu"), BEAMS, 8)), random_jobs("glu", 5, 40), 1)
    lane = lane_of(CapturedExecutor(model("glu"), (BEAMS, 8), Emulation(slow=2)))
    results: dict[int, Any] = {}
    waiting = [
        Request(s, o, lambda x, i=i: results.__setitem__(i, x))
        for i, (s, o) in enumerate(random_jobs("glu", 5, 40))
    ]
    groups, staged = [], 0
    while waiting or lane.active:
        full = len(lane.active) + sum(len(s.requests) for s in lane.waiting) >= 8
        if waiting and lane.free:
            group = [waiting.pop(0) for _ in range(min(lane.free, len(waiting)))]
            lane.admit(group)
            if full and waiting:
                groups.append(len(group))
        lane.step()
        assert len(lane.active) <= 8
        staged = max(staged, sum(len(s.requests) for s in lane.waiting))
    assert staged >= 3
    assert min(groups) >= 2
    assert_same([results[i] for i in range(40)], wanted)


def test_what_is_noted_out_of_order_is_done_in_the_order_in_which_it_was_asked(host):
    """A slot that moves although it has just been placed, one that moves on, and slots told after that."""
    work = Emulation(host)
    made, requests = stepper(work, Kernels(work)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    longest = [r.options.lengths(len(r.source), made.executor.limits)[1] for r in requests]
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    made.move([(3, 0)])
    made.move([(2, 3), (0, 1)])
    state, _ = made.snapshot([], [0, 1, 2, 3]).rows()
    assert state.longest.tolist() == [longest[3], longest[3], longest[2], longest[2]]
    # whoever is placed where a move begins comes after it
    made.move([(2, 0)])
    made.place(encoded, [1], [2], [requests[1]])
    made.launch(SLOTS, attention=True)
    state, _ = made.snapshot([], [0, 1, 2, 3]).rows()
    assert state.longest.tolist() == [longest[2], longest[3], longest[1], longest[2]]


def test_who_reads_what_is_told_does_not_wait_for_the_step_behind_it(host):
    """Else the device would have nothing to do until the host has made answers of it."""
    order: list[str] = []

    class Ordered(Emulation):
        def mark(self) -> Any:
            order.append("mark")
            waiting = partial(order.append, f"mark {order.count('mark')}")
            return SimpleNamespace(synchronize=waiting, query=lambda: False)

        def __call__(self, call: Call) -> None:
            order.append(call.kernel.entry)
            super().__call__(call)

    work = Ordered(host)
    made = stepper(work, Kernels(work))
    request = Request([5, 6, 2], DecodeOptions(beam_size=2, max_length=9), print)
    made.place(made.executor.encode([request.source]), [0], [0], [request])
    made.launch(1, attention=False)
    told = made.snapshot([], [0])
    order.clear()
    made.launch(1, attention=False)
    assert order[:2] == ["scatter", "mark"]
    assert order[-1] == "mark"
    told.rows()
    assert order[-1] == "mark 1"


def test_numbers_on_their_way_to_the_device_stay_until_the_device_has_read_them():
    """A ring that comes round waits for what was marked there."""

    class Slow(Emulation):
        def __init__(self) -> None:
            super().__init__()
            self.waited: list[int] = []
            self.marks = 0

        def mark(self) -> Any:
            self.marks += 1
            return SimpleNamespace(synchronize=partial(self.waited.append, self.marks))

    work = Slow()
    ring, part = StagingRing(work), np.arange(STAGING_NUMBERS, dtype=np.int64)
    held = [ring.stage([part + n]) for n in range(STAGING_PARTS)]
    assert [int(h[0]) for h in held] == [*range(STAGING_PARTS)]
    assert work.waited == []
    assert ring.stage([part[5:7], part[:3]]).tolist() == [5, 6, 0, 1, 2]
    assert work.waited == [1]
    assert torch.equal(held[1], torch.from_numpy(part + 1))
    large = np.arange(STAGING_NUMBERS + 1, dtype=np.int64)
    assert torch.equal(ring.stage([large[:4], large[4:]]), torch.from_numpy(large))
