"""Compare SliceNet with recorded outputs of tensor2tensor, and its convolutions with plain loops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bundle.config import ModelConfig
from engine.bundle.presets import preset
from engine.bundle.stacks import SliceStack
from engine.errors import ConfigError
from engine.executors.memory import StagedBatch
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.executors.torch.executor import TorchExecutor
from engine.models import build, load
from engine.models.model import Dropout, Model
from engine.models.separable import ConvolutionShape, SubSeparable, SuperSeparable
from engine.schedule.lane import Lane
from engine.search.executor import Executor, StepInput
from engine.types import DecodeOptions, Request
from export.graphs.onnx import graphs
from export.importers.tensorflow import slicenet
from tests.engine.executors.test_batch_independence import decode, facts
from tests.support import models

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "slicenet"
NAMES = sorted(path.name for path in GOLDEN.glob("*/")) if GOLDEN.is_dir() else []
SEEN = pytest.mark.parametrize(
    "name", NAMES or [pytest.param("", marks=pytest.mark.skip("no golden/slicenet"))]
)
EOS = 1


@cache
def fixture(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """config.json, variables and what t2t computed."""
    folder = GOLDEN / name
    with np.load(folder / "weights.npz") as weights, np.load(folder / "io.npz") as io:
        return json.loads((folder / "config.json").read_text()), dict(weights), dict(io)


@cache
def converted(name: str) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    given, variables, _ = fixture(name)
    config, problems = slicenet.model_config(given)
    assert config is not None, problems
    weights, problems = slicenet.weights(variables, config)
    assert not problems
    return config, weights


@cache
def net(name: str) -> Model:
    return load(*converted(name))


@cache
def lane(name: str, backend: str, beams: int, slots: int) -> Executor:
    if backend == "torch":
        return TorchExecutor(net(name), beams, slots)
    config, weights = converted(name)
    made = graphs(config)
    parts = {p: made[f"onnx/{p}.fp32.onnx"] for p in ("encoder", "step") if f"onnx/{p}.fp32.onnx" in made}
    return OnnxExecutor(open_sessions(config, parts, weights, 1), beams, slots)


def previous(targets: np.ndarray) -> torch.Tensor:
    """What the decoder reads: targets moved right, behind any token at all."""
    return torch.from_numpy(np.concatenate([np.full_like(targets[:, :1], EOS), targets[:, :-1]], 1)).long()


def scores(logits: np.ndarray) -> np.ndarray:
    return torch.log_softmax(torch.from_numpy(logits), -1).numpy()


@SEEN
def test_logits_equal_the_authors_on_the_full_pass(name: str) -> None:
    io, model = fixture(name)[2], net(name)
    source = torch.from_numpy(io["inputs"]).long()
    real = (source != 0).float()
    with torch.no_grad():
        memory = model.encode(source, torch.arange(source.shape[1]), real)
        # the authors attend to padding, whose keys and values are zero: nothing is masked here
        features, _ = model.decode(previous(io["targets"]), memory, torch.zeros_like(real))
    np.testing.assert_allclose(features.numpy(), io["decoder_output"], atol=1e-4)
    np.testing.assert_allclose(model.project(features).detach().numpy(), io["logits"], atol=1e-4)


@SEEN
def test_a_row_without_padding_equals_the_authors_as_convoy_computes_it(name: str) -> None:
    io = fixture(name)[2]
    rows = [i for i, row in enumerate(io["inputs"]) if row.all()]
    assert rows
    with torch.no_grad():
        source = torch.from_numpy(io["inputs"][rows]).long()
        got = net(name)(source, previous(io["targets"][rows])).numpy()
    np.testing.assert_allclose(got, scores(io["logits"][rows]), atol=1e-4)


@SEEN
def test_every_block_equals_the_authors(name: str) -> None:
    io, model = fixture(name)[2], net(name)
    seen: dict[str, np.ndarray] = {}
    hooks = []
    for ours, theirs in scopes(model):

        def keep(_: Any, __: Any, output: Any, theirs: str = theirs) -> None:
            seen[theirs] = (output[0] if isinstance(output, tuple) else output).numpy()

        hooks.append(model.get_submodule(ours).register_forward_hook(keep))
    with torch.no_grad():
        source = torch.from_numpy(io["inputs"]).long()
        memory = model.encode(source, torch.arange(source.shape[1]), (source != 0).float())
        model.decode(previous(io["targets"]), memory, torch.zeros(source.shape))
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(list(scopes(model)))
    for scope, got in seen.items():
        np.testing.assert_allclose(got, io[scope], atol=1e-4, err_msg=scope)


def scopes(model: Model) -> Iterator[tuple[str, str]]:
    """Pairs of our module and tensor2tensor's scope."""
    yield "decoder.merge", "targets_merge"
    yield "decoder", "decoder_output"
    stacks = {"decoder": model.config.decoder, "encoder": model.config.encoder}
    for side, stack in stacks.items():
        for layer in range(stack.layers if stack else 0):
            for part in ("residual1", "residual2"):
                yield f"{side}.layers.{layer}.{part}", f"{side}/layer_{layer}/{part}"
    if model.config.encoder is not None:
        yield "encoder", "encoder"
        places = ["", *(f"decoder/layer_{i}/" for i in range(model.config.decoder.layers))]
        for number, place in enumerate(places):
            yield f"decoder.attentions.{number}", f"{place}attention"
            yield f"decoder.attentions.{number}.targets_time", f"{place}targets_time"
            yield f"decoder.attentions.{number}.encoder_attn", f"{place}encdec_attention"


