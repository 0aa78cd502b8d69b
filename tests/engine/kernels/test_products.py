"""Matrix products of few rows as CUDA kernels, compared with torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from engine.kernels import products
from engine.kernels.calls import Kernels
from engine.kernels.fused import FusedMode
from engine.kernels.int8 import Bytes, Int8Weight
from engine.kernels.launches import Call
from engine.kernels.linear import EmbeddingLookup, Epilogue, Norm
from engine.kernels.products import ROW_BUCKETS
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, close, layer_norm, normal, wide


@pytest.mark.parametrize("activation", [None, "relu", "glu"])
@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "dim", "outputs"),
    [
        (FLOAT, 1, 1, 520, 34),  # lanes sum different numbers of terms
        (FLOAT, 2, 3, 37, 6),
        (FLOAT, 8, 1, 1024, 10),  # four warps share a sum
        (HALF, 1, 4, 48, 8),
        (BRAIN, 1, 4, 48, 8),
        (HALF, 1, 4, 64, 8),  # from here on with tensor cores
        (BRAIN, 1, 1, 64, 8),
        (BRAIN, 2, 3, 352, 36),  # unequal warps and a partial last tile
        (BRAIN, 2, 1, 1024, 40),
        (BRAIN, 3, 4, 64, 8),  # two mma
        (HALF, 8, 2, 352, 36),
        (BRAIN, 2, 5, 1024, 20),
        (BRAIN, 1, 5, 2080, 34),  # more than is prefetched; with a norm no tensor cores
    ],
)
def test_product_with_fused_operations_equals_torch(place, dtype, slots, beams, dim, outputs, activation):
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


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize(
    ("dtype", "rows", "dim"),
    [(FLOAT, 3, 40), (HALF, 4, 48), (BRAIN, 5, 64), (HALF, 16, 64), (BRAIN, 1, 2080)],
)
def test_activations_after_a_product_equal_torch(place, dtype, rows, dim, activation):
    weight, bias = normal(1, 20, dim, dtype=dtype) / dim**0.5 * 3, normal(2, 20, dtype=dtype)
    x, residual = normal(3, 1, rows, dim, dtype=dtype), normal(4, 1, rows, 20)
    sums = F.linear(x.float(), weight.float(), bias.float()) * 0.5
    want = {
        "gelu": F.gelu(sums),
        "gelu_tanh": F.gelu(sums, approximate="tanh"),
        "silu": F.silu(sums),
    }[activation]
    found, _ = place.product(x, (weight, bias), Epilogue(0.5, activation, residual, True), constant=True)
    close(found, want + residual, FLOAT, 8)


@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "dim"),
    [(FLOAT, 2, 3, 37), (HALF, 1, 4, 48), (BRAIN, 2, 3, 352), (HALF, 8, 2, 1024), (BRAIN, 1, 1, 64)],
)
def test_product_after_a_root_mean_square_norm_equals_torch(place, dtype, slots, beams, dim):
    weight, norm = normal(1, 8, dim, dtype=dtype) / dim**0.5, Norm(normal(2, dim, dtype=dtype), None, 1e-6)
    x = normal(3, slots, beams, dim) + 2
    found, normed = place.product(x, (weight, None), Epilogue(float32=True), norm, constant=True)
    close(normed, layer_norm(x, norm), dtype, 8)
    close(found, F.linear(normed.float(), weight.float()), FLOAT, 8)


@pytest.mark.parametrize(("dim", "offset"), [(96, 1), (2080, 0), (2496, 0), (2560, 0), (4096, 1)])
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_products_of_more_than_eight_rows_take_rows_of_any_length(place, dtype, dim, offset):
    """If 16 warps share a sum, each stages a row; rows that do not fit are read from global memory. Views
    may be unaligned."""
    weight = normal(1, 20, dim, dtype=dtype) / dim**0.5
    x, residual = normal(2, 13 * dim + offset, dtype=dtype)[offset:].view(1, 13, dim), normal(3, 1, 13, 20)
    assert place.kernels.fits(x, weight, constant=True)
    epilogue = Epilogue(1.0, "relu", residual, float32=True)
    for rows in (x, x.float()):
        found, _ = place.product(rows, (weight, None), epilogue, constant=True)
        close(found, F.relu(F.linear(x.float(), weight.float())) + residual, FLOAT, 8)


@pytest.mark.parametrize("activation", [None, "gelu", "glu"])
@pytest.mark.parametrize(
    ("dtype", "rows", "dim", "outputs"),
    [
        (HALF, 17, 64, 20),  # a partial tile, and fewer depths than warps
        (BRAIN, 32, 352, 36),  # unequal warps
        (HALF, 33, 96, 8),
        (BRAIN, 64, 1056, 20),  # more than is held in registers
    ],
)
def test_wide_product_with_fused_operations_equals_torch(place, dtype, rows, dim, outputs, activation):
    place.kernels.processors = 1  # blocks compute several tiles
    weight, bias = normal(1, outputs * 4, dim, dtype=dtype) / dim**0.5, normal(2, outputs * 4, dtype=dtype)
    x, width = normal(3, 1, rows, dim, dtype=dtype), outputs * (2 if activation == "glu" else 4)
    residual = normal(4, 1, rows, width)
    assert place.kernels.fits(x, weight, constant=True, glu=activation == "glu")
    sums = F.linear(x.float(), weight.float())
    made = {None: lambda y: y, "gelu": F.gelu, "glu": lambda y: F.glu(y, -1)}[activation]
    plain, nothing = place.product(x, (weight, None), Epilogue(0.5, activation), constant=True)
    assert nothing is None
    close(plain, made(sums * 0.5), dtype, 4)
    wide_sum, _ = place.product(x, (weight, bias), Epilogue(1.0, activation, residual, True), constant=True)
    close(wide_sum, made(sums + bias.float()) + residual, FLOAT, 8)
    narrow_sum, _ = place.product(
        x.float(), (weight, bias), Epilogue(1.0, activation, residual.to(dtype)), constant=True
    )
    close(narrow_sum, made(sums + bias.float()) + residual.to(dtype).float(), dtype, 4)


@pytest.mark.parametrize(("rows", "activation"), [(64, None), (41, "glu")])
def test_wide_product_whose_rows_are_shared_by_blocks_equals_the_whole(place, rows, activation):
    weight, bias = normal(1, 72, 352, dtype=BRAIN), normal(2, 72, dtype=BRAIN)
    x, made, run = normal(3, 1, rows, 352, dtype=BRAIN), [], place.kernels.run
    residual = normal(4, 1, rows, 36 if activation else 72)
    place.kernels.run = lambda call: (made.append((call.grid, call.kernel.size)), run(call))
    found = {}
    for processors in (132, 4):
        place.kernels.processors = processors
        finish = Epilogue(1.0, activation, residual, True)
        found[processors], _ = place.product(x, (weight, bias), finish, constant=True)
    tiles = 3 if activation else 5
    assert made == [((tiles, 2, 1), 32), ((tiles, 1, 1), 64)]
    assert torch.equal(found[132], found[4])


def test_row_of_a_wide_product_is_bitwise_independent_of_other_rows(place):
    weight, x = normal(1, 32, 352, dtype=BRAIN), normal(2, 64, 1, 352, dtype=BRAIN)
    many, _ = place.product(x, (weight, None), Epilogue(), constant=True)
    for rows in (17, 32, 48):
        few, _ = place.product(x[:rows], (weight, None), Epilogue(), constant=True)
        assert torch.equal(few, many[:rows])


def test_wide_products_are_for_weights_that_are_read_faster_than_a_library_starts(monkeypatch):
    kernels, norm = Kernels(print), Norm(torch.ones(64, dtype=BRAIN), None, 1e-5)

    def fits(rows, outputs=1024, dim=1024, dtype=BRAIN, by=kernels, **options):
        x, weight = torch.zeros(1, rows, dim, dtype=dtype), torch.zeros(outputs, dim, dtype=dtype)
        return by.fits(x, weight, **({"constant": True} | options))

    assert fits(17) and fits(64) and fits(64, 2048, dtype=HALF) and fits(64, 2048, glu=True)
    assert not fits(64, 2064) and fits(32, 4096) and not fits(32, 4112)
    assert not fits(65) and not fits(64, dim=1000) and not fits(64, dtype=FLOAT)
    assert not fits(64, constant=False) and not fits(64, 8, 64, norm=norm)
    assert not fits(64, by=Kernels(print, tensor_cores=False))
    monkeypatch.setattr(products, "MAX_REREAD_BYTES", 0)  # as the measurement without them
    assert not fits(17, 16, 32)


def test_more_than_eight_rows_use_the_library_without_tensor_cores():
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
    assert not fits(65)
    assert not fits(16, 1056, norm=norm)
    assert not fits(9, dtype=FLOAT)
    assert not fits(9, 1000)
    assert fits(9, 4096)
    assert not fits(9, 4096, glu=True)
    assert not fits(9, constant=False)
    assert not fits(9, by=Kernels(print, tensor_cores=False))


@pytest.mark.parametrize("activation", [None, "glu"])
@pytest.mark.parametrize("rows", [7, 12])
def test_blocks_of_tensor_cores_compute_several_tiles(place, activation, rows):
    """There are more tiles than twice the multiprocessors, as for logits."""
    place.kernels.processors = 1
    weight, bias = normal(1, 84, 96, dtype=BRAIN) / 8, normal(2, 84, dtype=BRAIN)
    x = normal(3, 1, rows, 96, dtype=BRAIN)
    wanted = F.linear(x.float(), weight.float(), bias.float())
    found, _ = place.product(x, (weight, bias), Epilogue(1.0, activation, float32=True), constant=True)
    close(found, F.glu(wanted, -1) if activation else wanted, FLOAT, 8)


def test_product_uses_tensor_cores_if_the_layout_allows():
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


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
@pytest.mark.parametrize("activation", [None, "relu", "glu"])
def test_products_of_many_rows_use_the_library_with_their_epilogue(place, dtype, activation):
    made = {None: lambda y: y, "relu": F.relu, "glu": lambda y: F.glu(y, -1)}[activation]
    x, weight, bias = normal(1, 5, 3, 64, dtype=dtype), normal(2, 16, 64, dtype=dtype) / 8, normal(3, 16)
    x, weight, bias = place.there((x, weight, bias.to(dtype)))
    for added in (bias, None):
        with FusedMode(place.kernels, dtype) as fused:
            found = fused.compute_all({"y": made(F.linear(x, weight, added))})["y"]
        wanted = made(F.linear(x.float(), weight.float(), None if added is None else added.float()))
        close(place.here(found), place.here(wanted), dtype, 4)


class Products(TorchDispatchMode):
    """Records the factors of torch's products with a bias."""

    def __init__(self):
        super().__init__()
        self.factors = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name == "aten::addmm":
            self.factors.append(kwargs)
        return func(*args, **(kwargs or {}))


