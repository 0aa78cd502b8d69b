"""The CUDA kernels against the torch reference: on the CPU, where g++ compiles the very same source behind a
shim (tests/support/cuda_shim.h), and on a GPU when there is one."""

from __future__ import annotations

import re
from copy import deepcopy
from ctypes import c_float, c_int32, c_size_t, c_void_p
from dataclasses import astuple, fields, is_dataclass, replace
from types import SimpleNamespace

import array_api_compat.torch as xp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from engine.backends import Placement
from engine.bundle.bundle import open_bundle
from engine.bundle.specs import StateSpec
from engine.errors import ConfigError
from engine.executors import open_executors
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.history import Rings
from engine.executors.torch.executor import TorchExecutor
from engine.kernels import prefetch as prefetching
from engine.kernels import reference
from engine.kernels.calls import (
    ATTEND_WARPS,
    PACKED_GROUP,
    Kernels,
    PackedSequences,
    Scatter,
)
from engine.kernels.fused import FusedMode
from engine.kernels.launch import Device
from engine.kernels.launches import HEAD_PRODUCTS, PRODUCTS, Address, Call, argument
from engine.kernels.linear import EmbeddingLookup, Epilogue, Norm
from engine.kernels.nvrtc import Compiler
from engine.kernels.products import MAX_AHEAD_BYTES, ROW_BUCKETS
from engine.kernels.reference import QKV
from engine.kernels.selection import SELECT_COLUMNS, SELECT_ROOM
from engine.models.select import SelectionRules, select
from engine.search.executor import StepInput, TopK
from engine.search.state import blank
from tests.engine.executors.test_executors import check, inputs, join, leave, random_source
from tests.support.host_kernels import COMPILER, SOURCES
from tests.support.models import model
from tests.support.thorough import THOROUGH

FLOAT, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
TOLERANCE = {FLOAT: 2e-6, HALF: 2e-3, BRAIN: 1.6e-2}  # of values of about one: a few units in the last place

NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU, or a torch without CUDA")


class Place:
    """Where kernels run: they take and return tensors of the CPU here, whatever device computes."""

    def __init__(self, kernels: Kernels, device: str) -> None:
        self.kernels, self.device = kernels, device

    def __getattr__(self, name):
        def call(*values, **options):
            options = {key: self.there(value) for key, value in options.items()}
            found = getattr(self.kernels, name)(*map(self.there, values), **options)
            return tuple(map(self.here, found)) if isinstance(found, tuple) else self.here(found)

        return call

    def there(self, value):
        if isinstance(value, tuple | list):
            there = map(self.there, value)
            return type(value)(*there) if hasattr(value, "_fields") else type(value)(there)
        if is_dataclass(value):  # a norm, or what becomes of a product's sums
            return replace(value, **{f.name: self.there(getattr(value, f.name)) for f in fields(value)})
        return value.to(self.device) if isinstance(value, torch.Tensor) else value

    @staticmethod
    def here(value):
        return value.cpu() if isinstance(value, torch.Tensor) else value


def test_all_tensors_of_a_call_go_to_the_device_those_within_its_arguments_too():
    seen = {}

    class Seen:
        def product(self, *values, **options):
            seen.update(options, values=values)

    tensor = torch.ones(2)
    place = Place(Seen(), "meta")
    norm, epilogue = Norm(tensor, tensor, 1e-5), Epilogue(residual=tensor)
    place.product(tensor, (tensor, None), [tensor], epilogue, norm=norm, temperature=tensor)
    x, weights, rest, epilogue = seen["values"]
    there = [
        x,
        weights[0],
        rest[0],
        epilogue.residual,
        seen["norm"].gain,
        seen["norm"].shift,
        seen["temperature"],
    ]
    assert all(value.is_meta for value in there)


@pytest.fixture(
    params=[
        pytest.param("ascending", marks=NEEDS_COMPILER),
        pytest.param("descending", marks=NEEDS_COMPILER),
        pytest.param("gpu", marks=[NEEDS_GPU, pytest.mark.gpu]),
    ]
)
def place(request):
    if request.param == "gpu":
        return Place(Kernels(Device("cuda")), "cuda")
    host = request.getfixturevalue("host")
    host.descending = request.param == "descending"
    return Place(Kernels(host), "cpu")


@pytest.fixture(scope="module")
def compiler(compiled_kernels):
    try:
        return Compiler(compiled_kernels)
    except ConfigError as error:
        pytest.skip(str(error))


def normal(seed, *shape, dtype=FLOAT):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got, want, dtype, scale=1.0):
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def convolution(dtype, slots, beams, channels, heads, width, fixed):
    """x, taps, ring and index of one step."""
    x = normal(1, slots, beams, channels, dtype=dtype)
    shape = (heads, width) if fixed else (slots, beams, heads, width)
    taps = normal(2, *shape, dtype=dtype)
    if width == 1:
        return x, taps, None, None
    ring = normal(3, slots, width - 1, beams, channels, dtype=dtype)
    g = torch.Generator().manual_seed(4)
    index = torch.randint(0, slots * (width - 1) * beams, (slots, beams, width - 1), generator=g)
    return x, taps, ring, index


def wide(*tensors):
    return tuple(t.float() if t is not None and t.is_floating_point() else t for t in tensors)


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
def test_a_step_of_the_convolution_equals_the_reference(place, dtype, sizes, fixed, softmax):
    given = convolution(dtype, *sizes, fixed)
    x, taps, ring, index = wide(*given)
    want = reference.dynamic_conv_step(x, F.softmax(taps, -1) if softmax else taps, ring, index)
    close(place.dynamic_conv_step(*given, softmax=softmax), want, dtype, 8)