@pytest.mark.parametrize("backend", ["torch", "onnx"])
@SEEN
def test_steps_equal_the_authors(name: str, backend: str) -> None:
    io, config = fixture(name)[2], net(name).config
    rows = len(io["inputs"])
    executor = lane(name, backend, 1, rows)
    encoded = executor.encode([row[row != 0].tolist() for row in io["inputs"]])
    padded = with_the_authors_padding(encoded, io["inputs"].shape[1], executor, net(name))
    for row in range(rows):
        executor.place(padded, row, row)
    fed, want = previous(io["targets"]).numpy(), scores(io["logits"])
    for at in range(fed.shape[1]):
        inputs: dict[str, Any] = {
            "tokens": fed[:, at : at + 1],
            "positions": np.full((rows, 1), at),
            "parents": np.zeros((rows, 1), np.int64),
            "forced": np.full((rows, 1), -1),
            "banned": np.zeros((rows, 1, 1), np.int64),
            "temperature": np.ones(rows, np.float32),
            "unk_penalty": np.zeros(rows, np.float32),
            "eos_penalty": np.zeros(rows, np.float32),
            "lm_weight": np.zeros(rows, np.float32),
        }
        if backend == "torch":
            inputs = {key: torch.from_numpy(value) for key, value in inputs.items()}
        top = executor.step(rows, StepInput(**inputs, k=config.target_vocab))
        got, ids = np.asarray(top.scores)[:, 0], np.asarray(top.ids)[:, 0]
        ordered = np.take_along_axis(got, np.argsort(ids, 1), 1)
        np.testing.assert_allclose(ordered[:, 1:], want[:, at, 1:], atol=1e-4)  # padding is banned


def with_the_authors_padding(
    encoded: StagedBatch, width: int, executor: Executor, model: Model
) -> StagedBatch:
    """The same sources with the zero keys and values that t2t attends to instead of masking them."""
    memory = []
    for length, parts in zip(encoded.lengths, encoded.memory, strict=True):
        made = {}
        for spec in model.memory_spec:
            axis = spec.source_axis
            block = np.zeros([width if d < 0 else d for d in spec.shape], np.float32)
            until = (slice(None),) * axis + (slice(length),)
            block[until] = np.asarray(parts[spec.name])[until]
            made[spec.name] = executor.namespace.asarray(block)
        memory.append(made)
    return StagedBatch([width] * len(memory), memory)


