"""Prefetching of keys, values and windows by the kernel of a norm."""

from __future__ import annotations

from ctypes import c_size_t, c_void_p
from dataclasses import astuple, replace

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Parameter

from engine.kernels import prefetch as prefetching
from engine.kernels import reference
from engine.kernels.calls import Kernels
from engine.kernels.fused import FusedMode
from engine.kernels.launches import Call
from engine.kernels.linear import Norm
from tests.support.cuda_kernels import BRAIN, NEEDS_COMPILER, attention, normal, wide, windows


def prefetched(host, entry: str) -> list[int]:
    """Return the addresses that a kernel has prefetched since the last call."""
    found: list[int] = []
    for kernel, library in host.libraries.items():
        if kernel.entry == entry:
            room = (c_void_p * (1 << 16))()
            count = library.convoy_take_prefetched(room, c_size_t(len(room)))
            assert count <= len(room)
            found += room[:count]
    return found


@NEEDS_COMPILER
@pytest.mark.parametrize(("slots", "source", "room"), [(2, 32, 32), (3, 40, 64), (1, 9, 16)])
def test_norm_prefetches_all_keys_and_values_of_the_given_slots(host, monkeypatch, slots, source, room):
    """It prefetches sectors of 32 bytes, and not the unused columns after the source."""
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


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("slots", "beams", "older", "channels"), [(3, 4, 30, 32), (2, 1, 2, 8), (1, 6, 14, 40), (2, 3, 32, 16)]
)
def test_norm_prefetches_exactly_the_windows_that_a_convolution_step_reads(
    host, monkeypatch, slots, beams, older, channels
):
    """It prefetches a row of the ring once for up to four beams."""
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
def test_norm_skips_windows_that_it_cannot_prefetch(host, prefetch):
    x, ones = normal(3, *prefetch.index.shape[:2], 16, dtype=BRAIN), torch.ones(16, dtype=BRAIN)
    prefetched(host, "add_norm")
    Kernels(host).add_norm(x, None, Norm(ones, ones, 1e-5), prefetch=prefetch)
    assert set(prefetched(host, "add_norm")) <= {ones.data_ptr(), ones.data_ptr() + 16}


@NEEDS_COMPILER
@pytest.mark.parametrize("glu", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("beams", [8, 9])
def test_norm_before_convolution_inputs_prefetches_its_windows(host, beams, fixed, glu):
    """This holds for many rows, with fixed and with computed taps."""
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
def test_norm_before_attention_prefetches_its_memory_and_applies_temperature(host, rows, asked):
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
    # the query product has no factor, which would make cuBLAS copy the bias
    assert [call.arguments[-2] for call in made if call.kernel.entry == "attend_tiled"] == [0.25]
    if rows > 16:  # no other kernel divides
        assert [h is None for h in heats] == [True, False]
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)
