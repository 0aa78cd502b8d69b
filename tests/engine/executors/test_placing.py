"""Placements, moves and snapshots by kernels: few launches without waiting, and the same arrays as the array
code."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.executors.cuda import placing
from engine.executors.cuda.copies import SNAPSHOT_COLUMNS
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.cuda.stepper import CapturedStepper
from engine.executors.cuda.streams import STAGING_NUMBERS, STAGING_PARTS, StagingRing
from engine.kernels.calls import Kernels
from engine.kernels.launches import Call
from engine.search.state import FIELDS, SNAPSHOT
from engine.types import DecodeOptions, Request
from tests.support import cases
from tests.support.captured import random_jobs
from tests.support.emulated import Emulation
from tests.support.host_kernels import COMPILER
from tests.support.models import CONFIGS, model

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")


BEAMS, SLOTS = 3, 4


class Counted(Emulation):
    """Counts uploads, launches and copies to the host."""

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
    """Refuses every operator except views, because any other one would launch a kernel or wait."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.is_view or func._schema.name in ("aten::detach", "aten::empty"), func
        return func(*args, **(kwargs or {}))


def stepper(streams: Emulation, kernels: Kernels | None, name: str = "glu") -> CapturedStepper:
    return CapturedExecutor(model(name), (BEAMS, SLOTS), streams, kernels).stepper()


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
    """Return the arrays of a lane that later steps read."""
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
def test_placed_requests_and_moves_leave_the_same_arrays_as_the_array_code(host, name, monkeypatch):
    """Some requests share an initial state, and the cache of initial states overflows."""
    monkeypatch.setattr(placing, "MAX_INITIAL_STATES", SLOTS + 2)
    streams = Emulation(host)
    own, plain = stepper(streams, Kernels(streams), name), stepper(Emulation(), None, name)
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
            if key.endswith("plan"):  # up to the longest target
                for slot, longest in enumerate(plain.search.state.longest.tolist()):
                    assert torch.equal(found[key][slot, : longest + 1], array[slot, : longest + 1])
            elif key.endswith("history"):
                assert torch.equal(found[key][:, :, 0], array[:, :, 0])
            else:
                torch.testing.assert_close(
                    found[key], array, msg=lambda m, key=key: f"{key}: {m}", equal_nan=True
                )


