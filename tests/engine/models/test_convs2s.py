"""ConvS2S against a second, loop-only form of it that reads fairseq's own weights, and its import."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import ConvStack
from engine.errors import ConfigError
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.models import build, load
from engine.models.model import Dropout
from engine.search.executor import StepInput
from export.graphs.onnx import encoder_graph, step_graph
from export.importers.fairseq import fconv

SHARED = Path(__file__).resolve().parents[4] / "shared"
VOCAB = 23
EOS, PAD = 2, 1
HALF = 0.5**0.5
GIVEN = {
    "arch": "fconv",
    "encoder_embed_dim": 12,
    "encoder_layers": "[(10, 4)] + [(14, 3, 2), (8, 2, 0), (8, 1, 4)]",
    "decoder_embed_dim": 12,
    "decoder_layers": "[(10, 3, 1), (10, 2, 2)] + [(6, 1, 0)] * 1 + [(9, 4, 3)]",
    "decoder_out_embed_dim": 7,
    "decoder_attention": "[False, True] * 2",
    "max_source_positions": 40,
    "max_target_positions": 30,
}


def draw(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.5


def state_of(given: dict[str, object], *, old: bool = False) -> dict[str, torch.Tensor]:
    """Random weights as fairseq's `fconv` names and shapes them, with weight normalisation."""
    values, problems = fconv.options(given)
    assert not problems
    state: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        state[name] = draw(shape, len(state))

    def linear(name: str, dim: int, width: int) -> None:
        add(f"{name}.weight_v", width, dim)
        add(f"{name}.weight_g", width, 1)
        add(f"{name}.bias", width)

    for side in ("encoder", "decoder"):
        embed, layers = values[f"{side}_embed_dim"], values[f"{side}_layers"]
        positions = values["max_source_positions" if side == "encoder" else "max_target_positions"]
        add(f"{side}.embed_tokens.weight", VOCAB, embed)
        add(f"{side}.embed_positions.weight", positions, embed)
        linear(f"{side}.fc1", embed, layers[0][0])
        made = [layers[0][0]]
        for i, (width, kernel, back) in enumerate(layers):
            if back and made[-back] != width:
                linear(f"{side}.projections.{i}", made[-back], width)
            conv = f"{side}.convolutions.{i}"
            add(f"{conv}.weight_v", kernel, made[-1], 2 * width)
            add(f"{conv}.weight_g", *((kernel, 1, 1) if old and side == "decoder" else (1, 1, 2 * width)))
            add(f"{conv}.bias", 2 * width)
            if side == "decoder" and values["decoder_attention"][i]:
                linear(f"decoder.attention.{i}.in_projection", width, embed)
                linear(f"decoder.attention.{i}.out_projection", embed, width)
            made.append(width)
        linear(f"{side}.fc2", made[-1], embed if side == "encoder" else values["decoder_out_embed_dim"])
    if values["share_input_output_embed"]:
        state["decoder.fc3.weight"] = state["decoder.embed_tokens.weight"].clone()
        add("decoder.fc3.bias", VOCAB)
    else:
        linear("decoder.fc3", values["decoder_out_embed_dim"], VOCAB)
    if not old:
        state["decoder.version"] = torch.tensor([2.0])
    return state


