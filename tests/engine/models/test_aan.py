"""Compare averaged attention with recorded outputs of its authors' code (../shared/golden/aan)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError, ConfigError
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import build, load, weight_shapes
from engine.models.aan import AverageDecoderLayer
from engine.models.model import Dropout, Model
from engine.models.residual import LayerContext
from engine.search.executor import Executor, StepInput
from export.graphs.onnx import graphs
from export.importers.tensorflow import aan
from tests.engine.executors.test_executors import Slot, inputs
from tests.support.models import CONFIGS, model

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "aan"
golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no ../shared/golden/aan")
SIZES = {
    "hidden_size": 8,
    "filter_size": 16,
    "num_heads": 2,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
}
WHOLE = ["full_mask_ffn", "full_mask_noffn"]
LAYERS = ["layer1_mask_ffn", "layer1_mask_noffn"]


@dataclass(frozen=True)
class Fixture:
    options: dict[str, Any]
    arrays: dict[str, np.ndarray]
    variables: dict[str, np.ndarray]
    config: ModelConfig


@cache
def fixture(name: str) -> Fixture:
    options = json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))
    config = aan.config(options, (options["vocab_in"], options["vocab_out"]), unk=None)
    arrays, variables = (dict(np.load(GOLDEN / name / f"{part}.npz")) for part in ("io", "weights"))
    return Fixture(options, arrays, variables, config)


def whole(name: str) -> Model:
    found = fixture(name)
    return load(found.config, aan.weights(found.variables, found.config))


def previous(target: np.ndarray, eos: int) -> np.ndarray:
    """Return the decoder's input; the first token is ignored."""
    return np.concatenate([np.full((len(target), 1), eos), target[:, :-1]], 1).astype(np.int64)


@golden
@pytest.mark.parametrize("name", WHOLE)
def test_the_full_pass_gives_the_authors_logits_and_loss(name: str) -> None:
    arrays, config = fixture(name).arrays, fixture(name).config
    net = whole(name)
    source, target = (torch.from_numpy(arrays[side]).long() for side in ("source", "target"))
    real = torch.arange(source.shape[1]) < torch.from_numpy(arrays["source_length"])[:, None]
    mask = torch.where(real, 0.0, -torch.inf)
    written = np.arange(target.shape[1]) < arrays["target_length"][:, None]
    with torch.inference_mode():
        encoded = net.encoder(source, torch.arange(source.shape[1]), real.float())
        memory = net.encode(source, torch.arange(source.shape[1]), real.float())
        features, _ = net.decode(torch.from_numpy(previous(arrays["target"], config.eos)), memory, mask)
        logits = net.project(features)
    np.testing.assert_allclose(encoded[real], arrays["encoder_output"][real.numpy()], atol=1e-4)
    np.testing.assert_allclose(features[written], arrays["decoder_output"][written], atol=1e-4)
    np.testing.assert_allclose(logits[written], arrays["logits"][written], atol=1e-4)
    loss = F.cross_entropy(logits[written], target[written])
    assert loss.item() == pytest.approx(float(arrays["loss_mean_per_target_token"]), abs=1e-5)


@golden
@pytest.mark.parametrize("name", LAYERS)
def test_one_layer_gives_the_authors_values_at_every_stage(name: str) -> None:
    found = fixture(name)
    arrays, config = found.arrays, found.config
    layer = AverageDecoderLayer(LayerContext(config.decoder, 0, config, Dropout())).eval()
    made, _ = aan.rename_weights(found.variables, config)
    layer.load_state_dict({k.removeprefix("decoder.layers.0."): torch.from_numpy(v) for k, v in made.items()})
    written, inside = arrays["target_mask"] > 0, "decoder/layer_0/position_forward/"
    x = torch.from_numpy(arrays["decoder_input"])
    with torch.inference_mode():
        average = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        y = layer.position_forward(average)
        gates = layer.gates(torch.cat([x, y], -1))
        mixed = layer.mix(x)
        memory = layer.encoder_attn.memory(torch.from_numpy(arrays["memory"]))
        mask = torch.from_numpy(arrays["memory_bias"])[:, 0, 0]
        out, _ = layer(x, memory, mask, layer.mix)
    stages = {
        "gate_in_concat_x_y": torch.cat([x, y], -1),
        "gate_logits_z": gates,
        "sublayer_out": mixed,
        "residual_sum": x + mixed,
    }
    if config.decoder.average_ffn:
        stages |= {"ffn_in": average, "ffn_out": y}
    for stage, value in stages.items():
        np.testing.assert_allclose(value[written], arrays[inside + stage][written], atol=1e-4, err_msg=stage)
    np.testing.assert_allclose(out[written], arrays["decoder_output"][written], atol=1e-4)