@pytest.mark.parametrize("processors", [0, 1, 2])
@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
def test_taps_are_shared_by_fewer_threads_where_slots_are_enough_of_them(place, dtype, processors):
    """Not in fp32, where a row's bits depend on no other slot."""
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
def test_steps_that_append_keep_the_ring_that_the_history_keeps(place, dtype, softmax):
    """Beams are reordered at every step, so a column that is written before all have read it would show."""
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
        (BRAIN, 2, 3, 96, 3, 5, True),  # two of eight rows are not there
        (BRAIN, 1, 5, 64, 2, 40, True),  # three tiles of taps, more than a warp has lanes
        (HALF, 4, 2, 64, 8, 2, False),
        (HALF, 1, 2, 1056, 33, 17, True),  # more than was fetched before the wait
    ],
)
def test_steps_that_make_their_own_taps_equal_the_reference_and_keep_the_ring(
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


def packed_sequences(lengths, longest=64):
    """Sequences of these lengths one behind the other, and where each begins; behind them a group is idle."""
    bounds, begins, begin = [], [], 0
    for length in lengths:
        begins.append(begin)
        bounds += [[begin, begin + length]] * -(-length // 8)
        begin += -(-length // 8) * 8
    return PackedSequences(torch.tensor([*bounds, [0, 1]]), longest), begins


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
def test_the_convolution_of_packed_sequences_is_that_of_each_alone_bit_for_bit(
    place, dtype, channels, heads, width, left, fixed, softmax
):
    """Where another sequence or nothing at all lies around it, that is not a number."""
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


@pytest.mark.parametrize(
    ("dtype", "heads", "width"),
    [(FLOAT, 4, 8), (FLOAT, 3, 5), (FLOAT, 1, 160), (HALF, 2, 16), (BRAIN, 2, 16)],
)
def test_attention_within_packed_sequences_equals_the_reference_and_depends_on_nobody_beside(
    place, dtype, heads, width
):
    lengths = (3, 16, 1, 45, 8)
    packed, begins = packed_sequences(lengths)
    own = QKV(*(normal(i, 1, len(packed.bounds) * 8, heads * width, dtype=dtype) for i in range(3)))
    own = QKV(own.q / width**0.5, *own[1:])
    found = place.attend_packed(own, packed, heads)
    assert torch.equal(place.attend_packed(own._replace(q=own.q * 8), packed, heads, scale=0.125), found)
    last = packed_sequences(lengths[3:4])[0]  # one of them, alone
    among = slice(begins[3], begins[3] + 48)
    alone = QKV(*(F.pad(y[:, among], (0, 0, 0, 8)).contiguous() for y in own))
    assert torch.equal(place.attend_packed(alone, last, heads)[:, :45], found[:, among][:, :45])
    for begin, length in zip(begins, lengths, strict=True):
        part = QKV(*(y[:, begin : begin + length].float() for y in own))
        want = reference.attend_whole(part, torch.zeros(1, 1, length), heads)
        close(found[:, begin : begin + length], want, dtype, 4)


def attention(dtype, slots, beams, heads, width, source):
    q = normal(1, slots, beams, heads * width, dtype=dtype)
    keys, values = (
        normal(2, slots, heads, width, source, dtype=dtype),
        normal(3, slots, heads, source, width, dtype=dtype),
    )
    mask = torch.zeros(slots, source)
    for slot in range(slots):
        mask[slot, source - slot * (source // slots) :] = -torch.inf  # all of it, and less and less
    return q, keys, values, mask


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (FLOAT, (3, 2, 4, 8, 32)),
        (FLOAT, (2, 9, 2, 5, 33)),  # two groups of beams; nothing divides by anything
        (FLOAT, (1, 1, 1, 64, 160)),  # several strips of both axes
        (HALF, (2, 4, 2, 16, 32)),
        (BRAIN, (2, 4, 2, 16, 32)),
    ],
)
def test_attention_equals_the_reference(place, dtype, sizes):
    q, keys, values, mask = attention(dtype, *sizes)
    mask[0, 1] = -torch.inf  # a gap
    want, weights = reference.attend(*wide(q, keys, values), mask)
    context, mean = place.attend(q, (keys, values, mask), weights=True)
    close(context, want, dtype, 4)
    close(mean, weights, FLOAT)
    place.kernels.tensor_cores = False  # the same kernel without weights; that of tensor cores is below
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
        (BRAIN, (2, 9, 1, 64, 136)),  # two groups of beams, three tiles
        (HALF, (2, 1, 3, 16, 72)),
        (HALF, (1, 8, 2, 48, 64)),
    ],
)
def test_attention_by_tensor_cores_equals_the_reference_and_depends_on_no_padding(place, dtype, sizes):
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
    # what is hidden is not read: the memory of nobody may hold anything
    hidden = torch.isneginf(mask).view(len(mask), -1, 8).all(-1).repeat_interleave(8, 1)
    padded = (
        F.pad(keys.masked_fill(hidden[:, None, None], torch.nan), (0, 80), value=torch.nan),
        F.pad(values.masked_fill(hidden[:, None, :, None], torch.nan), (0, 0, 0, 80), value=torch.nan),
        F.pad(mask, (0, 80), value=-torch.inf),
    )
    again, _ = place.attend(q, padded, weights=False)
    assert torch.equal(again, context)
    place.kernels.run = run


@pytest.mark.parametrize(
    ("dtype", "sizes", "dim", "copied"),
    [
        (BRAIN, (1, 1, 2, 64, 32), 1024, 1),
        (BRAIN, (2, 4, 2, 48, 40), 96, 1),  # three tiles of outputs, for which not all warps have something
        (HALF, (3, 2, 2, 16, 72), 64, 1),
        (HALF, (8, 1, 1, 64, 136), 1056, 0),  # more than shared memory holds, and than was fetched before
    ],
)
@pytest.mark.parametrize("normalised", [False, True])
def test_attention_that_makes_its_own_queries_equals_the_reference(
    place, dtype, sizes, dim, copied, normalised
):
    slots, beams, heads, width, _ = sizes
    _, keys, values, mask = attention(dtype, *sizes)
    mask[0, 1] = -torch.inf
    weight = Parameter(normal(4, heads * width, dim, dtype=dtype) / dim**0.5, requires_grad=False)
    bias, x = normal(5, heads * width, dtype=dtype), normal(6, slots, beams, dim)
    norm = Norm(normal(7, dim, dtype=dtype), normal(8, dim, dtype=dtype), 1e-5) if normalised else None
    rows = x if normalised else x.to(dtype)
    if normalised and dim > 1024:
        assert not place.kernels.takes_queries(rows, weight, norm, (keys, values, mask))
        return
    assert place.kernels.takes_queries(rows, weight, norm, (keys, values, mask))
    made, run = [], place.kernels.run
    place.kernels.run = lambda call: (made.append(call), run(call))
    context, normed = place.attend_product(rows, (weight, bias), 0.5, norm, (keys, values, mask))
    place.kernels.run = run
    assert [call.arguments[-2] for call in made] == [copied]
    inputs = layer_norm(x, norm).to(dtype) if norm else rows
    q = (F.linear(inputs.float(), weight.float(), bias.float()) * 0.5).to(dtype)
    want, _ = reference.attend(*wide(q, keys, values), mask)
    close(context, want, dtype, 4)
    if norm:
        close(normed, layer_norm(x, norm), dtype, 8)
    else:
        assert normed is None


def test_tensor_cores_attend_where_they_can(place):
    """Not in fp32, not where weights are wanted, nor with heads or sources that they can't take."""
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


def test_attention_is_the_same_bit_for_bit_however_far_the_memory_is_padded(place):
    q, keys, values, mask = attention(FLOAT, 2, 3, 2, 8, 32)
    padded = F.pad(keys, (0, 64)), F.pad(values, (0, 0, 0, 64)), F.pad(mask, (0, 64), value=-torch.inf)
    short, weights = place.attend(q, (keys, values, mask), weights=True)
    long, more = place.attend(q, padded, weights=True)
    assert torch.equal(short, long)
    assert torch.equal(weights, more[..., :32])
    assert not more[..., 32:].any()


def selection(dtype, slots, beams, vocab, bans, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = (torch.randn((slots, beams, vocab), generator=g) * 3).to(dtype)
    banned = torch.randint(0, vocab, (slots, beams, bans), generator=g)
    forced = torch.full((slots, beams), -1)
    return logits, SelectionRules(
        forced, banned, torch.rand(slots, generator=g), torch.rand(slots, generator=g)
    )


def check_selection(place, logits, rules, unk, eos, k):
    """Scores equal; so do ids wherever a score is finite and not the same as its neighbour's."""
    want, wanted = select(F.log_softmax(logits.double(), -1).float(), rules, unk, eos, k)
    scores, ids = place.select(logits, tuple(rules), unk, eos, k)
    torch.testing.assert_close(scores, want, rtol=1e-5, atol=1e-5)
    all_scores = F.log_softmax(logits.double(), -1).float()
    all_scores[..., eos] -= rules.eos_penalty[:, None]
    if unk is not None:
        all_scores[..., unk] -= rules.unk_penalty[:, None]
    finite = torch.isfinite(scores)
    at = all_scores.gather(2, ids)
    torch.testing.assert_close(at[finite], scores[finite], rtol=1e-5, atol=1e-5)
    for row, chosen in zip(finite.flatten(0, 1), ids.flatten(0, 1), strict=True):
        assert len(set(chosen[row].tolist())) == int(row.sum())
    apart = (want[..., :-1] - want[..., 1:] > 1e-4) & finite[..., :-1]
    apart[..., 1:] &= apart[..., :-1].clone()
    assert torch.equal(ids[..., :-1][apart], wanted[..., :-1][apart])
    return scores, ids


@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "vocab", "bans", "k"),
    [
        (FLOAT, 2, 3, 47, 1, 6),  # less than the threads of a block
        (FLOAT, 1, 2, 4096, 40, 64),
        (FLOAT, 1, 1, 1021, 3, 10),
        (HALF, 2, 2, 1000, 2, 8),
        (BRAIN, 2, 2, 1000, 2, 8),
    ],
)
@pytest.mark.parametrize("unk", [3, None])
def test_selection_equals_the_reference(place, dtype, slots, beams, vocab, bans, k, unk):
    logits, rules = selection(dtype, slots, beams, vocab, bans)
    check_selection(place, logits, rules, unk, 2, k)


