"""Attention as CUDA kernels, compared with the torch reference."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engine.kernels import reference
from engine.kernels.calls import Kernels
from engine.kernels.reference import QKV
from tests.support.cuda_kernels import (
    BRAIN,
    FLOAT,
    HALF,
    attention,
    close,
    normal,
    packed_sequences,
    wide,
)


@pytest.mark.parametrize(
    ("dtype", "heads", "width"),
    [(FLOAT, 4, 8), (FLOAT, 3, 5), (FLOAT, 1, 160), (HALF, 2, 16), (BRAIN, 2, 16)],
)
def test_attention_within_packed_sequences_equals_the_reference_and_ignores_neighbours(
    place, dtype, heads, width
):
    lengths = (3, 16, 1, 45, 8)
    packed, begins = packed_sequences(lengths)
    own = QKV(*(normal(i, 1, len(packed.bounds) * 8, heads * width, dtype=dtype) for i in range(3)))
    own = QKV(own.q / width**0.5, *own[1:])
    found = place.attend_packed(own, packed, heads)
    assert torch.equal(place.attend_packed(own._replace(q=own.q * 8), packed, heads, scale=0.125), found)
    last = packed_sequences(lengths[3:4])[0]  # one sequence alone
    among = slice(begins[3], begins[3] + 48)
    alone = QKV(*(F.pad(y[:, among], (0, 0, 0, 8)).contiguous() for y in own))
    assert torch.equal(place.attend_packed(alone, last, heads)[:, :45], found[:, among][:, :45])
    for begin, length in zip(begins, lengths, strict=True):
        part = QKV(*(y[:, begin : begin + length].float() for y in own))
        want = reference.attend_whole(part, torch.zeros(1, 1, length), heads)
        close(found[:, begin : begin + length], want, dtype, 4)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (FLOAT, (3, 2, 4, 8, 32)),
        (FLOAT, (2, 9, 2, 5, 33)),  # two groups of beams and odd sizes
        (FLOAT, (1, 1, 1, 64, 160)),  # several blocks on both axes
        (HALF, (2, 4, 2, 16, 32)),
        (BRAIN, (2, 4, 2, 16, 32)),
    ],
)
def test_attention_equals_the_reference(place, dtype, sizes):
    q, keys, values, mask = attention(dtype, *sizes)
    mask[0, 1] = -torch.inf  # a masked gap
    want, weights = reference.attend(*wide(q, keys, values), mask)
    context, mean = place.attend(q, (keys, values, mask), weights=True)
    close(context, want, dtype, 4)
    close(mean, weights, FLOAT)
    place.kernels.tensor_cores = False  # the same kernel without weights, not the one with tensor cores
    alone, nothing = place.attend(q, (keys, values, mask), weights=False)
    assert nothing is None
    assert torch.equal(alone, context)
    scaled = place.attend(q * 8, (keys, values, mask), weights=True, scale=0.125)
    assert torch.equal(scaled[0], context)
    assert torch.equal(scaled[1], mean)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (BRAIN, (3, 4, 2, 64, 32)),
        (BRAIN, (2, 9, 1, 64, 136)),  # two groups of beams and three tiles
        (HALF, (2, 1, 3, 16, 72)),
        (HALF, (1, 8, 2, 48, 64)),
        (HALF, (2, 3, 1, 16, 584)),  # more tiles than warps
    ],
)
@pytest.mark.parametrize("processors", [132, 0], ids=["warps share a source", "one warp"])
def test_attention_by_tensor_cores_equals_the_reference_and_ignores_padding(place, dtype, sizes, processors):
    place.kernels.processors = processors
    q, keys, values, mask = attention(dtype, *sizes)
    q = q / sizes[3] ** 0.5 * 2
    mask[0, 1] = mask[-1, 3] = -torch.inf  # gaps
    want, _ = reference.attend(*wide(q, keys, values), mask)
    made = []
    run = place.kernels.run
    place.kernels.run = lambda call: (made.append(call.kernel.entry), run(call))
    context, nothing = place.attend(q, (keys, values, mask), weights=False)
    assert (made, nothing) == (["attend_tiled"], None)
    close(context, want, dtype, 4)
    assert torch.equal(place.attend(q * 8, (keys, values, mask), weights=False, scale=0.125)[0], context)
    # masked memory is not read and may contain anything
    hidden = torch.isneginf(mask).view(len(mask), -1, 8).all(-1).repeat_interleave(8, 1)
    padded = (
        F.pad(keys.masked_fill(hidden[:, None, None], torch.nan), (0, 80), value=torch.nan),
        F.pad(values.masked_fill(hidden[:, None, :, None], torch.nan), (0, 0, 0, 80), value=torch.nan),
        F.pad(mask, (0, 80), value=-torch.inf),
    )
    again, _ = place.attend(q, padded, weights=False)
    assert torch.equal(again, context)
    place.kernels.run = run


def test_tensor_cores_attend_if_the_layout_allows(place):
    """They do not attend in fp32, with requested weights, or with unsupported sizes of heads or sources."""
    made = []
    kernels = Kernels(lambda call: made.append(call.kernel.entry))

    def entry(dtype=BRAIN, width=64, source=32, by=kernels, weights=False):
        made.clear()
        q, *memory = attention(dtype, 1, 2, 2, width, source)
        by.attend(q, memory, weights=weights)
        return made[0]

    assert entry() == entry(HALF, 16) == "attend_tiled"
    old = Kernels(kernels.run, tensor_cores=False)
    others = (
        entry(FLOAT),
        entry(width=24),
        entry(width=80),
        entry(source=33),
        entry(weights=True),
        entry(by=old),
    )
    assert set(others) == {"attend"}


def test_warps_share_a_source_if_the_device_has_room():
    made = []
    kernels = Kernels(made.append, 132)

    def warps(slots, source):
        made.clear()
        q, *memory = attention(BRAIN, slots, 1, 16, 16, source)
        kernels.attend(q, memory, weights=False)
        return made[0].block[0] // 32

    assert [warps(1, source) for source in (32, 64, 72, 128, 512, 1024)] == [1, 1, 2, 2, 8, 8]
    assert [warps(slots, 512) for slots in (8, 16, 33, 34)] == [8, 4, 2, 1]


def test_attention_is_bitwise_independent_of_padding(place):
    q, keys, values, mask = attention(FLOAT, 2, 3, 2, 8, 32)
    padded = F.pad(keys, (0, 64)), F.pad(values, (0, 0, 0, 64)), F.pad(mask, (0, 64), value=-torch.inf)
    short, weights = place.attend(q, (keys, values, mask), weights=True)
    long, more = place.attend(q, padded, weights=True)
    assert torch.equal(short, long)
    assert torch.equal(weights, more[..., :32])
    assert not more[..., 32:].any()
