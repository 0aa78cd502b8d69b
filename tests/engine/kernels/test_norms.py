"""Norms, gates, copies and rounding as CUDA kernels, compared with torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engine.kernels.calls import Scatter
from engine.kernels.linear import Epilogue, Norm
from tests.support.cuda_kernels import (
    BRAIN,
    FLOAT,
    HALF,
    Place,
    close,
    convolution,
    layer_norm,
    normal,
    selection,
)


def test_place_moves_all_tensors_of_a_call_to_its_device():
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


def test_copies_write_only_their_rows_and_padding(place):
    """The elements have 1, 2, 4 and 8 bytes. Plans contain addresses, so all tensors are on the device."""
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
        # the second item differs from the first only in the targets
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


@pytest.mark.parametrize(("dtype", "dim"), [(FLOAT, 37), (FLOAT, 2056), (HALF, 64), (BRAIN, 64)])
def test_root_mean_square_norm_of_a_sum_equals_torch(place, dtype, dim):
    x, residual = normal(1, 5, dim, dtype=dtype) + 3, normal(2, 5, dim, dtype=dtype)
    norm = Norm(normal(3, dim, dtype=dtype), None, 1e-6)
    total, y = place.add_norm(x, residual, norm, total=True)
    close(total, x.float() + residual.float(), dtype)
    close(y, layer_norm(x.float() + residual.float(), norm), dtype, 8)


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
@pytest.mark.parametrize(("rows", "dim"), [(3, 64), (5, 37), (2, 2056), (1, 1)])
def test_a_glu_of_many_rows_equals_torch(place, dtype, rows, dim):
    room = normal(1, 1 + rows * 2 * dim, dtype=dtype) * 4
    room[-1] = 200  # an open gate and a closed one
    room[-1 - dim // 2] = -200 if dim > 1 else 200
    for begin in (0, 1):  # aligned and unaligned elements
        x = room[begin : begin + rows * 2 * dim].view(rows, 2 * dim)
        close(place.glu(x), F.glu(x.float(), -1), dtype, 4)


@pytest.mark.parametrize("dtype", [FLOAT, HALF, BRAIN])
def test_norm_is_divided_by_the_temperature_of_its_slot(place, dtype):
    x, residual = normal(1, 3, 2, 40, dtype=dtype), normal(2, 3, 2, 40, dtype=dtype)
    norm, temperature = (
        Norm(normal(3, 40, dtype=dtype), normal(4, 40, dtype=dtype), 1e-5),
        torch.tensor([0.5, 1, 3]),
    )
    want = layer_norm(x.float() + residual.float(), norm) / temperature[:, None, None]
    close(place.add_norm(x, residual, norm, temperature=temperature)[1], want, dtype, 40)
    if dtype == FLOAT:  # like a separate division after the norm
        alone = place.add_norm(x, residual, norm)[1]
        assert torch.equal(
            place.add_norm(x, residual, norm, temperature=temperature)[1], alone / temperature[:, None, None]
        )


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_sixteen_bit_numbers_are_loaded_and_stored_unchanged(place, dtype):
    """A convolution with one tap of 1 is the identity, but goes through fp32."""
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype).reshape(1, 1, 65536)
    y = place.dynamic_conv_step(x, torch.ones(1, 1, dtype=dtype), None, None)
    number = ~torch.isnan(x)
    assert torch.equal(y[number], x[number])
    assert torch.isnan(y[~number]).all()


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_rounding_to_sixteen_bits_equals_torch(place, dtype):
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