@given(data=st.data())
@NEEDS_COMPILER
def test_any_selection_with_ties_bans_and_penalties_equals_the_reference(host, data):
    place = Place(Kernels(host), "cpu")
    host.descending = data.draw(st.booleans())
    vocab = data.draw(st.integers(5, 600))
    k = data.draw(st.integers(1, min(vocab, 12)))
    logits, rules = selection(FLOAT, 2, 1, vocab, data.draw(st.integers(1, 5)), data.draw(st.integers(0, 99)))
    logits = logits.mul(data.draw(st.sampled_from([0.0, 0.3, 1.0]))).round()  # many are the same
    penalties = st.sampled_from([0.0, -3.5, 2.5, float("inf")])
    rules = rules._replace(
        unk_penalty=torch.full((2,), data.draw(penalties)), eos_penalty=torch.full((2,), data.draw(penalties))
    )
    scores, ids = check_selection(place, logits, rules, 3, 2, k)
    for row, chosen in zip(scores.flatten(0, 1), ids.flatten(0, 1), strict=True):
        order = [(-s, i) for s, i in zip(row.tolist(), chosen.tolist(), strict=True) if np.isfinite(s)]
        assert order == sorted(order)  # of equal scores the lower id first


def test_forced_tokens_keep_their_own_score_and_exclude_all_others(place):
    logits, rules = selection(FLOAT, 2, 2, 300, 2)
    forced = torch.tensor([[7, -1], [2, 3]])
    banned = rules.banned.clone()
    banned[0, 0, 0] = 7  # a forced token may be a banned one
    scores, ids = check_selection(place, logits, rules._replace(forced=forced, banned=banned), 3, 2, 5)
    assert ids[0, 0].tolist() == [7] * 5
    assert torch.isneginf(scores[0, 0, 1:]).all()
    assert torch.isfinite(scores[0, 1]).all()


def test_a_row_with_something_that_is_not_a_number_allows_nothing_and_others_go_on(place):
    logits, rules = selection(FLOAT, 4, 1, 300, 1)
    want = place.select(logits, tuple(rules), 3, 2, 4)
    logits[0, 0, 123] = torch.nan
    logits[1, 0, 5] = torch.inf
    logits[2, 0] = -torch.inf
    forced = rules.forced.clone()
    forced[1] = 9
    scores, ids = place.select(logits, (forced, *rules[1:]), 3, 2, 4)
    assert torch.isneginf(scores[:3]).all()
    assert torch.equal(scores[3], want[0][3])
    assert torch.equal(ids[3], want[1][3])


def test_fewer_allowed_tokens_than_asked_for_leave_the_rest_impossible(place):
    logits, rules = selection(FLOAT, 1, 1, 64, 62)
    rules = rules._replace(banned=torch.arange(62)[None, None], unk_penalty=torch.zeros(1))
    scores, ids = place.select(logits, tuple(rules), 3, 2, 8)
    assert torch.isfinite(scores[0, 0]).tolist() == [True, True] + [False] * 6
    assert set(ids[0, 0, :2].tolist()) == {62, 63}


def test_rows_that_crowd_a_few_columns_take_the_slow_way_and_are_right(place):
    """A thread sees every 256th vector of four. 63 of them have all that is good, so the 64th bounds nothing,
    and there are more candidates than room to rank them."""
    g = torch.Generator().manual_seed(0)
    logits = torch.rand((1, 1, 64, 256, 4), generator=g)
    logits[:, :, :, :63] += 5
    assert logits[:, :, :, :63].numel() > SELECT_ROOM
    assert logits[0, 0, 0].numel() == SELECT_COLUMNS * 4
    rules = selection(FLOAT, 1, 1, 65536, 1)[1]
    check_selection(place, logits.flatten(2), rules, 3, 2, 64)


@pytest.mark.parametrize("dtype", [FLOAT, BRAIN])
def test_a_step_of_the_recurrent_unit_equals_the_reference_and_keeps_its_cells(place, dtype):
    candidate, gate = normal(1, 2, 3, 40, dtype=dtype), normal(2, 2, 3, 40, dtype=dtype)
    ring = place.there(normal(3, 2, 1, 3, 40))
    g = torch.Generator().manual_seed(0)
    for _ in range(3):  # beams are reordered, so a cell that is written too early would show
        index = torch.randint(0, 3, (2, 3, 1), generator=g) + torch.tensor([0, 3])[:, None, None]
        cells, y = reference.ssru_step(candidate.float(), gate.float(), place.here(ring), index)
        got, output = place.ssru_step(candidate, gate, ring, index, append=True)
        close(got, cells, FLOAT, 4)
        close(output, y, dtype, 4)
        assert torch.equal(place.here(ring)[:, 0], got)
        same, _ = place.ssru_step(candidate, gate, ring, index, append=False)
        assert torch.equal(place.here(ring)[:, 0], got)
        assert same.shape == got.shape


def layer_norm(x, norm):
    gain, shift = norm.gain.float(), norm.shift.float()
    return F.layer_norm(x.float(), gain.shape, gain, shift, norm.epsilon)


@pytest.mark.parametrize("activation", [None, "relu", "glu"])
@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "dim", "outputs"),
    [
        (FLOAT, 1, 1, 520, 34),  # what a lane sums is not the same for all
        (FLOAT, 2, 3, 37, 6),
        (FLOAT, 8, 1, 1024, 10),  # four warps share a sum
        (HALF, 1, 4, 48, 8),
        (BRAIN, 1, 4, 48, 8),
        (HALF, 1, 4, 64, 8),  # from here on by tensor cores
        (BRAIN, 1, 1, 64, 8),
        (BRAIN, 2, 3, 352, 36),  # not every warp has as much, and the last tile is no whole one
        (BRAIN, 2, 1, 1024, 40),
        (BRAIN, 3, 4, 64, 8),  # two mma
        (HALF, 8, 2, 352, 36),
        (BRAIN, 2, 5, 1024, 20),
        (BRAIN, 1, 5, 2080, 34),  # more than was fetched before the wait; with a norm not by tensor cores
    ],
)
def test_a_product_and_all_around_it_equal_torch(place, dtype, slots, beams, dim, outputs, activation):
    weight, bias = normal(1, outputs, dim, dtype=dtype) / dim**0.5, normal(2, outputs, dtype=dtype)
    norm = Norm(normal(3, dim, dtype=dtype), normal(4, dim, dtype=dtype), 1e-5)
    x, temperature = (
        normal(5, slots, beams, dim),
        torch.rand(slots, generator=torch.Generator().manual_seed(6)) + 0.5,
    )
    made = {None: lambda y: y, "relu": F.relu, "glu": lambda y: F.glu(y, -1)}[activation]
    width = outputs // 2 if activation == "glu" else outputs
    residual = normal(7, slots, beams, width)

    def wanted(inputs, factor=1.0):
        return made(F.linear(inputs.to(dtype).float(), weight.float(), bias.float()) * factor)

    plain, nothing = place.product(x.to(dtype), (weight, bias), Epilogue(0.5, activation), constant=True)
    assert nothing is None
    close(plain, wanted(x, 0.5), dtype, 4)
    wide, normed = place.product(
        x, (weight, bias), Epilogue(1.0, activation, residual, True), norm, constant=True
    )
    close(normed, layer_norm(x, norm), dtype, 8)
    close(wide, wanted(normed) + residual, FLOAT, 8)
    hot, nothing = place.product(
        x, (weight, bias), Epilogue(1.0, activation, None, True), norm, temperature, constant=True
    )
    assert nothing is None
    close(
        hot, wanted(layer_norm(x, norm) / temperature[:, None, None]), FLOAT if dtype == FLOAT else dtype, 8
    ) if (dtype == FLOAT) else torch.testing.assert_close(
        hot, wanted(layer_norm(x, norm) / temperature[:, None, None]), rtol=0.02, atol=0.05
    )