class Plain:
    """One sentence through fairseq's weights, a position and a tap at a time (docs/reference.md 4)."""

    def __init__(self, given: dict[str, object], state: dict[str, torch.Tensor]) -> None:
        self.values = fconv.options(given)[0]
        self.state = {name: weight.double().numpy() for name, weight in state.items()}

    def weight(self, name: str) -> np.ndarray:
        if f"{name}.weight" in self.state:
            return self.state[f"{name}.weight"]
        v, g = self.state[f"{name}.weight_v"], self.state[f"{name}.weight_g"]
        out = np.empty_like(v)
        axis = next((i for i, size in enumerate(g.shape) if size > 1), 0)
        for i in range(v.shape[axis]):
            at = tuple(i if a == axis else slice(None) for a in range(v.ndim))
            out[at] = g.reshape(-1)[i] * v[at] / np.sqrt((v[at] ** 2).sum())
        return out

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weight(name).T + self.state[f"{name}.bias"]

    def conv(self, name: str, x: np.ndarray, left: int) -> np.ndarray:
        weight, bias = self.weight(name), self.state[f"{name}.bias"]
        rows = []
        for t in range(len(x)):
            y = bias.copy()
            for k in range(len(weight)):
                if 0 <= t - left + k < len(x):
                    y = y + x[t - left + k] @ weight[k]
            value, gate = np.split(y, 2)
            rows.append(value / (1 + np.exp(-gate)))
        return np.stack(rows)

    def side(self, side: str, tokens: list[int], attend=None) -> tuple[np.ndarray, np.ndarray]:
        table, places = (self.state[f"{side}.embed_{kind}.weight"] for kind in ("tokens", "positions"))
        embedded = np.stack([table[token] + places[PAD + 1 + i] for i, token in enumerate(tokens)])
        before = [self.linear(f"{side}.fc1", embedded)]
        for i, (_, kernel, back) in enumerate(self.values[f"{side}_layers"]):
            left = kernel - 1 if side == "decoder" else (kernel - 1) // 2
            y = self.conv(f"{side}.convolutions.{i}", before[-1], left)
            if attend is not None:
                y = attend(i, y, embedded)
            if back:
                residual, name = before[-back], f"{side}.projections.{i}"
                y = (y + (self.linear(name, residual) if f"{name}.bias" in self.state else residual)) * HALF
            before.append(y)
        return self.linear(f"{side}.fc2", before[-1]), embedded

    def __call__(self, source: list[int], target: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities [target, vocab] and attention [target, source]."""
        a, embedded = self.side("encoder", source)
        b = (a + embedded) * HALF
        total = np.zeros((len(target), len(source)))

        def attend(i: int, x: np.ndarray, tokens: np.ndarray) -> np.ndarray:
            name = f"decoder.attention.{i}"
            if f"{name}.in_projection.bias" not in self.state:
                return x
            logits = (self.linear(f"{name}.in_projection", x) + tokens) * HALF @ a.T
            weights = np.exp(logits - logits.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            total[:] += weights / len(self.values["decoder_layers"])
            context = weights @ b * np.sqrt(len(source))
            return (self.linear(f"{name}.out_projection", context) + x) * HALF

        features, _ = self.side("decoder", target, attend)
        logits = self.linear("decoder.fc3", features)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True)), total


def imported(given: dict[str, object], state: dict[str, torch.Tensor]):
    config, problems = fconv.model_config(given, VOCAB, VOCAB)
    assert config is not None, problems
    weights, problems = fconv.model_weights(state, config)
    assert not problems
    return load(config, weights)


SHAPES = {
    "every option": GIVEN,
    "shared output": GIVEN | {"decoder_out_embed_dim": 12, "share_input_output_embed": True},
    "plain": {
        "arch": "fconv_iwslt_de_en",
        "encoder_embed_dim": 8,
        "encoder_layers": "[(6, 3)] * 2",
        "decoder_embed_dim": 8,
        "decoder_layers": "((6, 5), (6, 1))",
        "decoder_out_embed_dim": 8,
    },
}


@pytest.mark.parametrize("old", [False, True], ids=["version 2", "before version 2"])
@pytest.mark.parametrize("name", list(SHAPES))
@torch.no_grad()
def test_an_imported_model_equals_the_loops_over_its_checkpoint(name: str, *, old: bool) -> None:
    state = state_of(SHAPES[name], old=old)
    model, plain = imported(SHAPES[name], state), Plain(SHAPES[name], state)
    rng = np.random.default_rng(3)
    for length, steps in ((1, 1), (2, 6), (9, 3), (17, 20)):
        source, target = ([*rng.integers(4, VOCAB, n).tolist()] for n in (length - 1, steps - 1))
        source, target = [*source, EOS], [EOS, *target]
        padded = torch.tensor([[*source, PAD, PAD, PAD], [5] * (length + 2) + [EOS]])
        real = (padded != PAD).float()
        memory = model.encode(padded, torch.arange(padded.shape[1]), real)
        mask = torch.where(real > 0, 0.0, -torch.inf)
        features, attention = model.decode(torch.tensor([target, target]), memory, mask)
        scores, weights = plain(source, target)
        np.testing.assert_allclose(model.log_probs(features)[0].numpy(), scores, atol=2e-5)
        np.testing.assert_allclose(attention[0, :, :length].numpy(), weights, atol=1e-5)
        assert not attention[0, :, length:].any()


@given(lengths=st.lists(st.integers(1, 33), min_size=2, max_size=3), seed=st.integers(0, 2**20))
def test_answer_is_bitwise_independent_of_its_batch(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sources = [[*rng.integers(4, 300, n - 1).tolist(), EOS] for n in lengths]
    fed = rng.integers(4, 300, (len(sources), 5, 2))
    parents = rng.integers(0, 2, (len(sources), 5, 2))
    together = scores_of(sources, fed, parents)
    for i, source in enumerate(sources):
        alone = scores_of([source], fed[i : i + 1], parents[i : i + 1])
        for ours, theirs in zip(alone, together, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[i])


@cache
def wide_lane() -> OnnxExecutor:
    stack = ConvStack(64, (96, 96, 128), (3, 5, 1), (1, 2, 1))
    config = ModelConfig(
        architecture="convs2s",
        source_vocab=300,
        target_vocab=300,
        encoder=stack,
        decoder=replace(stack, attention=(0, 2), output_dim=48),
        output_bias=True,
        scale_embeddings=False,
    )
    model = build(config)
    model.initialise(seed=2)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    parts = {"encoder": encoder_graph(config, "fp32"), "step": step_graph(config, "fp32")}
    return OnnxExecutor(open_sessions(config, parts, weights, 1), beams=2, slots=4)


def scores_of(sources: list[list[int]], fed: np.ndarray, parents: np.ndarray) -> list[np.ndarray]:
    """Scores [slots, beams, k] of some steps, all sources started together."""
    lane, n = wide_lane(), len(sources)
    encoded = lane.encode(sources)
    for i in range(n):
        lane.place(encoded, i, i)
    found = []
    for step in range(fed.shape[1]):
        inputs = StepInput(
            tokens=fed[:, step],
            positions=np.full((n, 1), step),
            parents=parents[:, step],
            forced=np.full((n, 2), -1),
            banned=np.full((n, 2, 1), PAD),
            temperature=np.ones(n, np.float32),
            unk_penalty=np.zeros(n, np.float32),
            eos_penalty=np.zeros(n, np.float32),
            lm_weight=np.zeros(n, np.float32),
            k=8,
        )
        found.append(lane.step(n, inputs).scores)
    return found


def test_encoder_gradients_are_scaled_by_attentions_except_embeddings() -> None:
    state = state_of(GIVEN)
    model = imported(GIVEN, state)
    source = torch.tensor([[5, 9, 12, EOS]])
    grads = []
    for training in (False, True):
        model.train(training)
        model.zero_grad()
        model(source, torch.tensor([[EOS, 7, 8]])).square().sum().backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name in ("encoder.fc2.weight", "encoder.convolutions.0.weight", "encoder.fc1.bias"):
        torch.testing.assert_close(
            grads[1][name] * 4, grads[0][name]
        )  # two attentions, and the 2 of two uses
    torch.testing.assert_close(grads[1]["decoder.fc1.weight"], grads[0]["decoder.fc1.weight"])
    tables = [grad["encoder.embed_tokens.weight"] for grad in grads]
    assert not torch.allclose(tables[1] * 4, tables[0])  # b holds the embeddings themselves


def test_a_new_model_starts_with_the_variances_of_the_paper() -> None:
    stack = ConvStack(256, (192, 192), (3, 3), (1, 1))
    config = ModelConfig(
        architecture="convs2s",
        source_vocab=500,
        target_vocab=500,
        encoder=stack,
        decoder=replace(stack, attention=(0, 1)),
        share_output=True,
        output_bias=True,
        scale_embeddings=False,
    )
    model = build(config, Dropout(residual=0.2))
    model.initialise(seed=1)
    named = dict(model.named_parameters())
    for name, std in {
        "encoder.embed_tokens.weight": 0.1,
        "decoder.embed_tokens.weight": 0.1,
        "decoder.embed_positions.weight": 0.1,
        "encoder.fc1.weight": (0.8 / 256) ** 0.5,
        "encoder.fc2.weight": (1 / 192) ** 0.5,
        "encoder.convolutions.1.weight": (4 * 0.8 / (3 * 192)) ** 0.5,
        "decoder.attention.1.in_projection.weight": (1 / 192) ** 0.5,
    }.items():
        assert named[name].std().item() == pytest.approx(std, rel=0.02), name
    assert not named["encoder.embed_tokens.weight"][PAD].any()
    assert not named["decoder.embed_tokens.weight"][PAD].any()
    assert not named["decoder.fc3.bias"].any()


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared")
@pytest.mark.parametrize("arch", list(fconv.FCONV_ARCHITECTURES))
def test_the_defaults_of_every_architecture_are_fairseqs(arch: str) -> None:
    theirs = json.loads((SHARED / "arch_defaults.json").read_text("utf-8"))[arch]
    ours, problems = fconv.options({"arch": arch})
    written, _ = fconv.options({"arch": "fconv", **theirs})
    assert ours == written
    assert not problems


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("[(512, 3)] * 2", [(512, 3, 1)] * 2),
        ("2 * [(512, 3)]", [(512, 3, 1)] * 2),
        ("[(64, 3)] * 2 + [(128, 3, 2)]", [(64, 3, 1), (64, 3, 1), (128, 3, 2)]),
        ("((64, 3),) * 2 + ((32, 1, 0),)", [(64, 3, 1), (64, 3, 1), (32, 1, 0)]),
        (" [(2 * 256, 2 + 1),\n (4, 5,)] ", [(512, 3, 1), (4, 5, 1)]),
    ],
)
def test_layers_written_as_expressions_are_read(text: str, layers: list[tuple[int, int, int]]) -> None:
    assert fconv.options({"arch": "fconv", "encoder_layers": text})[0]["encoder_layers"] == layers


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "not an expression"),
        ("[(512, 3)] *", "not an expression"),
        ("(" * 900, "not an expression"),
        ("[(512, 3)] * " + "1 * " * 400 + "20 * 200", "4000 layers are more than 1000"),
        ("1+" * 990 + "1", "is not understood"),
        ("[(512, 3)] " + "+ [] " * 500, "longer than"),
        ("[]", "a list of layers"),
        ("512", "a list of layers"),
        ("[512, 3]", "a layer is"),
        ("[(512,)]", "a layer is"),
        ("[(512, 3, 1, 1)]", "a layer is"),
        ("[(512, True)]", "a layer is"),
        ("[('512', 3)]", "whole numbers"),
        ("[(512.0, 3)]", "whole numbers"),
        ("[(512, -3)]", "whole numbers"),
        ("[(2 ** 9, 3)]", "whole numbers"),
        ("[(99999, 3)]", "exceeds"),
        ("[(512, 300 * 300)]", "exceeds"),
        ("[(512, 3)] + 2", "joins two lists"),
        ("[(512, 3)] * [2]", "joins two lists"),
        ("[(512, 3)] * 10 ** 10", "whole numbers"),
        ("[(512, 3) for _ in range(3)]", "whole numbers"),
        ("__import__('os').system('true')", "whole numbers"),
        ("open('x')", "whole numbers"),
    ],
)
def test_layer_expression_with_code_is_refused_and_not_executed(text: str, remedy: str) -> None:
    _, problems = fconv.options({"arch": "fconv", "decoder_layers": text})
    (problem,) = problems
    assert problem.startswith("decoder_layers = ")
    assert remedy in problem


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("True", (0, 1, 2)),
        ("[True, False, True]", (0, 2)),
        ("[False] * 2 + [True]", (2,)),
        ("[1, 0, 0]", (0,)),
    ],
)
def test_attention_is_a_flag_for_each_layer(text: str, layers: tuple[int, ...]) -> None:
    config, problems = fconv.model_config({"arch": "fconv_iwslt_de_en", "decoder_attention": text}, 9, 9)
    assert config is not None, problems
    assert config.decoder.attention == layers


def test_all_problems_of_the_options_come_in_one_report() -> None:
    given = {
        "arch": "fconv",
        "encoder_layers": "layers()",
        "decoder_attention": "[True]",
        "decoder_out_embed_dim": "wide",
        "max_source_positions": 10**6,
        "task": "language_modeling",
    }
    _, problems = fconv.options(given)
    text = "; ".join(problems)
    assert len(problems) == 5
    for name in ("encoder_layers", "1 values for 20 layers", "'wide'", "1000000", "language_modeling"):
        assert name in text


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"decoder_attention": "False"}, "attention must name at least one layer"),
        ({"encoder_layers": "[(8, 3, 2)]"}, "encoder: residuals"),
        ({"decoder_layers": "[(8, 3), (8, 3, 3)]", "decoder_attention": "True"}, "decoder: residuals"),
        ({"encoder_layers": "[(8, 0)]"}, "encoder: kernel_sizes"),
        ({"encoder_layers": "[(0, 3)]"}, "widths must be positive"),
        ({"encoder_embed_dim": 14}, "same embed_dim"),
        ({"share_input_output_embed": True}, "input_dim == output_dim"),
        ({"max_source_positions": 3}, "at least 2"),
    ],
)
def test_options_that_fairseq_could_not_run_either_are_refused(
    changes: dict[str, object], remedy: str
) -> None:
    config, problems = fconv.model_config(GIVEN | changes, VOCAB, VOCAB)
    assert config is None
    assert remedy in "; ".join(problems)


def test_files_of_before_0_5_with_one_limit_for_both_sides_are_read() -> None:
    config, _ = fconv.model_config({"arch": "fconv", "max_positions": 512}, VOCAB, VOCAB)
    assert config is not None
    assert (config.max_source, config.max_target) == (510, 510)


def broken(state: dict[str, torch.Tensor], kind: str) -> None:
    conv = "decoder.convolutions.0.weight"
    if kind == "no gain":
        del state["encoder.fc1.weight_g"]
    elif kind == "no direction":
        del state[f"{conv}_v"]
    elif kind == "both forms":
        state[conv] = state[f"{conv}_v"]
    elif kind == "left over":
        state["decoder.convolutions.9.bias"] = torch.zeros(4)
    elif kind == "missing":
        del state["encoder.convolutions.1.bias"]
    elif kind == "axes":
        state["encoder.fc2.weight_v"] = torch.zeros(3)
    elif kind == "old layout":
        state[f"{conv}_g"] = torch.ones(3, 1, 1)
    elif kind == "narrow":
        state["encoder.fc2.weight_v"] = state["encoder.fc2.weight_v"][:, :-1]
    elif kind == "zero":
        state["encoder.fc2.weight_v"][3] = 0.0
    elif kind == "kernel":
        state[f"{conv}_v"] = state[f"{conv}_v"][:-1]


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("no gain", "encoder.fc1.weight_g is missing"),
        ("no direction", "decoder.convolutions.0.weight_v is missing"),
        ("both forms", "with and without weight normalisation"),
        ("left over", "decoder.convolutions.9.bias is not part of the model"),
        ("missing", "encoder.convolutions.1.bias is missing"),
        ("axes", "encoder.fc2.weight_v has shape (3,), not 2 axes"),
        ("old layout", "decoder.convolutions.0.weight_g has shape (3, 1, 1), not (1, 1, 20)"),
        ("narrow", "encoder.fc2.weight has shape"),
        ("zero", "encoder.fc2.weight holds values that are not finite"),
        ("kernel", "decoder.convolutions.0.weight has shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(kind: str, remedy: str) -> None:
    state = state_of(GIVEN)
    broken(state, kind)
    config, _ = fconv.model_config(GIVEN, VOCAB, VOCAB)
    assert config is not None
    assert remedy in "; ".join(fconv.model_weights(state, config)[1])


def test_a_shared_output_that_differs_from_the_embedding_is_refused() -> None:
    given = SHAPES["shared output"]
    state = state_of(given)
    state["decoder.fc3.weight"][5] += 1.0
    config, _ = fconv.model_config(given, VOCAB, VOCAB)
    assert config is not None
    assert "fc3.weight differs" in "; ".join(fconv.model_weights(state, config)[1])


def test_the_folded_weights_of_a_checkpoint_in_fp16_are_kept_in_full() -> None:
    """g v / |v| of fp16 numbers is no fp16 number: rounding it would move the answers."""
    state = {name: weight.half() for name, weight in state_of(GIVEN).items()}
    model, plain = imported(GIVEN, state), Plain(GIVEN, state)
    name = "encoder.convolutions.1.weight"
    ours = dict(model.named_parameters())[name].detach().numpy()
    theirs = plain.weight(name.removesuffix(".weight"))
    np.testing.assert_allclose(ours, theirs.transpose(2, 0, 1).reshape(ours.shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"scale_embeddings": True}, "scale_embeddings"),
        ({"zero_start": True}, "zero_start"),
        ({"encoder": ConvStack(8, (8,), (3,), (1,), attention=(0,))}, "belong to the decoder"),
        ({"decoder": ConvStack(8, (8,), (3,), (1,), attention=(1,))}, "attention must name"),
        ({"decoder": ConvStack(8, (8, 8), (3, 3), (1, 1), attention=(1, 0))}, "in order"),
        ({"decoder": ConvStack(8, (8,), (3, 3), (1,), attention=(0,))}, "kernel_sizes"),
        ({"decoder": ConvStack(8, (), (), (), attention=(0,))}, "one per layer"),
    ],
)
def test_impossible_configurations_are_refused(changes: dict[str, object], remedy: str) -> None:
    stack = ConvStack(8, (8,), (3,), (1,))
    values = {"encoder": stack, "decoder": replace(stack, attention=(0,)), "scale_embeddings": False}
    ModelConfig("convs2s", 9, 9, **values)
    with pytest.raises(ConfigError, match=remedy):
        ModelConfig("convs2s", 9, 9, **values | changes)