def test_snapshot_moves_and_placements_of_a_step_are_one_upload_and_one_launch_each(host):
    streams = Counted(host)
    made, requests = stepper(streams, Kernels(streams)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    made.executor.reserve(40, 20)
    for times in range(2):  # the first round makes plans and allocates the upload
        streams.uploads, streams.launches = 0, []
        with NoOperators() if times else nullcontext():
            for slot, request in enumerate(requests):
                made.place(encoded, [slot], [slot], [request])
            assert not streams.launches
            made._launch_changes()
        # initial states are uploaded once
        assert (streams.uploads, streams.launches) == (1 if times else 2, ["scatter"])
        streams.uploads, streams.launches, streams.downs = 0, [], 0
        with NoOperators() if times else nullcontext():
            told = made.snapshot([], [0, 1])
            made.place(encoded, [0], [0], [requests[0]])
            made.move([(3, 1)])
            made.place(encoded, [2], [3], [requests[2]])
            assert not streams.launches
            made._launch_changes_now()
        assert (streams.uploads, streams.launches, streams.downs) == (1, ["scatter"] * 3, 1)
        state, _ = told.rows()
        longest = [r.options.lengths(len(r.source), made.executor.limits)[1] for r in requests]
        assert state.longest.tolist() == longest[:2]  # of the requests before the placements
        there = made.search.state.longest.tolist()
        assert there == [longest[0], longest[3], longest[2], longest[2]]


def test_snapshot_is_one_upload_and_one_copy_to_the_host(host):
    streams = Counted(host)
    made, requests = stepper(streams, Kernels(streams)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    for _ in range(3):
        made.launch(SLOTS, attention=True)
    made.snapshot([1], [1]).rows()
    streams.uploads, streams.launches, streams.downs = 0, [], 0
    with NoOperators():
        told = made.snapshot([1], [2, 0, 3])
        made._launch_changes_now()
    assert (streams.uploads, streams.launches, streams.downs) == (1, ["follow_back", "scatter"], 1)
    state, rows = told.rows()
    assert list(rows) == [0, 1, 2]
    for name in SNAPSHOT:
        whole, found = getattr(made.search.state, name)[[2, 0, 3]].numpy(), getattr(state, name)
        assert found.dtype == whole.dtype
        wanted = whole[:, : found.shape[1]] if found.ndim > 2 else whole
        np.testing.assert_array_equal(found, wanted)
    assert state.tokens.shape[1] >= 3 + 2


def test_snapshot_stays_unchanged_until_the_next_one_is_read(host):
    streams = Counted(host)
    made, requests = stepper(streams, Kernels(streams)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    made.launch(SLOTS, attention=True)
    wanted = [made.search.state.longest[slot].item() for slot in (1, 2)]
    told = [made.snapshot([], [slot]) for slot in (1, 2)]
    made._launch_changes_now()
    assert [int(one.rows()[0].longest[0]) for one in told] == wanted
    assert wanted[0] != wanted[1]


def test_request_placed_into_a_used_slot_before_the_step_replaces_the_first_one(host):
    """A cleared lane may place twice before a step."""
    streams = Counted(host)
    made, requests = stepper(streams, Kernels(streams)), jobs("glu", 2)
    encoded = made.executor.encode([r.source for r in requests])
    for i, request in enumerate(requests):
        made.place(encoded, [i], [0], [request])
    with streams.decoding():
        made._launch_changes()
    assert int(made.search.state.words[0]) == len(requests[1].source) - 1


def test_snapshot_copies_only_the_columns_that_were_reached(host):
    """Reporting a token does not copy the whole tables of a long target."""
    streams = Emulation(host)
    made = stepper(streams, Kernels(streams))
    request = Request([5, 6, 2], DecodeOptions(beam_size=2, min_length=3, max_length=9), print)
    made.place(made.executor.encode([request.source]), [0], [0], [request])
    for _ in range(2):
        made.launch(1, attention=False)
    state, rows = made.snapshot([], [0]).rows()
    assert 2 + 2 <= state.tokens.shape[1] == min(SNAPSHOT_COLUMNS, made.search.columns)
    assert list(rows) == [0]


def test_placement_waits_once_for_all_requests_of_an_encoding():
    class Waits(Emulation):
        def __init__(self) -> None:
            super().__init__(slow=2)
            self.waits: list[int] = []

        def wait(self, mark, tensors):
            self.waits.append(len(tensors))

    streams = Waits()
    made = stepper(streams, Kernels(lambda call: None))
    jobs = random_jobs("glu", 5, 4)
    encoded = made.executor.encode([[5, 6, 2], [7, 8, 2], [4, 2], [9, 2]])
    for slot, (_, options) in enumerate(jobs):
        made.place(encoded, [slot], [slot], [Request([5, 6, 2], options, print)])
    made._launch_changes()
    assert streams.waits == [1]


def test_dependent_changes_are_made_in_the_order_of_their_calls(host):
    """A slot moves after its placement, another one moves twice, and a snapshot follows."""
    streams = Emulation(host)
    made, requests = stepper(streams, Kernels(streams)), jobs("glu")
    encoded = made.executor.encode([r.source for r in requests])
    longest = [r.options.lengths(len(r.source), made.executor.limits)[1] for r in requests]
    for slot, request in enumerate(requests):
        made.place(encoded, [slot], [slot], [request])
    made.move([(3, 0)])
    made.move([(2, 3), (0, 1)])
    state, _ = made.snapshot([], [0, 1, 2, 3]).rows()
    assert state.longest.tolist() == [longest[3], longest[3], longest[2], longest[2]]
    # a placement into the source of a move is made after the move
    made.move([(2, 0)])
    made.place(encoded, [1], [2], [requests[1]])
    made.launch(SLOTS, attention=True)
    state, _ = made.snapshot([], [0, 1, 2, 3]).rows()
    assert state.longest.tolist() == [longest[2], longest[3], longest[1], longest[2]]


def test_reading_a_snapshot_does_not_wait_for_the_next_step(host):
    """Otherwise the device would be idle until the host has read the snapshot."""
    order: list[str] = []

    class Ordered(Emulation):
        def mark(self) -> Any:
            order.append("mark")
            waiting = partial(order.append, f"mark {order.count('mark')}")
            return SimpleNamespace(synchronize=waiting, query=lambda: False)

        def __call__(self, call: Call) -> None:
            order.append(call.kernel.entry)
            super().__call__(call)

    streams = Ordered(host)
    made = stepper(streams, Kernels(streams))
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


def test_staged_numbers_stay_until_the_device_has_copied_them():
    """A part of the ring is used again only after its mark is reached."""

    class Slow(Emulation):
        def __init__(self) -> None:
            super().__init__()
            self.waited: list[int] = []
            self.marks = 0

        def mark(self) -> Any:
            self.marks += 1
            return SimpleNamespace(synchronize=partial(self.waited.append, self.marks))

    streams = Slow()
    ring, part = StagingRing(streams), np.arange(STAGING_NUMBERS, dtype=np.int64)
    held = [ring.stage([part + n]) for n in range(STAGING_PARTS)]
    assert [int(h[0]) for h in held] == [*range(STAGING_PARTS)]
    assert streams.waited == []
    assert ring.stage([part[5:7], part[:3]]).tolist() == [5, 6, 0, 1, 2]
    assert streams.waited == [1]
    assert torch.equal(held[1], torch.from_numpy(part + 1))
    large = np.arange(STAGING_NUMBERS + 1, dtype=np.int64)
    assert torch.equal(ring.stage([large[:4], large[4:]]), torch.from_numpy(large))