@pytest.mark.parametrize(("dim", "offset"), [(96, 1), (2080, 0), (2496, 0), (2560, 0), (4096, 1)])
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_products_of_more_than_eight_rows_take_rows_of_any_length(place, dtype, dim, offset):
    """Where 16 warps share a sum, each stages a row; rows for which there is no room are read where they lie.
    Parts of something may begin anywhere."""
    weight = normal(1, 20, dim, dtype=dtype) / dim**0.5
    x, residual = normal(2, 13 * dim + offset, dtype=dtype)[offset:].view(1, 13, dim), normal(3, 1, 13, 20)
    assert place.kernels.fits(x, weight, constant=True)
    epilogue = Epilogue(1.0, "relu", residual, float32=True)
    for rows in (x, x.float()):
        found, _ = place.product(rows, (weight, None), epilogue, constant=True)
        close(found, F.relu(F.linear(x.float(), weight.float())) + residual, FLOAT, 8)


def test_rows_beyond_eight_are_the_librarys_where_tensor_cores_do_not_take_them():
    own = Kernels(print)

    def fits(rows, dim=1024, dtype=BRAIN, norm=None, by=own, constant=True, glu=False):
        x, weight = torch.zeros(1, rows, dim, dtype=dtype), torch.zeros(6, dim, dtype=dtype)
        return by.fits(x, weight, norm, constant=constant, glu=glu)

    norm = Norm(torch.ones(1056, dtype=BRAIN), torch.ones(1056, dtype=BRAIN), 1e-5)
    assert fits(8, dtype=FLOAT)
    assert fits(8, constant=False)
    assert fits(9)
    assert fits(16, 64, HALF)
    assert fits(16, 2496)
    assert fits(16, 1056)
    assert not fits(17)
    assert not fits(16, 1056, norm=norm)
    assert not fits(9, dtype=FLOAT)
    assert not fits(9, 1000)
    assert fits(9, 4096)
    assert not fits(9, 4096, glu=True)
    assert not fits(9, constant=False)
    assert not fits(9, by=Kernels(print, tensor_cores=False))


@pytest.mark.parametrize("activation", [None, "glu"])
@pytest.mark.parametrize("rows", [7, 12])
def test_blocks_of_tensor_cores_go_on_to_further_tiles(place, activation, rows):
    """As of logits: more tiles than twice the multiprocessors."""
    place.kernels.processors = 1
    weight, bias = normal(1, 84, 96, dtype=BRAIN) / 8, normal(2, 84, dtype=BRAIN)
    x = normal(3, 1, rows, 96, dtype=BRAIN)
    wanted = F.linear(x.float(), weight.float(), bias.float())
    found, _ = place.product(x, (weight, bias), Epilogue(1.0, activation, float32=True), constant=True)
    close(found, F.glu(wanted, -1) if activation else wanted, FLOAT, 8)


def test_a_product_goes_to_tensor_cores_where_these_take_it():
    made: list[Call] = []
    kernels = Kernels(made.append)
    norm = Norm(torch.ones(2048, dtype=BRAIN), torch.ones(2048, dtype=BRAIN), 1e-5)

    def entry(dim, dtype=BRAIN, activation=None, norm=None, by=kernels, offset=0, constant=True):
        x = torch.zeros(dim + offset, dtype=dtype)[offset:].view(1, 1, dim)
        weights = torch.zeros(6, dim, dtype=dtype), None
        by.product(x, weights, Epilogue(activation=activation), norm, constant=constant)
        return made[-1].kernel.entry

    assert entry(1024) == entry(2048) == entry(64, HALF) == "tiled_product"
    assert entry(1024, activation="glu") == entry(4096, activation="glu") == "tiled_glu"
    assert entry(2080) == entry(4096) == "tiled_long"
    assert entry(1000) == entry(1024, FLOAT) == entry(2048, norm=norm) == "product"
    assert entry(1024, offset=1) == "product"  # 16 bytes are not aligned there
    assert entry(1024, by=Kernels(made.append, tensor_cores=False)) == "product"
    assert entry(1024, constant=False) == "product"


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [8, 9, 16, 17])
def test_a_layer_of_up_to_sixteen_rows_is_a_kernel_for_each_product(host, rows):
    """The norm goes into one product, and the residual connection into another."""
    made: list[str] = []

    def run(call: Call) -> None:
        made.append(call.kernel.entry)
        host(call)

    widen, narrow = (Parameter(normal(i, *s, dtype=BRAIN) / 8) for i, s in enumerate(((128, 64), (64, 64))))
    gain, shift = Parameter(normal(3, 64, dtype=BRAIN)), Parameter(normal(4, 64, dtype=BRAIN))
    x = normal(5, 1, rows, 64)

    def layer(x, widen, narrow, gain, shift):
        inner = F.glu(F.linear(F.layer_norm(x, (64,), gain, shift), widen), -1)
        return x + F.linear(inner, narrow)

    with torch.no_grad():
        with FusedMode(Kernels(run), BRAIN) as fused:
            inputs = x if rows <= 16 else x.to(BRAIN)
            found = fused.compute_all({"y": layer(inputs, widen, narrow, gain, shift)})["y"]
        wanted = layer(x, *(w.float() for w in (widen, narrow, gain, shift)))
    assert made == (["tiled_glu", "tiled_product"] if rows <= 16 else ["glu"])
    torch.testing.assert_close(found.float(), wanted, rtol=0.03, atol=0.06)


def test_a_product_names_the_weight_of_the_one_that_came_behind_it_last():
    """Its bytes are fetched while the device waits; of a longer weight no more than caches keep."""
    made: list[Call] = []
    kernels = Kernels(made.append)
    weights = [torch.zeros(outputs, 1024, dtype=BRAIN) for outputs in (16, 32, 8192)]
    x = torch.zeros(1, 2, 1024, dtype=BRAIN)
    for _ in range(2):
        for weight in weights:
            kernels.product(x, (weight, None), Epilogue(), constant=True)
    named = [(int(call.arguments[-4]), call.arguments[-3]) for call in made]
    assert named[:3] == [(0, 0)] * 3
    following = [*weights[1:], weights[0]]
    assert [address for address, _ in named[3:]] == [weight.data_ptr() for weight in following]
    assert [size for _, size in named[3:]] == [32 * 2048, MAX_AHEAD_BYTES, 16 * 2048]


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [5, 9])
def test_a_sublayers_queries_and_taps_are_made_where_they_are_used(host, rows):
    made: list[str] = []

    def run(call: Call) -> None:
        made.append(call.kernel.entry)
        host(call)

    own, query, kernels = (
        Parameter(normal(i, *s, dtype=BRAIN) / 8) for i, s in enumerate(((64, 64), (64, 64), (4 * 5, 64)))
    )
    norm = Parameter(normal(3, 64, dtype=BRAIN)), Parameter(normal(4, 64, dtype=BRAIN))
    x, ring = normal(5, 1, rows, 64), normal(6, 1, 4, rows, 64, dtype=BRAIN)
    index = torch.arange(4 * rows).view(1, rows, 4)
    _, keys, values, mask = attention(BRAIN, 1, rows, 4, 16, 32)

    def step(x, own, query, kernels, gain, shift, ring, memory):
        y = F.linear(x, own)
        taps = F.softmax(F.linear(y, kernels).unflatten(-1, (4, 5)), dim=-1)
        y = reference.dynamic_conv_step(y, taps, ring, index)
        z = F.layer_norm(x, (64,), gain, shift)
        return y, z, reference.attend(F.linear(z, query) * 0.25, *memory)[0]

    with torch.no_grad():
        given = x, own, query, kernels, *norm
        wanted = step(*wide(*given), ring.float(), (*wide(keys, values), mask))
        with FusedMode(Kernels(run), BRAIN, torch.zeros(1, dtype=torch.int64), weights=False) as fused:
            found = step(*given, ring.clone(), (keys, values, mask))
            found = fused.compute_all(dict(enumerate(found)))
    assert made.count("dynamic_conv_tiled") == made.count("attend_product") == int(rows <= 8)
    assert made.count("dynamic_conv_step_append") == made.count("attend_tiled") == int(rows > 8)
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)