def test_factor_multiplies_the_bias_of_a_product():
    """With a beta other than 1 torch would copy the bias to all rows."""
    x, weight, bias = normal(1, 5, 4, 8, dtype=BRAIN), normal(2, 6, 8, dtype=BRAIN), normal(3, 6, dtype=BRAIN)
    with Products() as products, FusedMode(Kernels(lambda _: None), BRAIN) as fused:
        found = fused.compute_all({"y": F.linear(x, weight, bias) * 0.3})["y"]
    assert products.factors == [{"alpha": 0.3}]
    close(found, F.linear(*wide(x, weight, bias)) * 0.3, BRAIN, 4)


@pytest.mark.parametrize("outputs", [1, 7])
def test_product_of_an_odd_number_of_outputs_writes_each_once(place, outputs):
    weight, x = normal(1, outputs, 16), normal(2, 1, 3, 16)
    close(place.product(x, (weight, None), Epilogue())[0], F.linear(x, weight), FLOAT, 4)


def test_row_of_a_product_is_bitwise_independent_of_other_rows(place):
    weight, x = normal(1, 32, 256), normal(2, 8, 1, 256)
    norm = Norm(normal(3, 256), normal(4, 256), 1e-5)
    many, _ = place.product(x, (weight, None), Epilogue(), norm)
    for rows in ROW_BUCKETS:
        few, _ = place.product(x[:rows], (weight, None), Epilogue(), norm)
        assert torch.equal(few, many[:rows])