def opened(name: str, backend: str, slots: int) -> Executor:
    net = whole(name)
    if backend == "torch":
        return TorchExecutor(net, beams=1, slots=slots)
    config = fixture(name).config
    made = graphs(config)
    parts = {part: made[f"onnx/{part}.fp32.onnx"] for part in ("encoder", "step")}
    return OnnxExecutor(
        open_sessions(config, parts, {k: p.detach().numpy() for k, p in net.named_parameters()}, 1), 1, slots
    )


def fed(lane: Executor, tokens: np.ndarray, step: int, pad: int) -> StepInput:
    """Return the inputs of a step for tokens [slots], with all candidates."""
    n = len(tokens)
    slots = [Slot([], [[0] * step + [int(token)]]) for token in tokens]
    banned = np.full((n, 1, 1), pad, np.int64)
    return inputs(lane, slots, np.zeros((n, 1), np.int64), k=lane.limits.vocab, banned=banned)


@golden
@pytest.mark.parametrize("backend", ["torch", "onnx"])
@pytest.mark.parametrize("name", WHOLE)
def test_step_by_step_each_executor_gives_the_authors_probabilities(name: str, backend: str) -> None:
    arrays, config = fixture(name).arrays, fixture(name).config
    lane = opened(name, backend, len(arrays["source"]))
    sources = [row[:n].tolist() for row, n in zip(arrays["source"], arrays["source_length"], strict=True)]
    encoded = lane.encode(sources)
    for i in range(len(sources)):
        lane.place(encoded, i, i)
    logits = arrays["logits"] - arrays["logits"].max(-1, keepdims=True)
    wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for step, tokens in enumerate(previous(arrays["target"], config.eos).T):
        top = lane.step(len(sources), fed(lane, tokens, step, config.pad))
        scores, ids = np.asarray(top.scores)[:, 0], np.asarray(top.ids)[:, 0]
        assert scores.shape == (len(sources), config.target_vocab)
        by_id = np.take_along_axis(wanted[:, step], ids, 1)
        by_id[ids == config.pad] = -np.inf
        alive = step < arrays["target_length"]
        np.testing.assert_allclose(scores[alive], by_id[alive], atol=1e-4)


def test_encoder_average_covers_all_tokens_without_padding() -> None:
    net = model("aan both")
    tokens = torch.tensor([[9, 14, 5, 30, 2]])
    encode = net.encoder
    with torch.inference_mode():
        alone = encode(tokens, torch.arange(5), torch.ones(1, 5))
        padded = F.pad(tokens, (0, 3), value=17)
        real = torch.tensor([[1.0] * 5 + [0.0] * 3])
        among = encode(padded, torch.arange(8), real)[:, :5]
        last = encode(torch.tensor([[9, 14, 5, 30, 8]]), torch.arange(5), torch.ones(1, 5))
    torch.testing.assert_close(among, alone, atol=1e-5, rtol=0)
    assert ((last - alone).abs().amax(-1) > 1e-4).all()  # the last token affects all positions


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"average_ffn": -1}, "average_ffn must not be negative"),
        ({"average_depth": 0}, "average_depth must be positive"),
        ({"average_ffn": 40, "average_projection": False}, "average_ffn must be embed_dim 32"),
        ({"average_activation": "mish"}, "average_activation 'mish' is none of"),
        ({"gate": "both"}, "gate 'both' is none of"),
        ({"kernel_sizes": (3, 3)}, "of the mixer average must be 0"),
    ],
)
def test_an_impossible_average_is_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    config = CONFIGS["aan"]
    with pytest.raises(ConfigError, match=complaint):
        replace(config, decoder=replace(config.decoder, **changes))