def test_weights_that_a_step_makes_are_not_read_before_they_are_made():
    """Those of a model may be, and parts of them."""
    made: list[Call] = []
    weight, x = Parameter(torch.zeros(64, 64, dtype=BRAIN)), torch.zeros(1, 2, 64, dtype=BRAIN)
    entries = {"own": weight, "part": weight[16:32], "made": weight * 2}
    with torch.no_grad():
        for name, used in entries.items():
            with FusedMode(Kernels(made.append), BRAIN) as fused:
                fused.compute_all({"y": F.linear(x, used)})
            entries[name] = made[-1].kernel.entry
    assert entries == {"own": "tiled_product", "part": "tiled_product", "made": "product"}


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
@pytest.mark.parametrize("activation", [None, "relu", "glu"])
def test_products_of_many_rows_are_the_librarys_with_what_is_behind_them(place, dtype, activation):
    made = {None: lambda y: y, "relu": F.relu, "glu": lambda y: F.glu(y, -1)}[activation]
    x, weight, bias = normal(1, 5, 3, 64, dtype=dtype), normal(2, 16, 64, dtype=dtype) / 8, normal(3, 16)
    x, weight, bias = place.there((x, weight, bias.to(dtype)))
    for added in (bias, None):
        with FusedMode(place.kernels, dtype) as fused:
            found = fused.compute_all({"y": made(F.linear(x, weight, added))})["y"]
        wanted = made(F.linear(x.float(), weight.float(), None if added is None else added.float()))
        close(place.here(found), place.here(wanted), dtype, 4)


class Products(TorchDispatchMode):
    """Notes what torch multiplies by, of its products with a bias."""

    def __init__(self):
        super().__init__()
        self.factors = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name == "aten::addmm":
            self.factors.append(kwargs)
        return func(*args, **(kwargs or {}))


def test_a_product_with_a_factor_has_its_bias_multiplied_before_it_is_added():
    """Torch would copy it to all rows for another beta than 1."""
    x, weight, bias = normal(1, 5, 4, 8, dtype=BRAIN), normal(2, 6, 8, dtype=BRAIN), normal(3, 6, dtype=BRAIN)
    with Products() as products, FusedMode(Kernels(lambda _: None), BRAIN) as fused:
        found = fused.compute_all({"y": F.linear(x, weight, bias) * 0.3})["y"]
    assert products.factors == [{"alpha": 0.3}]
    close(found, F.linear(*wide(x, weight, bias)) * 0.3, BRAIN, 4)


@pytest.mark.parametrize("outputs", [1, 7])
def test_a_product_of_an_odd_number_of_outputs_writes_each_once(place, outputs):
    weight, x = normal(1, outputs, 16), normal(2, 1, 3, 16)
    close(place.product(x, (weight, None), Epilogue())[0], F.linear(x, weight), FLOAT, 4)


def test_a_row_of_a_product_is_the_same_bit_for_bit_whatever_rows_come_with_it(place):
    weight, x = normal(1, 32, 256), normal(2, 8, 1, 256)
    norm = Norm(normal(3, 256), normal(4, 256), 1e-5)
    many, _ = place.product(x, (weight, None), Epilogue(), norm)
    for rows in ROW_BUCKETS:
        few, _ = place.product(x[:rows], (weight, None), Epilogue(), norm)
        assert torch.equal(few, many[:rows])


@pytest.mark.parametrize("dtype", [FLOAT, BRAIN])
def test_what_a_decoder_is_fed_equals_two_embeddings(place, dtype):
    g = torch.Generator().manual_seed(0)
    tokens, positions = (torch.randint(0, 20, size, generator=g) for size in ((3, 2), (3, 1)))
    table, position_rows = normal(1, 20, 24, dtype=dtype), normal(2, 20, 24, dtype=dtype)
    want = F.embedding(tokens, table.float()) * 3.0
    close(place.embed(tokens, table, 3.0, None), want, dtype, 4)
    close(
        place.embed(tokens, table, 3.0, (positions, position_rows)),
        want + F.embedding(positions, position_rows.float()),
        dtype,
        4,
    )


@pytest.mark.parametrize(("slots", "beams"), [(1, 1), (3, 1), (1, 5), (2, 4), (3, 4), (8, 2)])
@pytest.mark.parametrize(
    ("dtype", "dim", "activation"), [(BRAIN, 64, "glu"), (HALF, 352, None), (BRAIN, 2080, "relu")]
)
def test_a_product_that_looks_its_rows_up_gives_what_two_kernels_give_bit_for_bit(
    place, slots, beams, dtype, dim, activation
):
    g = torch.Generator().manual_seed(slots)
    tokens = torch.randint(0, 20, (slots, beams), generator=g)
    positions = torch.randint(0, 9, (slots, 1), generator=g)
    table, position_rows = normal(1, 20, dim, dtype=dtype), normal(2, 9, dim, dtype=dtype)
    weights = normal(3, 72, dim, dtype=dtype), normal(4, 72, dtype=dtype)
    for scale, more in ((dim**0.5, (positions, position_rows)), (1.0, None)):
        lookup = EmbeddingLookup(tokens, table, scale, more)
        if not place.kernels.takes_lookup(lookup, weights[0], glu=activation == "glu"):
            assert (dim, slots * beams > 8) == (2080, True) and activation == "glu"
            continue
        rows = place.embed(tokens, table, scale, more)
        wanted, _ = place.product(rows, weights, Epilogue(1.0, activation), constant=True)
        y, found = place.product(lookup, weights, Epilogue(1.0, activation), constant=True)
        assert torch.equal(found, rows)
        assert torch.equal(y, wanted)


def test_what_looks_rows_up_is_a_kernel_that_stages_elements_of_one_type():
    kernels = Kernels(lambda _: None)

    def takes(rows=8, dim=64, dtype=BRAIN, position_rows=BRAIN, offset=0, glu=False):
        table = torch.zeros(9 * dim + offset, dtype=dtype)[offset:].view(9, dim)
        more = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(9, dim, dtype=position_rows)
        lookup = EmbeddingLookup(torch.zeros(1, rows, dtype=torch.int64), table, 1.0, more)
        return kernels.takes_lookup(lookup, torch.zeros(32, dim, dtype=BRAIN), glu=glu)

    assert takes() and takes(16) and takes(dim=4096) and takes(glu=True)
    assert not takes(17) and not takes(16, dim=4096)  # nobody stages those
    assert not takes(dtype=FLOAT) and not takes(position_rows=HALF)
    assert not takes(offset=1) and not takes(dim=24)


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [1, 16, 17])
def test_a_decoder_of_few_rows_looks_its_tokens_up_where_it_multiplies_them_first(host, rows):
    made: list[str] = []

    def run(call: Call) -> None:
        made.append(call.kernel.entry)
        host(call)

    table, position_rows, weight = (Parameter(normal(i, 64, 64, dtype=BRAIN) / 8) for i in range(3))
    tokens, positions = torch.arange(rows)[None], torch.tensor([[5]])
    norm = Parameter(normal(3, 32, dtype=BRAIN)), Parameter(normal(4, 32, dtype=BRAIN))

    def step(table, position_rows, weight, norm):
        x = F.embedding(tokens, table) * 8.0 + F.embedding(positions + 2, position_rows)
        return x[..., :32], F.layer_norm(F.glu(F.linear(x, weight), dim=-1), (32,), *norm)

    with torch.no_grad():
        wanted = step(*wide(table, position_rows, weight), wide(*norm))
        with FusedMode(Kernels(run), BRAIN) as fused:
            x = F.embedding(tokens, table) * 8.0 + F.embedding(positions + 2, position_rows)
            y = F.layer_norm(F.glu(F.linear(x, weight), dim=-1), (32,), *norm)
            found = fused.compute_all({"y": y, "x": x})
    assert made.count("embed") == int(rows > 16)
    torch.testing.assert_close(found["x"][..., :32].float(), wanted[0], rtol=0.02, atol=0.02)
    torch.testing.assert_close(found["y"].float(), wanted[1], rtol=0.03, atol=0.06)


