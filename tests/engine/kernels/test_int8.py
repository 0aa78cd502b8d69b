"""Products by weights of 8 bits, compared with torch's on the same numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.fused import FusedMode
from engine.kernels.int8 import Bytes, Int8Weight
from engine.kernels.linear import Epilogue, Norm
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, Place, close, layer_norm, normal


def numbers(seed: int, outputs: int, dim: int) -> Bytes:
    g = torch.Generator().manual_seed(seed)
    values = torch.randint(-127, 128, (outputs, dim), generator=g, dtype=torch.int8)
    return Bytes(values, (torch.rand(outputs, generator=g) + 0.5) / 127 / dim**0.5)


def weight_of(place: Place, parts: Bytes, dtype: torch.dtype) -> Int8Weight:
    return Int8Weight(place.there(parts), dtype)


def widened(parts: Bytes) -> torch.Tensor:
    return parts.values.float() * parts.scales[:, None]


@pytest.mark.parametrize("activation", [None, "relu", "glu"])
@pytest.mark.parametrize(
    ("dtype", "rows", "dim", "entry"),
    [
        (HALF, 1, 64, "tiled_product"),
        (BRAIN, 7, 352, "tiled_product"),
        (HALF, 16, 1056, "tiled_product"),
        (BRAIN, 8, 2080, "tiled_long"),
        (HALF, 13, 2560, "tiled_unstaged"),
        (HALF, 17, 64, "wide_product"),
        (BRAIN, 64, 1056, "wide_product"),
    ],
)
def test_product_of_8_bits_equals_torch(place, dtype, rows, dim, entry, activation):
    if activation == "glu" and entry == "tiled_unstaged":
        pytest.skip("a GLU of rows that are not staged is left to torch")
    place.kernels.processors = 1  # blocks compute several tiles
    parts, bias = numbers(1, 72, dim), normal(2, 72, dtype=dtype)
    weight, x = weight_of(place, parts, dtype), normal(3, 1, rows, dim, dtype=dtype)
    made, run = [], place.kernels.run
    place.kernels.run = lambda call: (made.append(call.kernel), run(call))
    assert place.kernels.fits(x, weight, constant=True, glu=activation == "glu")
    found, _ = place.product(x, (weight, bias), Epilogue(0.5, activation, float32=True), constant=True)
    sums = (F.linear(x.float(), widened(parts)) + bias.float()) * 0.5
    close(
        found, {None: lambda y: y, "relu": F.relu, "glu": lambda y: F.glu(y, -1)}[activation](sums), FLOAT, 8
    )
    names = {entry, "wide_glu" if entry == "wide_product" else "tiled_glu"}
    assert [(kernel.entry in names, kernel.int8) for kernel in made] == [(True, True)]


def test_norm_and_residual_around_a_product_of_8_bits_equal_torch(place):
    parts, norm = numbers(1, 20, 96), Norm(normal(2, 96, dtype=HALF), normal(4, 96, dtype=HALF), 1e-5)
    x, residual = normal(3, 1, 5, 96), normal(5, 1, 5, 20)
    weight, epilogue = weight_of(place, parts, HALF), Epilogue(residual=residual, float32=True)
    found, normed = place.product(x, (weight, None), epilogue, norm, constant=True)
    close(normed, layer_norm(x, norm), HALF, 8)
    close(found, F.linear(normed.float(), widened(parts)) + residual, FLOAT, 8)


@pytest.mark.parametrize(("dtype", "dim"), [(HALF, 64), (BRAIN, 36), (FLOAT, 7)])
def test_weights_of_8_bits_are_expanded_for_many_rows(place, dtype, dim):
    parts, x = numbers(1, 24, dim), normal(3, 5, 20, dim, dtype=dtype)
    weight = weight_of(place, parts, dtype)
    close(place.here(place.kernels.expand(weight)), widened(parts), dtype)
    assert not place.kernels.fits(place.there(x), weight, constant=True)
    with torch.no_grad(), FusedMode(place.kernels, dtype) as fused:
        found = fused.compute_all({"y": F.relu(F.linear(place.there(x), weight) * 0.5)})["y"]
    wanted = F.relu(F.linear(x.float(), widened(parts).to(dtype).float()) * 0.5)
    close(place.here(found), wanted, dtype, 4)


def test_rows_of_a_table_of_8_bits_are_looked_up_in_the_type_of_the_model(place):
    parts, tokens = numbers(1, 24, 64), torch.tensor([[3, 0, 23]])
    table = place.there(normal(2, 24, 64, dtype=HALF))
    weight = Int8Weight(place.there(parts), HALF, table)
    with torch.no_grad(), FusedMode(place.kernels, HALF) as fused:
        x = F.embedding(place.there(tokens), weight) * 2.0
        found = fused.compute_all({"x": x, "y": F.linear(x, weight)})
    want = place.here(table)[tokens].float() * 2
    close(place.here(found["x"]), want, HALF)
    close(place.here(found["y"]), F.linear(want.to(HALF).float(), widened(parts)), HALF, 8)