def test_marians_variant_is_its_equations_written_out() -> None:
    """Marian normalises the average, has swish layers and separate gates, and its state is the mean."""
    config = CONFIGS["aan as marian"]
    layer = model("aan as marian").decoder.layers[0]
    assert isinstance(layer, AverageDecoderLayer)
    w = {k: p.detach().double().numpy() for k, p in layer.named_parameters()}

    def linear(name: str, value: np.ndarray) -> np.ndarray:
        return w[f"{name}.weight"] @ value + w[f"{name}.bias"]

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    xs = np.random.default_rng(0).normal(size=(6, config.decoder.embed_dim))
    mean = np.zeros(config.decoder.embed_dim)
    wanted = []
    for t, x in enumerate(xs):
        mean = (mean * t + x) / (t + 1)
        spread = np.sqrt(mean.var() + config.decoder.norm_eps)
        y = (mean - mean.mean()) / spread * w["conv_layer_norm.weight"] + w["conv_layer_norm.bias"]
        for hidden in ("average_hidden.0", "average_hidden.1"):
            y = linear(hidden, y)
            y = y * sigmoid(y)
        y = linear("average_out", y)
        y = sigmoid(linear("input_gate", x)) * x + sigmoid(linear("forget_gate", y)) * y
        wanted.append(x + y)
    with torch.inference_mode():
        got = layer.mixer_sublayer(torch.from_numpy(xs).float()[None], layer.mix)[0]
    np.testing.assert_allclose(got.numpy(), np.array(wanted), atol=1e-5)


@golden
def test_every_option_and_variable_at_fault_is_named_in_one_error() -> None:
    found = fixture("full_mask_ffn")
    options = found.options | {
        "num_heads": "8",
        "layer_preprocess": "layer_norm",
        "position_info_type": "rel",
    }
    with pytest.raises(CheckpointError, match=r"num_heads.*position_info_type.*layer_preprocess"):
        aan.config(options, (61, 53))
    variables = {k: v for k, v in found.variables.items() if k != "transformer/bias"}
    variables["transformer/source_embedding"] = np.zeros((3, 48), np.float32)
    variables |= {"transformer/extra": np.zeros(1), "transformer/bias/Adam": np.zeros(48)}
    with pytest.raises(
        CheckpointError, match=r"bias is missing.*extra is not part.*embed_tokens.*shape"
    ) as e:
        aan.weights(variables, found.config)
    assert "Adam" not in str(e.value)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("feeds", [False, True])
def test_every_weight_of_the_authors_model_has_its_variable(
    *, feeds: bool, pre: bool, joint: bool, tied: bool
) -> None:
    options = SIZES | {
        "use_ffn": feeds,
        "layer_preprocess": "layer_norm" if pre else "none",
        "layer_postprocess": "none" if pre else "layer_norm",
        "shared_source_target_embedding": joint,
        "shared_embedding_and_softmax_weights": tied,
    }
    net = build(aan.config(options, (20, 20)))
    with pytest.raises(CheckpointError) as error:
        aan.weights({}, net.config)
    missing = str(error.value).count(" is missing")
    # one variable holds q, k and v of the encoder, another k and v of the decoder's attention
    assert missing == len(weight_shapes(net)) - 2 * 2 - 2
    assert ("transformer/weights is missing" in str(error.value)) == joint
    assert ("transformer/softmax is missing" in str(error.value)) != tied


def test_pre_norm_models_normalise_the_average_only_with_a_feed_forward() -> None:
    options = SIZES | {"layer_preprocess": "layer_norm", "layer_postprocess": "none"}
    for feeds in (False, True):
        net = build(aan.config(options | {"use_ffn": feeds}, (20, 20)))
        assert (net.decoder.layers[0].conv_layer_norm is not None) == feeds
        assert net.decoder.layer_norm is not None
