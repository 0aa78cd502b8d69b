"""Layers under `FusedMode`: which kernels run, and that their results equal torch's."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn import Parameter

from engine.backends import Placement
from engine.bundle.bundle import open_bundle
from engine.errors import ConfigError
from engine.executors import open_executors
from engine.executors.torch.executor import TorchExecutor
from engine.kernels import reference
from engine.kernels.calls import Kernels
from engine.kernels.fused import FusedMode
from engine.kernels.launches import Call
from engine.kernels.linear import Norm
from engine.search.executor import StepInput, TopK
from tests.engine.executors.test_executors import check, inputs, join, leave, random_source
from tests.support.cuda_kernels import BRAIN, NEEDS_COMPILER, attention, layer_norm, normal, wide
from tests.support.host_kernels import SOURCES
from tests.support.models import model
from tests.support.thorough import THOROUGH


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("rows", "kernels"),
    [
        (8, ["tiled_glu", "tiled_product"]),
        (16, ["tiled_glu", "tiled_product"]),
        (17, ["add_norm", "wide_glu", "wide_product"]),
        (65, ["add_norm", "glu"]),
    ],
)
def test_layer_of_few_rows_runs_one_kernel_per_product(host, rows, kernels):
    """Up to 16 rows the norm is fused with one product and the residual connection with another."""
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
    assert made == kernels
    torch.testing.assert_close(found.float(), wanted, rtol=0.03, atol=0.06)


@NEEDS_COMPILER
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("rows", [8, 40, 72])
def test_residual_sum_of_many_rows_runs_in_the_kernel_of_the_norm_behind_it(host, rows, rms):
    """Layers that normalise first: the sum is both normalised and added to the next branch."""
    made: list[str] = []

    def run(call: Call) -> None:
        made.append(call.kernel.entry)
        host(call)

    weights = [Parameter(normal(i, 64, 64, dtype=BRAIN) / 8) for i in range(4)]
    gain, shift = Parameter(normal(5, 64, dtype=BRAIN)), Parameter(normal(6, 64, dtype=BRAIN))
    x = normal(7, 2, rows // 2, 64, dtype=BRAIN)

    def norm(x):
        return F.rms_norm(x, (64,), gain.to(x.dtype), 1e-5) if rms else F.layer_norm(x, (64,), gain, shift)

    def layers(x, weights, norm):
        for up, down in (weights[:2], weights[2:]):
            x = x + F.linear(F.silu(F.linear(norm(x), up)), down)
        return norm(x), x

    def wide_norm(x):
        return layer_norm(x, Norm(gain, None if rms else shift, 1e-5))

    with torch.no_grad():
        with FusedMode(Kernels(run), BRAIN) as fused:
            found = fused.compute_all(dict(enumerate(layers(x, weights, norm))))
        wanted = layers(x.float(), wide(*weights), wide_norm)
    if rows > 16:
        products = ["wide_product"] * 2 if rows == 40 else []
        assert made == [*["add_norm", *products] * 2, "add_norm"]
    else:  # the last norm has no product behind it
        assert made.count("tiled_product") == 4
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [5, 9])
def test_queries_and_taps_are_computed_by_the_kernel_that_uses_them(host, rows):
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
    assert made.count("dynamic_conv_tiled") == int(rows <= 8)
    assert made.count("dynamic_conv_step_append") == int(rows > 8)
    assert made.count("attend_tiled") == 1
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)


def test_computed_weights_are_not_read_early():
    """Parameters of a model and views of them may be read early."""
    made: list[Call] = []
    weight, x = Parameter(torch.zeros(64, 64, dtype=BRAIN)), torch.zeros(1, 2, 64, dtype=BRAIN)
    entries = {"own": weight, "part": weight[16:32], "made": weight * 2}
    with torch.no_grad():
        for name, used in entries.items():
            with FusedMode(Kernels(made.append), BRAIN) as fused:
                fused.compute_all({"y": F.linear(x, used)})
            entries[name] = made[-1].kernel.entry
    assert entries == {"own": "tiled_product", "part": "tiled_product", "made": "product"}


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [1, 16, 17])
def test_decoder_of_few_rows_embeds_tokens_in_its_first_product(host, rows):
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


@pytest.mark.parametrize("name", ["glu", "light", "raw kernels", "transformer", "aan", "ssru", "lm plain"])
def test_the_torch_executor_with_kernels_equals_the_full_forward(request, place, name):
    """Beams are reordered and slots move, as in test_executors.py."""
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


def test_backend_with_kernels_requires_a_gpu():
    bundle = open_bundle(SOURCES.parents[1] / "models" / "tatoeba-de-en")
    with pytest.raises(ConfigError, match="take --device cuda"):
        open_executors(bundle, Placement("cuda"))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no GPU for --device cuda"):
            open_executors(bundle, Placement("cuda", "cuda"))


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [16, 17])
def test_queries_before_attention_are_scaled_by_it_and_norms_divide_by_the_temperature(host, rows):
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
    # the query product has no factor, which would make cuBLAS copy the bias
    assert [call.arguments[-2] for call in made if call.kernel.entry == "attend_tiled"] == [0.25]
    if rows > 16:  # no other kernel divides
        heats = [call.arguments[4] for call in made if call.kernel.entry == "add_norm"]
        assert [heat is None for heat in heats] == [True, False]
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=0.03, atol=0.06)
