"""Convolutions and recurrent units as CUDA kernels, compared with the torch reference."""

from __future__ import annotations

import array_api_compat.torch as xp
import pytest
import torch
import torch.nn.functional as F
from torch.nn import Parameter

from engine.bundle.specs import StateSpec
from engine.executors.history import Rings
from engine.kernels import reference
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, close, convolution, normal, packed_sequences, wide


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (FLOAT, (3, 2, 48, 4, 6)),
        (FLOAT, (1, 1, 6, 6, 31)),  # a kernel for each channel
        (FLOAT, (2, 17, 520, 2, 3)),  # more beams and channels than a block has
        (FLOAT, (2, 3, 8, 2, 1)),  # no past
        (HALF, (3, 5, 64, 4, 7)),
        (BRAIN, (3, 5, 64, 4, 7)),
    ],
)
def test_convolution_step_equals_the_reference(place, dtype, sizes, fixed, softmax):
    given = convolution(dtype, *sizes, fixed)
    x, taps, ring, index = wide(*given)
    want = reference.dynamic_conv_step(x, F.softmax(taps, -1) if softmax else taps, ring, index)
    close(place.dynamic_conv_step(*given, softmax=softmax), want, dtype, 8)


@pytest.mark.parametrize("processors", [0, 1, 2])
@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
def test_many_slots_use_fewer_threads_for_taps(place, dtype, processors):
    """fp32 is excluded, because its bits must not depend on other slots."""
    given, seen = convolution(dtype, 6, 5, 64, 4, 7, False), []
    run, place.kernels.processors = place.kernels.run, processors
    place.kernels.run = lambda call: seen.append(call.block) or run(call)
    x, taps, ring, index = wide(*given)
    want = reference.dynamic_conv_step(x, F.softmax(taps, -1), ring, index)
    close(place.dynamic_conv_step(*given, softmax=True), want, dtype, 8)
    parts = 4 if dtype == FLOAT else max(1, processors)
    assert seen == [(32, parts, 4)]


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT, BRAIN])
def test_appending_steps_keep_the_same_ring_as_the_history(place, dtype, softmax):
    """Beams are reordered at every step, which detects a column that is written before all beams have read
    it."""
    slots, beams, channels, heads, width = 2, 4, 16, 2, 4
    rings = Rings([StateSpec("conv", width - 1, channels)], slots, beams, xp, "cpu", dtype)
    taps = normal(0, heads, width, dtype=dtype)
    ring, clock = rings.rings["conv"].clone(), torch.zeros(1, dtype=torch.int64)
    on_device = place.there((ring, clock))
    for step in range(2 * width):
        g = torch.Generator().manual_seed(step)
        index = rings.advance(torch.randint(0, beams, (slots, beams), generator=g))[width - 1]
        x, own = normal(step, slots, beams, channels, dtype=dtype), taps.float()
        own = F.softmax(own, -1) if softmax else own
        want = reference.dynamic_conv_step(x.float(), own, *wide(rings.rings["conv"], index))
        rings.write({"conv": x})
        past = on_device[0], index.contiguous(), on_device[1]
        got = place.dynamic_conv_step_append(x, taps, past, softmax=softmax)
        close(got, want, dtype, 8)
        close(place.here(on_device[0]), rings.rings["conv"].float(), dtype)
        on_device[1].add_(1)