def test_copies_write_their_rows_and_zeros_behind_them_and_nothing_else(place):
    """Of elements of 1, 2, 4 and 8 bytes; records name addresses, so all lies where the kernel runs."""
    for dtype in (torch.bool, HALF, FLOAT, torch.int64):
        source, target = (normal(i, 6, 40).mul(9).to(dtype).to(place.device) for i in (1, 2))
        want, size = target.clone().cpu(), source.element_size()
        want[1:4, 8:24], want[5, :3] = 0, 0
        want[1:4, 8:20] = source[2:5, 4:16].cpu()
        pitch = 40 * size
        records = [
            (target[1:, 8:].data_ptr(), source[2:, 4:].data_ptr(), 3, 12 * size, 16 * size, pitch, pitch),
            (target[5:].data_ptr(), 0, 1, 0, 3 * size, 0, 0),
        ]
        # the second row of items is the first but for what is added to the targets
        plan = torch.tensor([records, [[1, *[0] * 6]] * 2], device=place.device)
        again = target.clone()
        items = torch.tensor([[1, 0], [1, again.data_ptr() - target.data_ptr()]], device=place.device)
        Scatter(place.kernels.run, plan)(items.data_ptr(), 2, 2)
        assert torch.equal(target.cpu(), want)
        assert torch.equal(again.cpu(), want)


@pytest.mark.parametrize(
    ("dtype", "dim"), [(FLOAT, 512), (FLOAT, 37), (FLOAT, 2056), (HALF, 64), (BRAIN, 64)]
)
def test_the_norm_of_a_sum_equals_torch(place, dtype, dim):
    x, residual = normal(1, 5, dim, dtype=dtype) + 10, normal(2, 5, dim, dtype=dtype)
    gain, bias = normal(3, dim, dtype=dtype), normal(4, dim, dtype=dtype)
    want = x.float() + residual.float()
    total, y = place.add_norm(x, residual, Norm(gain, bias, 1e-5), total=True)
    close(total, want, dtype)
    close(y, F.layer_norm(want, (dim,), gain.float(), bias.float(), 1e-5), dtype, 40)
    nothing, y = place.add_norm(x, None, Norm(gain, bias, 1e-5))
    assert nothing is None
    close(y, F.layer_norm(x.float(), (dim,), gain.float(), bias.float(), 1e-5), dtype, 40)


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
@pytest.mark.parametrize(("rows", "dim"), [(3, 64), (5, 37), (2, 2056), (1, 1)])
def test_a_glu_of_many_rows_equals_torch(place, dtype, rows, dim):
    room = normal(1, 1 + rows * 2 * dim, dtype=dtype) * 4
    room[-1] = 200  # a gate that is open, and one that is shut
    room[-1 - dim // 2] = -200 if dim > 1 else 200
    for begin in (0, 1):  # elements that lie as they are loaded, and others
        x = room[begin : begin + rows * 2 * dim].view(rows, 2 * dim)
        close(place.glu(x), F.glu(x.float(), -1), dtype, 4)


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
def test_a_norm_is_divided_by_its_slots_temperature(place, dtype):
    x, residual = normal(1, 3, 2, 40, dtype=dtype), normal(2, 3, 2, 40, dtype=dtype)
    norm, temperature = (
        Norm(normal(3, 40, dtype=dtype), normal(4, 40, dtype=dtype), 1e-5),
        torch.tensor([0.5, 1, 3]),
    )
    want = layer_norm(x.float() + residual.float(), norm) / temperature[:, None, None]
    close(place.add_norm(x, residual, norm, temperature=temperature)[1], want, dtype, 40)
    if dtype == FLOAT:  # as the operator that stood behind it
        alone = place.add_norm(x, residual, norm)[1]
        assert torch.equal(
            place.add_norm(x, residual, norm, temperature=temperature)[1], alone / temperature[:, None, None]
        )


def prefetched(host, entry: str) -> list[int]:
    """Addresses that the runs of a kernel have asked for ahead since this was asked last."""
    found: list[int] = []
    for kernel, library in host.libraries.items():
        if kernel.entry == entry:
            room = (c_void_p * (1 << 16))()
            library.convoy_take_prefetched.restype = c_size_t
            count = library.convoy_take_prefetched(room, c_size_t(len(room)))
            assert count <= len(room)
            found += room[:count]
    return found


@NEEDS_COMPILER
@pytest.mark.parametrize(("slots", "source", "room"), [(2, 32, 32), (3, 40, 64), (1, 9, 16)])
def test_a_norm_asks_for_all_keys_and_values_of_the_slots_that_it_is_told_of(
    host, monkeypatch, slots, source, room
):
    """A sector of 32 bytes at a time, and nothing of the room behind what is read."""
    heads, width, kernels = 2, 16, Kernels(host)
    keys = normal(1, slots, heads, width, room, dtype=BRAIN)[..., :source]
    values = normal(2, slots, heads, room, width, dtype=BRAIN)[:, :, :source]
    x, ones = normal(3, 5, 1, 48, dtype=BRAIN), torch.ones(48, dtype=BRAIN)
    prefetched(host, "add_norm")
    for held in (slots, max(slots - 1, 0), 0):
        monkeypatch.setattr(prefetching, "MAX_MEMORY_AHEAD", held * 4 * heads * width * source)
        kernels.add_norm(x, None, Norm(ones, ones, 1e-5), prefetch=prefetching.KeysValues(keys, values))
        asked = set(prefetched(host, "add_norm")) - {ones.data_ptr() + 16 * i for i in range(6)}
        parts = [part for memory in (keys, values) for slot in memory[:held] for part in slot]
        rows = [row for part in parts for row in part]
        read = {row.data_ptr() + at for row in rows for at in range(0, row.numel() * 2, 2)}
        assert asked <= read <= {at + byte for at in asked for byte in range(0, 32, 2)}


def windows(slots, beams, older, channels, offset=0):
    """A ring and the index of windows in it, of beams that share most of their ancestors."""
    g = torch.Generator().manual_seed(older)
    size = slots * older * beams * channels
    ring = normal(1, offset + size, dtype=BRAIN)[offset:].view(slots, older, beams, channels)
    ancestors = torch.randint(0, max(beams // 2, 1), (slots, beams, older), generator=g)
    ancestors[:, -1, -1] = beams - 1
    first = (torch.arange(slots)[:, None, None] * older + torch.arange(older)) * beams
    return prefetching.Windows(ring, first + ancestors)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("slots", "beams", "older", "channels"), [(3, 4, 30, 32), (2, 1, 2, 8), (1, 6, 14, 40), (2, 3, 32, 16)]
)
def test_a_norm_asks_for_the_windows_that_a_step_of_the_convolution_reads_and_no_more(
    host, monkeypatch, slots, beams, older, channels
):
    """A row of the ring once for up to four beams, wherever it is read."""
    prefetch, kernels = windows(slots, beams, older, channels), Kernels(host)
    x, ones = normal(3, slots, beams, 48, dtype=BRAIN), torch.ones(48, dtype=BRAIN)
    norm, pieces = Norm(ones, ones, 1e-5), range(0, channels * 2, 16)
    without = kernels.add_norm(x, None, norm)[1]
    gains = {ones.data_ptr() + 16 * i for i in range(6)}
    prefetched(host, "add_norm")
    for held in (slots, slots - 1, 0):
        limit = (held + 1) * beams * older * channels * 2 - 1
        monkeypatch.setattr(prefetching, "MAX_WINDOWS_AHEAD", limit)
        assert torch.equal(kernels.add_norm(x, None, norm, prefetch=prefetch)[1], without)
        asked = [at for at in prefetched(host, "add_norm") if at not in gains]
        rows = prefetch.ring.flatten(0, 2)
        read = {rows[i].data_ptr() + at for i in prefetch.index[:held].flatten().tolist() for at in pieces}
        assert set(asked) == read
        assert beams > 4 or len(asked) == len(read)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "prefetch",
    [
        pytest.param(windows(2, 2, 3, 20), id="rows of the ring are no whole vectors"),
        pytest.param(windows(2, 2, 3, 16, offset=1), id="the ring is not aligned"),
        pytest.param(windows(2, 2, 33, 16), id="more columns than the block has threads"),
        pytest.param(
            replace(windows(2, 3, 3, 16), index=windows(2, 3, 3, 16).index.mT.contiguous().mT),
            id="the index is not in one piece",
        ),
    ],
)
def test_windows_that_a_norm_can_not_ask_for_are_not_asked_for(host, prefetch):
    x, ones = normal(3, *prefetch.index.shape[:2], 16, dtype=BRAIN), torch.ones(16, dtype=BRAIN)
    prefetched(host, "add_norm")
    Kernels(host).add_norm(x, None, Norm(ones, ones, 1e-5), prefetch=prefetch)
    assert set(prefetched(host, "add_norm")) <= {ones.data_ptr(), ones.data_ptr() + 16}


@NEEDS_COMPILER
@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("beams", [8, 9])
def test_the_norm_in_front_of_a_convolutions_inputs_asks_for_its_windows(host, beams, fixed, glu):
    """Of many rows, whether its taps are made of the inputs or not."""
    made: list[Call] = []

    def run(call: Call) -> None:
        made.append(call)
        host(call)

    inner, own, kernels = (
        Parameter(normal(i, *s, dtype=BRAIN) / 8)
        for i, s in enumerate(((64, 64), (128 if glu else 64, 64), (20, 64)))
    )
    norm = Parameter(normal(3, 64, dtype=BRAIN)), Parameter(normal(4, 64, dtype=BRAIN))
    x, (ring, index) = normal(5, 2, beams, 64, dtype=BRAIN), astuple(windows(2, beams, 4, 64))

    def step(x, inner, own, kernels, gain, shift, ring):
        y = F.linear(reference.add_norm(x, F.linear(x, inner), gain, shift, 1e-5), own)
        y = F.glu(y, -1) if glu else y
        logits = (
            kernels[:, :5].unflatten(0, (4, 5))[:, 0] if fixed else F.linear(y, kernels).unflatten(-1, (4, 5))
        )
        return reference.dynamic_conv_step(y, F.softmax(logits, dim=-1), ring, index)

    with torch.no_grad():
        given = x, inner, own, kernels, *norm, ring
        wanted = step(*wide(*given))
        with FusedMode(Kernels(run), BRAIN, torch.zeros(1, dtype=torch.int64)) as fused:
            found = fused.compute_all({"y": step(*given[:-1], ring.clone())})["y"]
    assert [call.arguments[16] for call in made if call.kernel.entry == "add_norm"] == [2 * beams] * (
        beams > 8
    )
    torch.testing.assert_close(found.float(), wanted, rtol=0.03, atol=0.06)


@NEEDS_COMPILER
@pytest.mark.parametrize(("rows", "asked"), [(16, 0), (17, 4)])
def test_the_norm_in_front_of_attention_asks_for_its_memory_and_divides_by_temperature(host, rows, asked):
    made: list[Call] = []

    def run(call: Call) -> None:
        made.append(call)
        host(call)

    query = Parameter(normal(1, 64, 64, dtype=BRAIN) / 8)
    norm = Parameter(normal(3, 64, dtype=BRAIN)), Parameter(normal(4, 64, dtype=BRAIN))
    x, added = normal(5, 1, rows, 64, dtype=BRAIN), Parameter(normal(6, 64, 64, dtype=BRAIN) / 8)
    memory, temperature = attention(BRAIN, 1, rows, 4, 16, 32)[1:], torch.full((1, 1, 1), 2.0)

    def step(x, query, added, gain, shift, keys, values, mask):
        y = reference.add_norm(x, F.linear(x, added), gain, shift, 1e-5)
        z = reference.attend(F.linear(y, query) * 0.25, keys, values, mask)[0]
        return y, reference.add_norm(y, z, gain, shift, 1e-5).div(temperature)

    with torch.no_grad():
        given = x, query, added, *norm, *memory
        wanted = step(*wide(*given))
        with FusedMode(Kernels(run), BRAIN, weights=False) as fused:
            y, z = step(*given)
            found = fused.compute_all({"y": y, "z": z})
    norms = [call for call in made if call.kernel.entry == "add_norm"]
    blocks, heats = ([call.arguments[i] for call in norms] for i in (10, 4))
    assert blocks == [asked, 0][: len(norms)] if rows > 16 else not any(blocks)
    # the product of the queries has no factor, for which cuBLAS would copy the bias
    assert [call.arguments[-2] for call in made if call.kernel.entry == "attend_tiled"] == [0.25]
    if rows > 16:  # nobody else divides
        assert [h is None for h in heats] == [True, False]
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_every_number_of_sixteen_bits_comes_through_as_it_is(place, dtype):
    """A convolution with one tap of 1 is the identity, but goes through fp32."""
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype).reshape(1, 1, 65536)
    y = place.dynamic_conv_step(x, torch.ones(1, 1, dtype=dtype), None, None)
    number = ~torch.isnan(x)
    assert torch.equal(y[number], x[number])
    assert torch.isnan(y[~number]).all()


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_rounding_to_sixteen_bits_is_that_of_torch(place, dtype):
    """x * 1 + r * w with fp32 sums: residual connections round once."""
    x = (normal(1, 64, 512) * torch.logspace(-9, 5, 512)).to(dtype)
    r = (normal(2, 64, 512) * torch.logspace(-10, 4, 512)).to(dtype)
    ones = torch.ones(512, dtype=dtype)
    total, _ = place.add_norm(x, r, Norm(ones, ones, 1e-5), total=True)
    assert torch.equal(total, (x.float() + r.float()).to(dtype))