@pytest.mark.parametrize("dtype", [FLOAT, BRAIN])
def test_embedding_kernel_equals_two_torch_embeddings(place, dtype):
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
def test_product_of_a_lookup_equals_two_kernels_bit_for_bit(place, slots, beams, dtype, dim, activation):
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


def test_lookup_needs_a_kernel_that_stages_rows_of_one_type():
    kernels = Kernels(lambda _: None)

    def takes(rows=8, dim=64, dtype=BRAIN, position_rows=BRAIN, offset=0, glu=False):
        table = torch.zeros(9 * dim + offset, dtype=dtype)[offset:].view(9, dim)
        more = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(9, dim, dtype=position_rows)
        lookup = EmbeddingLookup(torch.zeros(1, rows, dtype=torch.int64), table, 1.0, more)
        return kernels.takes_lookup(lookup, torch.zeros(32, dim, dtype=BRAIN), glu=glu)

    assert takes() and takes(16) and takes(dim=4096) and takes(glu=True)
    assert not takes(17) and not takes(16, dim=4096)  # no kernel stages these rows
    assert not takes(dtype=FLOAT) and not takes(position_rows=HALF)
    assert not takes(offset=1) and not takes(dim=24)


@pytest.mark.parametrize(
    ("dtype", "slots", "beams", "dim", "parts"),
    [
        (BRAIN, 1, 1, 64, "norm"),
        (HALF, 3, 5, 352, "norm, bias, temperature"),
        (BRAIN, 2, 12, 1056, "bias"),  # two mma, and more weights than a warp holds
        (HALF, 2, 4, 64, "bias, int8"),
    ],
)
def test_logits_of_listed_tokens_equal_torch(place, dtype, slots, beams, dim, parts):
    place.kernels.processors = 1  # blocks compute several tiles
    g, vocab = torch.Generator().manual_seed(7), 210
    weight, bias = normal(1, vocab, dim, dtype=dtype) / dim**0.5, normal(2, vocab, dtype=dtype)
    norm = Norm(normal(3, dim, dtype=dtype), normal(4, dim, dtype=dtype), 1e-5) if "norm" in parts else None
    temperature = torch.rand(slots, generator=g) + 0.5 if "temperature" in parts else None
    added = bias if "bias" in parts else None
    x = normal(5, slots, beams, dim, dtype=FLOAT if norm else dtype)
    among = torch.full((slots, beams + 96), -1)
    for slot in range(slots):
        own = torch.randperm(vocab, generator=g)[: 75 - 30 * slot].sort().values
        among[slot, beams : beams + len(own)] = own
    among[0, 0] = among[0, beams]  # a forced token that is listed too, and one that is not
    among[-1, beams - 1] = next(token for token in range(vocab) if token not in among[-1])
    stored = weight
    if "int8" in parts:
        numbers = torch.randint(-127, 128, weight.shape, generator=g, dtype=torch.int8)
        pair = Bytes(numbers, torch.rand(vocab, generator=g) / 300)
        stored, weight = Int8Weight(place.there(pair), dtype), pair.values.float() * pair.scales[:, None]
    assert place.kernels.takes_list(x, stored, norm)
    found, normed = place.listed_product(x, (stored, added), among, norm, temperature)
    rows = x.float() if norm is None else layer_norm(x, norm)
    if norm is not None and temperature is None:
        close(normed, rows, dtype, 8)
        rows = normed.float()
    rows = rows if temperature is None else rows / temperature[:, None, None]
    logits = F.linear(rows.to(dtype).float(), weight.float(), None if added is None else added.float())
    listed = torch.zeros(slots, 1, vocab, dtype=torch.bool)
    for slot in range(slots):
        listed[slot, 0, among[slot][among[slot] >= 0]] = True
    assert torch.equal(torch.isneginf(found), ~listed.expand_as(found))
    torch.testing.assert_close(found.where(listed, 0), logits.where(listed, 0), rtol=0.02, atol=0.03)


def test_lists_are_for_few_beams_and_tensor_cores():
    kernels, weight = Kernels(print), torch.zeros(60, 64, dtype=BRAIN)

    def takes(beams, weight=weight, by=kernels):
        return by.takes_list(torch.zeros(3, beams, weight.shape[1]), weight, None)

    assert takes(1) and takes(16)
    assert not takes(17) and not takes(1, weight.float()) and not takes(1, weight[:, :40])
    assert not takes(1, torch.zeros(60, 4096, dtype=BRAIN)) and not takes(
        1, by=Kernels(print, tensor_cores=False)
    )
