"""Data and places to run CUDA kernels: a CPU, where g++ compiles the same source behind a shim, or a GPU."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace

import array_api_compat.torch as xp
import pytest
import torch
import torch.nn.functional as F

from engine.bundle.specs import StateSpec
from engine.executors.cuda.search_kernels import RingArrays, SearchKernels, Tokens
from engine.executors.history import Rings
from engine.kernels.calls import Kernels, PackedSequences, Scatter
from engine.kernels.int8 import Bytes, Int8Weight
from engine.kernels.launches import Address, Call
from engine.kernels.linear import EmbeddingLookup, Epilogue, Norm
from engine.kernels.products import USUAL_SHARED_BYTES
from engine.kernels.reference import QKV
from engine.models.select import SelectionRules
from engine.search.executor import TopK
from engine.search.state import blank
from tests.support.host_kernels import COMPILER, SOURCES

FLOAT, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16


TOLERANCE = {FLOAT: 2e-6, HALF: 2e-3, BRAIN: 1.6e-2}  # a few units in the last place of values near one


NEEDS_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU, or a torch without CUDA")


class Place:
    """Kernels on a device, with arguments and results on the CPU."""

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
        if is_dataclass(value):  # a norm or an epilogue
            return replace(value, **{f.name: self.there(getattr(value, f.name)) for f in fields(value)})
        return value.to(self.device) if isinstance(value, torch.Tensor) else value

    @staticmethod
    def here(value):
        return value.cpu() if isinstance(value, torch.Tensor) else value


def normal(seed, *shape, dtype=FLOAT):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got, want, dtype, scale=1.0):
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


def convolution(dtype, slots, beams, channels, heads, width, fixed):
    """Return x, taps, ring and index of one step."""
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


def packed_sequences(lengths, longest=64):
    """Return packed sequences and their first positions; the last group is unused."""
    bounds, begins, begin = [], [], 0
    for length in lengths:
        begins.append(begin)
        bounds += [[begin, begin + length]] * -(-length // 8)
        begin += -(-length // 8) * 8
    return PackedSequences(torch.tensor([*bounds, [0, 1]]), longest), begins


def attention(dtype, slots, beams, heads, width, source):
    q = normal(1, slots, beams, heads * width, dtype=dtype)
    keys, values = (
        normal(2, slots, heads, width, source, dtype=dtype),
        normal(3, slots, heads, source, width, dtype=dtype),
    )
    mask = torch.zeros(slots, source)
    for slot in range(slots):
        mask[slot, source - slot * (source // slots) :] = -torch.inf  # all columns, then fewer
    return q, keys, values, mask


def selection(dtype, slots, beams, vocab, bans, seed=0):
    g = torch.Generator().manual_seed(seed)
    logits = (torch.randn((slots, beams, vocab), generator=g) * 3).to(dtype)
    banned = torch.randint(0, vocab, (slots, beams, bans), generator=g)
    forced = torch.full((slots, beams), -1)
    return logits, SelectionRules(
        forced, banned, torch.rand(slots, generator=g), torch.rand(slots, generator=g)
    )


def layer_norm(x, norm):
    gain = norm.gain.float()
    if norm.shift is None:
        return F.rms_norm(x.float(), gain.shape, gain, norm.epsilon)
    return F.layer_norm(x.float(), gain.shape, gain, norm.shift.float(), norm.epsilon)


def search(run, slots, beams, columns, device="cpu"):
    """Return the kernels of a search with a state of idle slots."""
    limits = SimpleNamespace(slots=slots, beams=beams, device=device, pad=1, limits=SimpleNamespace(source=8))
    return SearchKernels(run, blank(xp, limits, columns), Tokens(pad=1, eos=2))


def followed(slots, beams, windows):
    """Return a number of used slots and rings of the given windows."""
    rings = Rings([StateSpec(str(w), w, 1) for w in windows], slots, beams, xp, "cpu", FLOAT)
    rings.clock = torch.full((1,), 5)
    addresses = torch.tensor([[w, rings.rows[w].data_ptr()] for w in rings.windows])
    return torch.tensor([slots]), RingArrays(rings.ancestors, rings.clock, addresses)


def calls(dtype, shared_bytes=USUAL_SHARED_BYTES):
    """Call every entry once with all optional arguments and once without, if shared memory suffices."""
    made: list[Call] = []
    kernels = Kernels(made.append, shared_bytes=shared_bytes)
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
        for activation in (None, "glu"):
            ending = Epilogue(activation=activation)
            kernels.product(normal(5, 6, 3, 32, dtype=dtype), weights, ending, constant=True)
    int8 = Int8Weight(Bytes(torch.zeros(8, 32, dtype=torch.int8), torch.ones(8)), dtype)
    kernels.expand(int8)
    if dtype != FLOAT:
        for rows in (1, 6):
            kernels.product(normal(5, rows, 3, 32, dtype=dtype), (int8, None), Epilogue(), constant=True)
        among = torch.zeros(2, 9, dtype=torch.int64)
        kernels.listed_product(x.float(), weights, among, norm, temperature)
        kernels.listed_product(x, (int8, None), among)
    epilogue = Epilogue(residual=normal(7, 2, 3, 8), float32=True)
    kernels.product(x.float(), (weights[0], None), epilogue, constant=True)
    for dim in (24, 2080) if dtype == FLOAT else (24, 2080, 5120):
        weights_of = normal(8, 8, dim, dtype=dtype), None
        rows = normal(7, 2, 3, dim, dtype=dtype)
        if kernels.fits(rows, weights_of[0], constant=True):
            kernels.product(rows, weights_of, Epilogue(), constant=True)
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
        kernels.dynamic_conv_product(x, normal(8, 20, 32, dtype=dtype), past, (4, 5), softmax=True)
    blocks, writers = normal(5, 2, 4, 32, 3, 8, dtype=dtype), torch.zeros(2, 3, 32, dtype=torch.int64)
    lineage, biases = (
        (writers, torch.zeros(2, 1, dtype=torch.int64)),
        (blocks[0, 0, 0, 0], blocks[0, 0, 0, 0]),
    )
    kernels.advance_caches(writers, writers[:, :, 0].contiguous(), lineage[1])
    kernels.attend_cached(QKV(x, x, x), (blocks, blocks), lineage, biases)
    kernels.attend_cached(QKV(x, x, x), (blocks, blocks), lineage)
    logits, rules = selection(dtype, 2, 3, 64, 2)
    kernels.select(logits, tuple(rules), None, 2, 6)
    kernels.select(*selection(dtype, 1, 1, 1024, 2), None, 2, 6)
    kernels.glu(x)
    kernels.add_norm(x, None, Norm(x[0, 0], x[0, 1], 1e-5), total=True)
    kernels.add_norm(x, x, Norm(x[0, 0], x[0, 1], 1e-5))
    return made


SIGNATURE = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)")


PARAMETERS = {".u64": "address", ".u32": "integer", ".f32": "float", ".s32": "integer"}


def parameters(ptx: bytes, entry: str) -> list[str]:
    listed = dict(SIGNATURE.findall(ptx.decode()))[entry]
    return [PARAMETERS[re.search(r"\.[usf]\d+", line)[0]] for line in listed.split(",")]


def entries():
    """Return the names of all kernels in the sources."""
    text = "".join(path.read_text() for path in SOURCES.glob("*.cu"))
    return set(re.findall(r"__global__ void[^;{]*?(\w+)\(", re.sub(r"__launch_bounds__\([^)]*\)", "", text)))
