"""Steps of models whose weights have 8 bits by kernels, compared with plain torch on the same numbers."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engine.bundle.weights import quantize_rows
from engine.executors.cuda import int8
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.int8 import Int8Weight
from engine.kernels.products import TILE_DEPTH
from engine.models import build
from engine.models.model import Model, ProjectionModel
from engine.types import DecodeOptions
from tests.engine.executors.test_cached_steps import BEAMS, PLACES, SLOTS, lane_on, net_of
from tests.support.captured import run
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS


def numbers_of(net: Model) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy().copy() for name, parameter in net.named_parameters()}


def rounded(net: Model) -> Model:
    """Return a copy whose linear maps have the numbers of their int8 weights."""
    net = deepcopy(net)
    assert isinstance(net, ProjectionModel)
    named = dict(net.named_modules())
    linear = [m.weight for name, m in named.items() if isinstance(m, nn.Linear) and int8.TAPS not in name]
    with torch.no_grad():
        for weight in {id(w): w for w in [*linear, net.output[0]]}.values():
            if weight.shape[1] % TILE_DEPTH == 0:
                weight.copy_(torch.from_numpy(quantize_rows(weight.numpy()).wide))
    return net


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["glu", "transformer pre-norm"])
def test_models_of_8_bits_score_as_the_same_numbers_do(request, monkeypatch, place, name):
    monkeypatch.setattr(int8, "LEAST_NUMBERS", 0)
    net, rng = net_of(name), np.random.default_rng(2)
    source, target = [*rng.integers(4, 47, 20).tolist(), 2], tuple(rng.integers(4, 47, 12).tolist())
    jobs = [(source, DecodeOptions(beam_size=2, prefix=target, max_length=12))]
    (wide,) = run(lane_of(TorchExecutor(rounded(net), BEAMS, SLOTS)), jobs, 0)
    device = "cuda" if place == "gpu" else "cpu"
    small = int8.move_as_int8(deepcopy(net), numbers_of(net), device, torch.float16)
    assert any(isinstance(p, Int8Weight) for p in small.parameters())
    (found,) = run(lane_on(place, request, small), jobs, 0)
    a, b = (np.array(r.hypotheses[0].token_scores) for r in (wide, found))
    assert np.abs(a - b).max() < 0.02 * np.abs(a).max()


def test_small_weights_and_taps_keep_their_type(monkeypatch):
    plain = CONFIGS["glu"]
    net = build(
        replace(plain, decoder=replace(plain.decoder, conv_dim=64))
    )  # tensor cores could read the taps
    net.initialise(seed=1)
    kept = int8.move_as_int8(deepcopy(net), numbers_of(net), "cpu", torch.float16)
    assert not any(isinstance(p, Int8Weight) for p in kept.parameters())
    monkeypatch.setattr(int8, "LEAST_NUMBERS", 0)
    small = int8.move_as_int8(deepcopy(net), numbers_of(net), "cpu", torch.float16)
    kinds = {name: isinstance(p, Int8Weight) for name, p in small.named_parameters()}
    assert kinds["decoder.layers.0.fc1.weight"] and not kinds["decoder.layers.0.conv.weight_linear.weight"]
    assert not kinds["encoder.embed_tokens.weight"]


def test_output_projection_of_8_bits_keeps_the_rows_of_its_table(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_NUMBERS", 0)
    net = net_of("shared")
    small = int8.move_as_int8(deepcopy(net), numbers_of(net), "cpu", torch.float16)
    weight = small.output[0]
    assert isinstance(weight, Int8Weight) and weight is small.encoder.embed_tokens.weight
    assert weight.table is not None
    assert torch.equal(weight.table, net.output[0].half())