def test_a_row_does_not_depend_on_its_batch(place):
    x, taps, ring, index = convolution(FLOAT, 3, 2, 48, 4, 6, False)
    many = place.dynamic_conv_step(x, taps, ring, index)
    assert torch.equal(place.dynamic_conv_step(x[:1], taps[:1], ring, index[:1]), many[:1])
    logits, rules = selection(FLOAT, 3, 2, 1000, 2)
    scores, ids = place.select(logits, tuple(rules), 3, 2, 4)
    alone = place.select(logits[2:], tuple(r[2:] for r in rules), 3, 2, 4)
    assert torch.equal(alone[0], scores[2:])
    assert torch.equal(alone[1], ids[2:])


def search(run, slots, beams, columns, device="cpu"):
    """The kernels of a search, over a state of slots that are idle."""
    limits = SimpleNamespace(slots=slots, beams=beams, device=device, pad=1, limits=SimpleNamespace(source=8))
    return SearchKernels(run, blank(xp, limits, columns), Tokens(pad=1, eos=2))


def followed(slots, beams, windows):
    """A count of slots in use, and rings of these windows."""
    rings = Rings([StateSpec(str(w), w, 1) for w in windows], slots, beams, xp, "cpu", FLOAT)
    rings.clock = torch.full((1,), 5)
    addresses = torch.tensor([[w, rings.rows[w].data_ptr()] for w in rings.windows])
    return torch.tensor([slots]), RingArrays(rings.ancestors, rings.clock, addresses)


