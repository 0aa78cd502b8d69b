"""Encoding of sources in padded and packed batches, each a CUDA graph."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from engine.executors.cuda import stepper as cuda_stepper
from engine.executors.cuda.encoders import EXACT_SIZES, NARROW_SIZES
from engine.executors.cuda.executor import CapturedExecutor
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.types import Request
from tests.support.captured import BEAMS, NEEDS_COMPILER, assert_same, random_jobs, run
from tests.support.emulated import Emulation
from tests.support.lanes import lane_of
from tests.support.models import model

pytestmark = NEEDS_COMPILER


@pytest.mark.parametrize("name", ["glu", "transformer", "convs2s", "slicenet"])
def test_fp32_encodings_do_not_depend_on_their_batch(name):
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
def test_packed_encodings_equal_padded_ones_and_do_not_depend_on_neighbours(host, name):
    streams, g = Emulation(host), np.random.default_rng(1)
    packed = CapturedExecutor(model(name), (1, 2), streams, Kernels(streams)).encoders
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


def test_packed_batches_have_few_sizes_and_the_common_ones_are_captured_at_the_start(host):
    streams = Emulation(host)
    narrow = deepcopy(model("glu")).to(torch.bfloat16)
    executor = CapturedExecutor(narrow, (1, 2), streams, Kernels(streams), warm=True)
    executor.encoders.warm(2)
    captures = streams.captures
    assert captures == 2  # 64 and 128 positions
    for count, size in ((1, 64), (8, 64), (9, 128), (16, 128)):
        rows = executor.encoders([[5, 6, 2]] * count)
        assert {row.width for row in rows} == {size}
        assert [row.begin for row in rows] == [*range(0, 8 * count, 8)]
    assert streams.captures == captures
    assert executor.encoders([[5, 6, 2]] * 33)[0].width == 384
    exact = CapturedExecutor(model("glu"), (1, 2), streams, Kernels(streams)).encoders
    assert {row.width for row in exact([[5, 6, 2]] * 40)} == {256}
    assert len({row.address for row in exact([[5, 6, 2]] * 40)}) == 2


def test_models_that_combine_positions_outside_packed_kernels_are_encoded_padded(host):
    """Models without kernels are encoded padded too."""
    kinds = {}
    for name in ("glu", "transformer", "ensemble", "aan", "windowed", "convs2s", "slicenet"):
        streams = Emulation(host)
        kinds[name] = type(CapturedExecutor(model(name), (1, 2), streams, Kernels(streams)).encoders).__name__
    packed = {name for name, kind in kinds.items() if kind == "PackedEncoders"}
    assert packed == {"glu", "transformer", "ensemble", "aan"}
    assert type(CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders).__name__ == "Encoders"


def test_padded_batches_have_few_sizes_each_captured_once():
    streams = Emulation()
    encoders = CapturedExecutor(deepcopy(model("glu")).to(torch.bfloat16), (1, 2), streams).encoders
    source = [5, 6, 2]
    for count, size in ((1, 1), (3, 4), (4, 4), (33, 64), (64, 64), (65, 64)):
        rows = encoders([source] * count)
        assert rows[0].block.shape[0] == size
    assert streams.captures == 3
    assert encoders.batch_sizes == NARROW_SIZES
    assert CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders.batch_sizes == EXACT_SIZES


def test_padding_depends_on_the_source_length_and_adds_at_most_an_eighth():
    encoders = CapturedExecutor(model("glu"), (1, 2), Emulation()).encoders
    widest = -(-encoders.limits.source // 8) * 8
    for length in range(1, encoders.limits.source + 1):
        width = encoders.width(length)
        assert length <= width <= max(-(-length // 8) * 8, length * 9 / 8 + 8, 8)
        assert width % 8 == 0
        assert width <= widest


def test_large_lane_encodes_ahead_in_large_groups(monkeypatch):
    """The lane has eight slots, and encodes four sources ahead."""
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