def looped(x: np.ndarray, weights: list[np.ndarray], dilation: int, left: int) -> np.ndarray:
    """A full convolution of each group by its definition. x: [time, in]; weights: [K, in / g, out / g]."""
    time, width = len(x), weights[0].shape[0]
    out = []
    for t in range(time):
        row = []
        for group, weight in enumerate(weights):
            size = weight.shape[1]
            for o in range(weight.shape[2]):
                total = 0.0
                for k in range(width):
                    at = t - left + k * dilation
                    if 0 <= at < time:
                        for c in range(size):
                            total += weight[k, c, o] * x[at, group * size + c]
                row.append(total)
        out.append(row)
    return np.array(out)


CASES = st.fixed_dictionaries(
    {
        "width": st.sampled_from([1, 3, 5]),
        "dilation": st.integers(1, 3),
        "groups": st.sampled_from([1, 2, 3]),
        "time": st.integers(1, 9),
        "causal": st.booleans(),
        "seed": st.integers(0, 999),
    }
)


@given(case=CASES)
def test_a_sub_separable_convolution_equals_its_loops(case: dict[str, Any]) -> None:
    rng, groups = np.random.default_rng(case["seed"]), case["groups"]
    conv = SubSeparable(ConvolutionShape(6, 12, case["width"], case["dilation"], groups))
    parts = [rng.normal(size=(case["width"], 6 // groups, 12 // groups)) for _ in range(groups)]
    x = rng.normal(size=(case["time"], 6))
    with torch.no_grad():
        for module, part in zip(conv.parts, parts, strict=True):
            module.weight.copy_(torch.from_numpy(part.reshape(-1, 12 // groups).T))
        left = conv.kernel.reach // (1 if case["causal"] else 2)
        got = conv.whole(torch.from_numpy(x).float()[None], left)[0].numpy()
        want = looped(x, parts, case["dilation"], left)
        if groups > 1:
            want = want @ conv.mix.weight.numpy().T + conv.mix.bias.numpy()
    np.testing.assert_allclose(got, want, atol=1e-5)


@given(case=CASES)
def test_a_super_separable_convolution_equals_its_loops(case: dict[str, Any]) -> None:
    rng, groups = np.random.default_rng(case["seed"]), case["groups"]
    conv = SuperSeparable(ConvolutionShape(6, 12, case["width"], case["dilation"], -groups))
    depthwise, x = rng.normal(size=(case["width"], 6)), rng.normal(size=(case["time"], 6))
    points = [rng.normal(size=(6 // groups, 12 // groups)) for _ in range(groups)]
    with torch.no_grad():
        conv.depthwise.copy_(torch.from_numpy(depthwise))
        for module, point in zip(conv.pointwise, points, strict=True):
            module.weight.copy_(torch.from_numpy(point.T))
        left = conv.kernel.reach // (1 if case["causal"] else 2)
        got = conv.whole(torch.from_numpy(x).float()[None], left)[0].numpy()
    # section 2.2: each group has its own separable convolution, which is a full one of rank one a channel
    size = 6 // groups
    full = [depthwise[:, g * size : (g + 1) * size, None] * point for g, point in enumerate(points)]
    np.testing.assert_allclose(got, looped(x, full, case["dilation"], left), atol=1e-5)


def t2t(**changes: Any) -> dict[str, Any]:
    """Hyperparameters of a small model."""
    base = {"hidden_size": 48, "num_hidden_layers": 2, "num_heads": 4, "large_kernel_size": 15}
    base |= {"separability": -2, "target_space_id": 3, "vocab_in": 50, "vocab_out": 50}
    names = {"kernel_scheme": "3.7.15.31", "dilation_scheme": "1.1.1.1", "attention_type": "transformer"}
    return base | names | {"shared_embedding_and_softmax_weights": True} | changes


@pytest.mark.parametrize(
    ("kernels", "dilations", "want"),
    [
        ("3.3.3.3", "1.2.4.8", ((3, 3, 3, 3), (1, 2, 4, 8))),
        ("3.7.7.7", "1.1.2.4", ((3, 7, 7, 7), (1, 1, 2, 4))),
        ("3.7.15.15", "1.1.1.2", ((3, 7, 15, 15), (1, 1, 1, 2))),
        ("3.7.15.31", "1.1.1.1", ((3, 7, 15, 31), (1, 1, 1, 1))),
        ("3.7.15.31", "1.1.1.1.1", ((3, 7, 15, 31), (1, 1, 1, 1))),
        ("3.7.15.31.63", "1.1.1.1.1", ((3, 7, 15, 31, 63), (1, 1, 1, 1, 1))),
        ("3.7.15.31.63", "1.2.4.8", ((3, 7, 15, 31), (1, 2, 4, 8))),
        ("3.5.7.9", "1.1.1.1", ((3, 3, 11, 11), (1, 1, 1, 4))),
        ("3.3.3.3", "fast", ((3, 3, 11, 11), (1, 1, 1, 4))),
    ],
)
def test_schemes_are_cut_to_the_shorter_and_unknown_ones_fall_back(
    kernels: str, dilations: str, want: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    hyper = t2t(kernel_scheme=kernels, dilation_scheme=dilations, large_kernel_size=11)
    config, problems = slicenet.model_config(hyper)
    assert not problems
    for stack in (config.encoder, config.decoder):
        assert (stack.kernel_sizes, stack.dilations) == want


def test_super_separable_neighbours_have_different_groups() -> None:
    # tensor2tensor: "s=-2 means 3 then 2 groups (and 4, 3, 2), s=-1 means 2 then 1"
    assert SliceStack(48, 1, separability=-2).separabilities(2) == (-3, -2)
    assert SliceStack(48, 1, separability=-2).separabilities(3) == (-4, -3, -2)
    assert SliceStack(48, 1, separability=-1).separabilities(2) == (-2, -1)
    assert SliceStack(48, 1, separability=4).separabilities(2) == (4, 4)


def test_unequal_vocabularies_unset_the_sharing_of_embeddings() -> None:
    shared, _ = slicenet.model_config(t2t())
    apart, _ = slicenet.model_config(t2t(vocab_out=60))
    assert (shared.share_embeddings, shared.share_output) == (True, True)
    assert (apart.share_embeddings, apart.share_output) == (False, False)


def test_every_unsupported_hyperparameter_is_named_at_once() -> None:
    hyper = t2t(norm_type="noam", kernel_height=5, attention_type="simple", hidden_size="wide")
    config, problems = slicenet.model_config(hyper)
    assert config is None
    text = "; ".join(problems)
    assert all(word in text for word in ("norm_type", "kernel_height", "simple", "hidden_size"))
    config, problems = slicenet.model_config(t2t(hidden_size=40))
    assert config is None
    assert "multiple of each number of groups [2, 3]" in problems[0]


@pytest.mark.parametrize(
    ("decoder", "rest", "message"),
    [
        ({"embed_dim": 28}, {}, "32 or more"),
        ({"kernel_sizes": (3, 3)}, {}, "three or more convolutions"),
        ({"dilations": (1, 1, 0, 1)}, {}, "must be positive"),
        ({"separability": -4}, {}, "number of groups"),
        ({"attention": "simple"}, {}, "none of transformer, inner_product, none"),
        ({"heads": 5}, {}, "multiple of heads"),
        ({"target_space": 32}, {}, "between 0 and 31"),
        ({"attention": "none", "heads": 1}, {}, "go together"),
        ({}, {"encoder": None, "source_vocab": 47}, "go together"),
        ({}, {"zero_start": True}, "zero_start is not of this architecture"),
    ],
)
def test_impossible_configurations_are_refused_by_name(
    decoder: dict[str, Any], rest: dict[str, Any], message: str
) -> None:
    base = models.CONFIGS["slicenet separable"]
    with pytest.raises(ConfigError, match=message):
        replace(base, decoder=replace(base.decoder, **decoder), **rest)


def test_a_configuration_survives_json() -> None:
    for name in ("slicenet of five", "slicenet language model"):
        config = models.CONFIGS[name]
        assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.skipif(not NAMES, reason="no golden/slicenet")
def test_variables_that_do_not_fit_are_all_named() -> None:
    variables, (config, _) = dict(fixture(NAMES[0])[1]), converted(NAMES[0])
    first, second, third = sorted(variables)[:3]
    del variables[first]
    variables["slice_net/extra"] = variables[second]
    variables[third] = np.zeros((2, 3), np.float32)
    _, problems = slicenet.weights(variables, config)
    assert len(problems) == 3
    assert all(any(name in p for p in problems) for name in (first, "slice_net/extra is not part", third))


@pytest.mark.skipif(not NAMES, reason="no golden/slicenet")
def test_decoder_without_attention_is_a_language_model_without_encoder() -> None:
    hyper, variables, _ = fixture("sep0")
    kept = {k: v for k, v in variables.items() if "attention" not in k and "targets_time" not in k}
    config, problems = slicenet.model_config({**hyper, "attention_type": "none"})
    weights, more = slicenet.weights(kept, config)
    assert not problems + more
    model = load(config, weights)
    assert (config.encoder, model.memory_spec, config.reads_source) == (None, [], False)
    targets = torch.tensor([[EOS, 9, 30, 4]])
    with torch.no_grad():
        features, attention = model.decode(targets, {}, torch.zeros(1, 0))
        # the same layers over what the merging block makes of no attention at all
        assert attention is None
        own = net("sep0").decoder
        own_attentions, own.attentions = own.attentions, torch.nn.ModuleList()
        try:
            want, _ = net("sep0").decode(targets, {}, torch.zeros(1, 0))
        finally:
            own.attentions = own_attentions
    torch.testing.assert_close(features, want, atol=0, rtol=0)


def test_first_input_is_the_target_space_for_any_token() -> None:
    model = models.model("slicenet separable")
    source, targets = torch.tensor([[5, 6, 2]]), torch.tensor([[2, 9, 8], [1, 9, 8], [40, 9, 8]])
    with torch.no_grad():
        got = model(source.expand(3, -1), targets)
        torch.testing.assert_close(got[1:], got[:1].expand(2, -1, -1), atol=5e-5, rtol=0)
        space = model.decoder.target_space.weight
        kept = space[5].clone()
        space[5] += 1.0
        other = model(source, targets[:1])
        space[5] = kept
    assert (other[0, 0] - got[0, 0]).abs().max() > 1e-3


def test_inner_product_attention_is_the_softmax_of_scaled_similarities() -> None:
    model = models.model("slicenet inner product")
    rng = np.random.default_rng(2)
    queries, source = rng.normal(size=(3, 36)), rng.normal(size=(5, 36))
    similar = np.exp(queries @ source.T / 6.0)
    want = similar / similar.sum(1, keepdims=True) @ source
    attend = model.decoder.attentions[1].encoder_attn
    keys, values = attend.memory(torch.from_numpy(source)[None])
    got, weights = attend(torch.from_numpy(queries)[None], keys, values, torch.zeros(1, 5))
    np.testing.assert_allclose(got[0].numpy(), want, atol=1e-10)
    np.testing.assert_allclose(weights[0].numpy(), similar / similar.sum(1, keepdims=True), atol=1e-10)
    # one memory serves the decoder's start and all of its layers
    assert [spec.name for spec in model.memory_spec] == ["keys.0", "values.0"]


def test_symbol_dropout_hides_tokens_in_training_only() -> None:
    config = models.CONFIGS["slicenet"]
    made = build(config, Dropout(symbols=1.0))
    made.initialise(seed=3)
    sources, targets = torch.tensor([[5, 6, 2], [7, 8, 2]]), torch.tensor([[2, 9, 8], [2, 31, 30]])
    with torch.no_grad():
        made.train()
        hidden = made(sources, targets)
        made.eval()
        seen = made(sources, targets)
    torch.testing.assert_close(hidden[0], hidden[1])  # nothing is left to tell the rows apart
    assert (seen[0, -1] - seen[1, -1]).abs().max() > 1e-2
    assert torch.isfinite(hidden).all()


def test_stack_dropout_scales_kept_values_in_training_only() -> None:
    made = build(models.CONFIGS["slicenet"], Dropout(residual=0.5))
    made.initialise(seed=3)
    tokens = torch.tensor([[5, 6, 9, 2]])
    arguments = tokens, torch.arange(4), torch.ones(1, 4)
    with torch.no_grad():
        whole = made.encoder(*arguments)
        made.train()
        dropped = made.encoder(*arguments)
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


@pytest.mark.parametrize("name", ["slicenet", "slicenet sub-separable", "slicenet inner product"])
def test_every_weight_learns_and_the_loss_falls(name: str) -> None:
    config = models.CONFIGS[name]
    made = build(config, Dropout(residual=0.1, attention=0.1, symbols=0.1))
    made.initialise(seed=3)
    made.train()
    torch.manual_seed(0)
    tokens = torch.randint(4, 40, (8, 6))
    source = torch.cat([tokens, torch.full((8, 1), 2)], 1)
    targets = torch.cat([torch.full((8, 1), 2), tokens], 1)
    optimizer, losses = torch.optim.Adam(made.parameters(), 3e-3), []
    for step in range(25):
        loss = -made(source, targets).gather(2, source[..., None]).mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            silent = [n for n, p in made.named_parameters() if p.grad is None or not p.grad.any()]
            assert not silent
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", ["slicenet", "slicenet dilated groups"])
def test_batched_answers_equal_single_answers_bit_for_bit(name: str, precision: str) -> None:
    rng = np.random.default_rng(6)
    executor = OnnxExecutor(models.sessions(name, precision), 4, 6)
    decoder = Lane(executor, lambda request, outcome: request.reply(outcome))
    jobs = [
        (
            [*rng.integers(4, 47, rng.integers(1, 70)).tolist(), 2],
            DecodeOptions(beam_size=int(rng.integers(1, 5)), max_length_b=int(rng.integers(5, 20))),
        )
        for _ in range(10)
    ]
    for job, among in zip(jobs, decode(decoder, jobs, rng), strict=True):
        (alone,) = decode(decoder, [job], rng)
        assert facts(alone) == facts(among)


@pytest.mark.skipif(not NAMES, reason="no golden/slicenet")
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_vocabulary_without_bos_and_unk_is_searched(backend: str) -> None:
    io, model = fixture("sep0")[2], net("sep0")
    source = io["inputs"][1][io["inputs"][1] != 0]
    answers: list[Any] = []
    decoder = Lane(lane("sep0", backend, 1, 1), lambda request, outcome: request.reply(outcome))
    decoder.drain([Request(source.tolist(), DecodeOptions(beam_size=1, max_length_b=12), answers.append)])
    tokens = [EOS]
    with torch.no_grad():
        while len(tokens) < 14:
            row = model(torch.from_numpy(source)[None].long(), torch.tensor([tokens]))[0, -1]
            row[0] = -torch.inf  # padding; and as in every search, an end may not come first
            row[EOS] = -torch.inf if len(tokens) == 1 else row[EOS]
            tokens.append(int(row.argmax()) if len(tokens) < 13 else EOS)
            if tokens[-1] == EOS:
                break
    assert answers[0].hypotheses[0].tokens == tokens[1:-1]


@pytest.mark.parametrize(
    ("name", "stated", "others"), [("slicenet_full_2048", 349, 265), ("slicenet_super_3072", 348, 222)]
)
def test_presets_of_stated_depth_have_the_papers_counts(name: str, stated: int, others: int) -> None:
    """Table 2. The vocabulary is not stated: 84 M at depth 2048 and 126 M at 3072 are one table of 41,015."""
    with torch.device("meta"):
        made = build(preset(name, 41_015, 41_015))
    total = sum(p.numel() for p in made.parameters())
    table = made.encoder.embed_tokens.weight.numel()
    assert abs(total / 1e6 - stated) < 1
    assert abs((total - table) / 1e6 - others) < 1


def test_slicenet_1_is_tensor2tensors() -> None:
    config = preset("slicenet_1", 100, 100)
    assert (config.encoder.layers, config.decoder.layers, config.decoder.embed_dim) == (6, 4, 768)
    assert (config.decoder.attention, config.decoder.heads, config.decoder.separability) == (
        "transformer",
        8,
        -2,
    )
    with torch.device("meta"):
        names = {name.split(".")[0] for name, _ in build(config).named_parameters()}
    assert names == {"encoder", "decoder"}