def calls(dtype):
    """One call of every entry, with all that is optional and without."""
    made: list[Call] = []
    kernels = Kernels(made.append)
    x, taps, ring, index = convolution(dtype, 2, 3, 32, 4, 5, False)
    kernels.dynamic_conv_step(x, taps, ring, index)
    past = ring, index, torch.zeros(1, dtype=torch.int64)
    kernels.dynamic_conv_step_append(x, taps[0, 0], past, softmax=True)
    weights = normal(5, 8, 32, dtype=dtype), normal(6, 8, dtype=dtype)
    norm, temperature = Norm(weights[0][0], weights[0][1], 1e-5), torch.ones(2)
    kernels.product(x, weights, Epilogue(activation="glu"), norm, temperature, constant=True)
    if dtype != FLOAT:
        lookup = EmbeddingLookup(torch.zeros(2, 3, dtype=torch.int64), weights[0])
        kernels.product(lookup, weights, Epilogue(), constant=True)
    epilogue = Epilogue(residual=normal(7, 2, 3, 8), float32=True)
    kernels.product(x.float(), (weights[0], None), epilogue, constant=True)
    for dim in (24, 2080) if dtype == FLOAT else (24, 2080, 5120):
        weights_of = normal(8, 8, dim, dtype=dtype), None
        kernels.product(normal(7, 2, 3, dim, dtype=dtype), weights_of, Epilogue(), constant=True)
    kernels.embed(
        torch.zeros(2, 3, dtype=torch.int64),
        weights[0],
        2.0,
        (torch.zeros(2, 1, dtype=torch.int64), weights[0]),
    )
    Scatter(made.append, torch.zeros(2, 1, 7, dtype=torch.int64))(0, 1, 1)
    search(made.append, 2, 3, 9).begin_step(*followed(2, 3, (4,)), 2)
    top = TopK(torch.zeros(2, 3, 6), torch.zeros(2, 3, 6, dtype=torch.int64), None)
    search(made.append, 2, 3, 9).end_step(top, past[2])
    search(made.append, 2, 3, 9).follow_back(Address(0), 2, 9, torch.zeros(0, dtype=torch.int64))
    cells = normal(9, 2, 1, 3, 32)
    kernels.ssru_step(x, x, cells, torch.zeros(2, 3, 1, dtype=torch.int64), append=True)
    kernels.dynamic_conv(x, taps, 2)
    packed, _ = packed_sequences((7,))
    of_one = normal(5, 1, 16, 32, dtype=dtype)
    kernels.dynamic_conv(of_one, taps[0, 0], 2, packed)
    kernels.attend_packed(QKV(of_one, of_one, of_one), packed, 4)
    q, *narrow = attention(dtype, 2, 3, 4, 8, 32)
    kernels.attend(q, narrow, weights=True)
    memory = attention(dtype, 2, 3, 4, 16, 32)[1:]
    kernels.attend(normal(5, 2, 3, 64, dtype=dtype), memory, weights=False)
    if dtype != FLOAT:
        of_heads = normal(6, 64, 32, dtype=dtype), normal(7, 64, dtype=dtype)
        kernels.attend_product(normal(5, 2, 3, 32), of_heads, 0.5, norm, memory)
        kernels.dynamic_conv_product(x, normal(8, 20, 32, dtype=dtype), past, (4, 5), softmax=True)
    logits, rules = selection(dtype, 2, 3, 64, 2)
    kernels.select(logits, tuple(rules), None, 2, 6)
    kernels.select(*selection(dtype, 1, 1, 1024, 2), None, 2, 6)
    kernels.glu(x)
    kernels.add_norm(x, None, Norm(x[0, 0], x[0, 1], 1e-5), total=True)
    kernels.add_norm(x, x, Norm(x[0, 0], x[0, 1], 1e-5), prefetch=prefetching.Windows(ring, index))
    kernels.add_norm(x, None, Norm(x[0, 0], x[0, 1], 1e-5), prefetch=prefetching.KeysValues(*memory[:2]))
    return made


ARCHITECTURES = (80, 89, 90, 100)
SIGNATURE = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)")
PARAMETERS = {".u64": "address", ".u32": "integer", ".f32": "float", ".s32": "integer"}


def parameters(ptx: bytes, entry: str) -> list[str]:
    listed = dict(SIGNATURE.findall(ptx.decode()))[entry]
    return [PARAMETERS[re.search(r"\.[usf]\d+", line)[0]] for line in listed.split(",")]


@pytest.mark.parametrize(
    ("architecture", "dtype"), [(90, HALF), (90, BRAIN), *((a, FLOAT) for a in ARCHITECTURES)]
)
def test_nvrtc_compiles_every_kernel_and_each_call_passes_what_it_takes(compiler, architecture, dtype):
    if architecture not in compiler.architectures:
        pytest.skip(f"NVRTC {compiler.version} does not know sm_{architecture}")
    made = calls(dtype)
    narrow = {*PRODUCTS, *HEAD_PRODUCTS, "attend_tiled"} - {"product"}
    assert {c.kernel.entry for c in made} == entries() - (narrow if dtype == FLOAT else set())
    for call in made:
        defines = call.kernel.defines
        ptx = compiler.compile(call.kernel.file, defines, f"compute_{architecture}")
        assert f".target sm_{architecture}".encode() in ptx
        kinds = [
            {c_int32: "integer", c_float: "float", c_void_p: "address"}[type(argument(a))]
            for a in call.arguments
        ]
        assert parameters(ptx, call.kernel.entry) == kinds


def entries():
    """Names of all kernels, as the sources define them."""
    text = "".join(path.read_text() for path in SOURCES.glob("*.cu"))
    return set(re.findall(r"__global__ void[^;{]*?(\w+)\(", re.sub(r"__launch_bounds__\([^)]*\)", "", text)))


def test_machine_code_for_a_real_device_is_made_too(compiler):
    assert compiler.target((9, 0)) == "sm_90"
    assert compiler.compile("add_norm.cu", {}, "sm_90")[:4] == b"\x7fELF"


def test_what_was_compiled_is_kept_until_anything_it_is_made_of_changes(compiler, monkeypatch):
    first = compiler.compile("add_norm.cu", {"CONVOY_VECTOR": "2"}, "compute_90")
    monkeypatch.setattr(compiler, "_compile", None)  # whoever compiles now fails
    assert compiler.compile("add_norm.cu", {"CONVOY_VECTOR": "2"}, "compute_90") == first
    for changed in ("add_norm.cu", {"CONVOY_VECTOR": "4"}, "compute_90"), ("add_norm.cu", {}, "compute_89"):
        with pytest.raises(TypeError):
            compiler.compile(*changed)


def test_source_that_does_not_compile_is_refused_in_the_compilers_own_words(compiler):
    with pytest.raises(ConfigError, match="identifier .nonsense. is undefined"):
        compiler.compile("add_norm.cu", {"CONVOY_ELEMENT": "nonsense"}, "compute_90")


def test_a_device_newer_than_the_compiler_gets_portable_code_and_an_older_one_is_refused(compiler):
    assert compiler.target((99, 0)) == f"compute_{compiler.architectures[-1]}"
    with pytest.raises(ConfigError, match="take another GPU"):
        compiler.target((1, 0))


def test_what_python_knows_of_the_sources_is_what_they_say():
    attend, select = ((SOURCES / name).read_text() for name in ("attend.cu", "select.cu"))
    assert f"constexpr int BEAMS = CONVOY_BEAMS, WARPS = {ATTEND_WARPS}," in attend
    assert f"constexpr int ROOM = {SELECT_ROOM};" in select
    assert f"constexpr int GROUP = {PACKED_GROUP};" in (SOURCES / "common.cuh").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_launcher_says_so():
    with pytest.raises(ConfigError, match="no CUDA device"):
        Device("cuda")


@pytest.mark.parametrize("name", ["glu", "light", "raw kernels", "transformer", "aan", "ssru", "lm plain"])
def test_the_torch_executor_with_kernels_equals_the_full_forward(request, place, name):
    """Steps with beams reordered in moving slots, as test_executors.py checks of every backend."""
    if not THOROUGH and request.node.callspec.params["place"] == "ascending" and name not in ("glu", "ssru"):
        pytest.skip("CONVOY_TEST_THOROUGH=1: the other order of threads")
    lane = TorchExecutor(deepcopy(model(name)), 2, 3, place.device, place.kernels)
    rng, slots = np.random.default_rng(9), []
    join(lane, slots, [random_source(rng) for _ in range(2)])
    for step in range(5):
        if step == 3:
            leave(lane, slots, 0)
            join(lane, slots, [random_source(rng)])
        parents = rng.integers(0, 2, (len(slots), 2))
        for slot, order in zip(slots, parents, strict=True):
            slot.prefixes = [slot.prefixes[p] for p in order]
        given = inputs(lane, slots, parents)
        given = StepInput(*(v.to(place.device) for v in given[:-1]), given.k)
        top = lane.step(len(slots), given, attention=True)
        check(name, lane, slots, TopK(*(None if v is None else v.cpu() for v in top)))
        for slot in slots:
            slot.prefixes = [[*p, int(rng.integers(4, 47))] for p in slot.prefixes]


def test_the_backend_with_kernels_asks_for_a_gpu():
    bundle = open_bundle(SOURCES.parents[1] / "models" / "tatoeba-de-en")
    with pytest.raises(ConfigError, match="take --device cuda"):
        open_executors(bundle, Placement("cuda"))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            open_executors(bundle, Placement("cuda", "cuda"))
