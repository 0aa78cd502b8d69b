"""Compare the models of Tables 3 and 7 ("Pay Less Attention") with plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine.bundle.config import ModelConfig
from engine.bundle.presets import ABLATIONS, preset
from engine.executors.onnx.executor import OnnxExecutor
from engine.models import build
from engine.models.dynamicconv import ConvEncoderLayer
from engine.models.model import Dropout
from tests.engine.executors.test_executors import Slot, inputs, join, random_source
from tests.support import loops
from tests.support.models import CONFIGS, sessions

VOCAB = 23
NARROW = {"embed_dim": 8, "conv_dim": 8, "ffn_dim": 12, "heads": 2}


def small(name: str) -> ModelConfig:
    """Return a model of the table with small widths but its layers, mixers and kernels."""
    changes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        stack = ABLATIONS[name][side]
        changes[side] = dict(NARROW)
        if stack.get("conv_heads"):  # a kernel for each channel
            changes[side]["conv_heads"] = NARROW["conv_dim"]
        if stack.get("average_ffn"):
            changes[side]["average_ffn"] = NARROW["ffn_dim"]
    return preset(name, VOCAB, VOCAB, changes)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_row_of_the_table_equals_its_loops_in_numbers_of_double_precision(name: str) -> None:
    config = small(name)
    model = build(config).double()
    model.initialise(3)
    rng = np.random.default_rng(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.from_numpy(rng.normal(size=parameter.shape)), alpha=0.1)
    weights = {key: p.detach().tolist() for key, p in model.named_parameters()}
    weights["decoder.embed_tokens.weight"] = weights["encoder.embed_tokens.weight"]
    sides = loops.Side(weights, "encoder", config.encoder), loops.Side(weights, "decoder", config.decoder)
    for lengths in ((36, 5), (2, 9)):  # longer and shorter than most kernels
        source, target = (rng.integers(4, VOCAB, n).tolist() for n in lengths)
        logits = np.array(loops.decode(sides[1], target, loops.encode(sides[0], source)))
        wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        padded = torch.tensor([source + [config.pad] * 3])
        with torch.inference_mode():
            got = model(padded, torch.tensor([target]))[0].numpy()
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_drop_connect_drops_normalised_weights_and_scales_the_others() -> None:
    """Section 3: drop every entry of the normalised weights with probability p, divide by 1 - p."""
    config = small("lightconv_big_no_glu")
    model = build(config, Dropout(weight=0.25))
    model.initialise(1)
    layer = model.encoder.layers[6]
    assert isinstance(layer, ConvEncoderLayer)
    whole = layer.taps(torch.zeros(1))
    torch.testing.assert_close(whole.sum(-1), torch.ones(2))
    layer.train()
    torch.manual_seed(0)
    drawn = torch.stack([layer.taps(torch.zeros(1)) for _ in range(200)])
    kept = drawn != 0
    assert 0.73 < kept.float().mean().item() < 0.77
    torch.testing.assert_close(drawn, torch.where(kept, whole / 0.75, 0.0))


@pytest.mark.parametrize("name", ["transformer_big_windowed", "aan_decoder", "cnn_k3"])
def test_attention_dropout_applies_to_weights_in_training_only(name: str) -> None:
    model = build(small(name), Dropout(attention=0.5))
    model.initialise(1)
    source, target = torch.tensor([[5, 9, 7, 2]]), torch.tensor([[2, 8, 11]])
    torch.manual_seed(0)
    plain = [model(source, target) for _ in range(2)]
    torch.testing.assert_close(plain[0], plain[1], rtol=0, atol=0)
    model.train()
    noisy = [model(source, target) for _ in range(2)]
    assert not torch.allclose(noisy[0], noisy[1], atol=1e-3)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("left", [0, 1, 4])
def test_padding_on_either_side_changes_nothing_in_a_window(left: int, width: int) -> None:
    changes = {"encoder": {**NARROW, "kernel_sizes": [width] * 2}, "decoder": NARROW}
    config = preset("transformer_big_windowed", VOCAB, VOCAB, changes)
    model = build(config)
    model.initialise(2)
    tokens, real = torch.tensor([[5, 9, 7, 2]]), torch.ones(1, 4)
    padded = F.pad(tokens, (left, 2), value=config.pad)
    places = torch.tensor([*[0] * left, 0, 1, 2, 3, 4, 5])
    with torch.inference_mode():
        want = model.encoder(tokens, torch.arange(4), real)
        got = model.encoder(padded, places, F.pad(real, (left, 2)))
    assert got.isfinite().all()
    torch.testing.assert_close(got[:, left : left + 4], want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "name", [n for n in CONFIGS if n.startswith(("aan", "cnn", "transformer", "windowed", "depthwise"))]
)
def test_answer_is_bitwise_independent_of_its_batch(name: str, precision: str) -> None:
    rng = np.random.default_rng(8)
    lane = OnnxExecutor(sessions(name, precision), beams=2, slots=4)
    sources = [random_source(rng, 30) for _ in range(4)]
    together: list[Slot] = []
    join(lane, together, sources)
    parents = np.tile([1, 0], (4, 1))
    tops = [lane.step(4, inputs(lane, together, parents)) for _ in range(3)]
    for i, source in enumerate(sources):
        alone: list[Slot] = []
        join(lane, alone, [source])
        for top in tops:
            got = lane.step(1, inputs(lane, alone, parents[:1]))
            np.testing.assert_array_equal(got.scores[0], top.scores[i])