@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "channels", "heads", "width", "softmax"),
    [
        (BRAIN, 1, 1, 1024, 2, 3, True),
        (BRAIN, 2, 3, 96, 3, 5, True),  # two of eight rows are missing
        (BRAIN, 1, 5, 64, 2, 40, True),  # three tiles of taps, more than lanes of a warp
        (HALF, 4, 2, 64, 8, 2, False),
        (HALF, 1, 2, 1056, 33, 17, True),  # more than is prefetched before the wait
    ],
)
def test_steps_that_compute_taps_equal_the_reference_and_keep_the_ring(
    place, dtype, slots, beams, channels, heads, width, softmax
):
    rings = Rings([StateSpec("conv", width - 1, channels)], slots, beams, xp, "cpu", dtype)
    weight = Parameter(normal(0, heads * width, channels, dtype=dtype) / channels**0.5, requires_grad=False)
    on_device = place.there((rings.rings["conv"].clone(), torch.zeros(1, dtype=torch.int64)))
    assert place.kernels.takes_taps(
        normal(0, slots, beams, channels, dtype=dtype), weight, on_device[0], (heads, width)
    )
    for step in range(5):
        g = torch.Generator().manual_seed(step)
        index = rings.advance(torch.randint(0, beams, (slots, beams), generator=g))[width - 1]
        x = normal(step, slots, beams, channels, dtype=dtype)
        taps = F.linear(x.float(), weight.float()).to(dtype).float().unflatten(-1, (heads, width))
        taps = F.softmax(taps, -1) if softmax else taps
        want = reference.dynamic_conv_step(x.float(), taps, *wide(rings.rings["conv"], index))
        rings.write({"conv": x})
        past = on_device[0], index.contiguous(), on_device[1]
        got = place.dynamic_conv_product(x, weight, past, (heads, width), softmax=softmax)
        close(got, want, dtype, 8)
        assert torch.equal(place.here(on_device[0]), rings.rings["conv"])
        on_device[1].add_(1)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "batch", "time", "channels", "heads", "width", "left"),
    [
        (FLOAT, 2, 37, 48, 4, 7, 3),
        (FLOAT, 1, 5, 6, 6, 31, 30),  # a kernel far longer than the sequence
        (FLOAT, 2, 64, 136, 2, 1, 0),  # more channels than a block has
        (HALF, 2, 9, 32, 4, 4, 2),
        (BRAIN, 2, 9, 32, 4, 4, 3),
    ],
)
def test_the_convolution_of_sequences_equals_the_reference(
    place, dtype, batch, time, channels, heads, width, left, fixed, softmax
):
    x = normal(1, batch, time, channels, dtype=dtype)
    x[0, time // 2 :] = 0  # the shorter of two sequences
    taps = normal(2, *((heads, width) if fixed else (batch, time, heads, width)), dtype=dtype)
    kernels = F.softmax(taps.float(), -1) if softmax else taps.float()
    want = reference.dynamic_conv(x.float(), kernels, left)
    close(place.dynamic_conv(x, taps, left, softmax=softmax), want, dtype, 8)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "channels", "heads", "width", "left"),
    [
        (FLOAT, 48, 4, 7, 3),
        (FLOAT, 6, 6, 31, 15),
        (FLOAT, 136, 2, 1, 0),
        (HALF, 32, 4, 4, 2),
        (BRAIN, 32, 4, 3, 1),
    ],
)
def test_convolution_of_packed_sequences_equals_each_alone_bit_for_bit(
    place, dtype, channels, heads, width, left, fixed, softmax
):
    """Neighbouring sequences and padding contain NaN, which must not be read."""
    lengths = (3, 16, 1, 29, 8)
    packed, begins = packed_sequences(lengths)
    time = len(packed.bounds) * 8
    x = torch.full((1, time, channels), torch.nan, dtype=dtype)
    taps = normal(2, *((heads, width) if fixed else (1, time, heads, width)), dtype=dtype)
    for seed, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        x[0, begin : begin + length] = normal(seed, length, channels, dtype=dtype)
    found = place.dynamic_conv(x, taps, left, packed, softmax=softmax)
    for begin, length in zip(begins, lengths, strict=True):
        own = slice(begin, begin + length)
        alone = place.dynamic_conv(
            x[:, own].contiguous(), taps if fixed else taps[:, own].contiguous(), left, softmax=softmax
        )
        assert torch.equal(found[:, own], alone)


@pytest.mark.parametrize("dtype", [FLOAT, BRAIN])
def test_recurrent_step_equals_the_reference_and_keeps_its_cells(place, dtype):
    candidate, gate = normal(1, 2, 3, 40, dtype=dtype), normal(2, 2, 3, 40, dtype=dtype)
    ring = place.there(normal(3, 2, 1, 3, 40))
    g = torch.Generator().manual_seed(0)
    for _ in range(3):  # reordered beams detect a cell that is written too early
        index = torch.randint(0, 3, (2, 3, 1), generator=g) + torch.tensor([0, 3])[:, None, None]
        cells, y = reference.ssru_step(candidate.float(), gate.float(), place.here(ring), index)
        got, output = place.ssru_step(candidate, gate, ring, index, append=True)
        close(got, cells, FLOAT, 4)
        close(output, y, dtype, 4)
        assert torch.equal(place.here(ring)[:, 0], got)
        same, _ = place.ssru_step(candidate, gate, ring, index, append=False)
        assert torch.equal(place.here(ring)[:, 0], got)
        assert same.shape == got.shape
