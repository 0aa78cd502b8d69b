"""Language models: compared with fairseq's, and adaptive softmax with plain loops."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.backends import Placement
from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.config import ModelConfig
from engine.errors import ConfigError, InvalidRequest
from engine.executors import open_executors
from engine.models import build, load
from engine.models.adaptive import AdaptiveInput, AdaptiveSoftmax
from engine.schedule.engine import Engine
from engine.types import DecodeOptions, Limits, Request
from export.graphs.onnx import add_graphs
from export.importers.fairseq.lightconv_lm import SOFTMAX
from tests.support.golden_fixtures import SHARED, fixture, folder, imported
from tests.support.lanes import lane_of
from tests.support.lm import EOS, NAME, PAD, decode, forced
from tests.support.models import CONFIGS, executor, model, sessions, weights

needs_fixture = pytest.mark.skipif(folder(NAME) is None, reason=f"no {SHARED.name}/{NAME}")


@pytest.fixture(scope="module")
def bundle():
    return add_graphs(imported(NAME))


@needs_fixture
@torch.no_grad()
def test_a_full_pass_equals_the_reference_in_every_log_probability(bundle):
    net, arrays = load(bundle.config, bundle.weights()), fixture(NAME).arrays
    features, attention = net.decode(torch.from_numpy(arrays["prev"]), {}, None)
    real = arrays["target"] != PAD
    assert attention is None
    np.testing.assert_allclose(net.log_probs(features).numpy()[real], arrays["lprobs"][real], atol=1e-4)


@needs_fixture
@pytest.mark.parametrize("backend", ["onnx", "onnx-pure", "torch"])
def test_forced_steps_in_flight_score_as_the_reference(bundle, backend):
    (executor,) = open_executors(bundle, Placement(backend=backend, threads=1, lanes=((2, 4),)))
    golden = fixture(NAME).golden
    results = decode(lane_of(executor), [forced(tokens) for tokens in golden["seqs"]])
    for result, tokens, wanted, total in zip(
        results, golden["seqs"], golden["token_logprobs"], golden["sentence_logprob"], strict=True
    ):
        (hypothesis,) = result.hypotheses
        assert [*hypothesis.tokens, EOS] == tokens
        np.testing.assert_allclose(hypothesis.token_scores, wanted, atol=1e-4)
        assert sum(hypothesis.token_scores) == pytest.approx(total, abs=1e-3)


@needs_fixture
def test_a_prefix_is_continued_as_the_reference_does(bundle):
    (executor,) = open_executors(bundle, Placement(threads=1, lanes=((3, 4),)))
    wanted = fixture(NAME).golden["generate_beam3_maxb30"]
    assert len(wanted) >= 5
    asked = [DecodeOptions(beam_size=3, n_best=3, max_length=30, prefix=tuple(w["prefix"])) for w in wanted]
    for result, want in zip(decode(lane_of(executor), asked), wanted, strict=True):
        assert [[*h.tokens, EOS] for h in result.hypotheses] == [h["tokens"] for h in want["hyps"]]
        for ours, theirs in zip(result.hypotheses, want["hyps"], strict=True):
            assert ours.score == pytest.approx(theirs["score"], abs=1e-4)
            np.testing.assert_allclose(ours.token_scores, theirs["pos"], atol=1e-4)


@needs_fixture
def test_the_bundle_of_a_language_model_has_one_dictionary_and_no_encoder(bundle):
    assert (bundle.task, bundle.source, bundle.target) == ("language-model", "und", "und")
    assert bundle.config.encoder is None
    graphs = [name for name in bundle.files() if name.startswith("onnx/")]
    assert {"onnx/step.fp32.onnx", "onnx/step.int8.onnx"} <= set(graphs)
    assert all(name.startswith("onnx/step.") for name in graphs)
    assert [n for n in bundle.files() if n.startswith("dict")] == ["dict.txt"]
    with (folder(NAME) / "dict.txt").open() as lines:
        assert bundle.config.target_vocab == 4 + sum(1 for _ in lines)


# adaptive softmax and input in loops
def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def by_loops(w: dict[str, np.ndarray], x: np.ndarray, edges: list[int], *, tied: bool, backwards: bool):
    """Return log-probabilities of one feature vector in float64, by docs/reference.md 3."""
    table = "decoder.embed_tokens.embeddings"
    if tied:
        head = np.concatenate([w[f"{table}.0.0.weight"] @ x, w[f"{SOFTMAX}.head.class_proj.weight"] @ x])
    else:
        head = w[f"{SOFTMAX}.head.weight"] @ x
    head = log_softmax(head)
    scores = list(head[: edges[0]])
    for tail in range(len(edges) - 1):
        inner = w[f"{table}.{tail + 1}.1.weight"].T if backwards else w[f"{SOFTMAX}.tail.{tail}.0.weight"]
        outer = w[f"{table}.{tail + 1}.0.weight"] if tied else w[f"{SOFTMAX}.tail.{tail}.2.weight"]
        assert len(outer) == edges[tail + 1] - edges[tail]
        scores += list(head[edges[0] + tail] + log_softmax(outer @ (inner @ x)))
    return np.array(scores)


@pytest.mark.parametrize("name", ["lm adaptive softmax", "lm adaptive", "lm tied", "lm tied projections"])
@torch.no_grad()
def test_the_adaptive_softmax_equals_loops_and_is_a_distribution(name):
    config, net = CONFIGS[name], model(name)
    adaptive = config.adaptive
    edges = [*adaptive.softmax.cutoffs, config.target_vocab]
    features = torch.randn(3, 2, config.decoder.feature_dim, generator=torch.Generator().manual_seed(1))
    heat = torch.tensor([0.5, 1.0, 2.0])
    found = net.log_probs(features, heat).numpy()
    np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, atol=1e-5)
    kinds = {"tied": adaptive.tie_weights, "backwards": adaptive.tie_projections}
    for slot in range(3):
        for beam in range(2):
            x = (features[slot, beam] / heat[slot]).numpy().astype(np.float64)
            np.testing.assert_allclose(
                found[slot, beam], by_loops(weights(name), x, edges, **kinds), atol=1e-5
            )


@pytest.mark.parametrize("name", ["lm adaptive input", "lm adaptive", "lm tied"])
@torch.no_grad()
def test_the_adaptive_input_looks_each_token_up_in_its_own_band(name):
    config, w = CONFIGS[name], weights(name)
    edges = [0, *config.adaptive.input.cutoffs, config.target_vocab]
    tokens = torch.arange(config.target_vocab).view(1, -1)
    found = model(name).decoder.embed_tokens(tokens)[0].numpy()
    for token in range(config.target_vocab):
        band = max(i for i, edge in enumerate(edges) if token >= edge)
        table = f"decoder.embed_tokens.embeddings.{band}"
        want = w[f"{table}.1.weight"] @ w[f"{table}.0.weight"][token - edges[band]]
        np.testing.assert_allclose(found[token], want, atol=1e-5)


def test_the_bands_of_a_factor_get_narrower_and_the_tied_weights_are_held_once():
    adaptive = AdaptiveInput(Bands((12, 28)), 47, (32, 32), PAD)
    assert [tuple(adaptive.rows(band).shape) for band in range(3)] == [(12, 32), (16, 8), (19, 2)]
    softmax = AdaptiveSoftmax(Bands((12, 28)), 47, 32, adaptive, tie_projections=True)
    held = {id(p) for p in adaptive.parameters()}
    assert [n for n, p in softmax.named_parameters() if id(p) not in held] == ["head.class_proj.weight"]


def test_random_model_has_a_zero_padding_row_in_the_first_band_only():
    net = build(CONFIGS["lm tied"])
    net.initialise(seed=3)
    tables = [net.decoder.embed_tokens.rows(band) for band in range(3)]
    assert not tables[0][PAD].any()
    assert all(table.abs().sum(1).count_nonzero() == len(table) - (not i) for i, table in enumerate(tables))


@pytest.mark.parametrize("name", ["lm shared", "lm adaptive", "lm tied projections"])
def test_int8_scores_are_close_to_fp32(name):
    from engine.executors.onnx.executor import OnnxExecutor

    rng = np.random.default_rng(0)
    texts = [[*rng.integers(4, 47, n).tolist(), EOS] for n in (0, 1, 5, 17, 30)]
    full, quantised = (
        decode(lane_of(OnnxExecutor(sessions(name, precision), 1, 3)), [forced(t) for t in texts])
        for precision in ("fp32", "int8")
    )
    for a, b in zip(full, quantised, strict=True):
        np.testing.assert_allclose(
            a.hypotheses[0].token_scores, b.hypotheses[0].token_scores, atol=0.3, rtol=0.05
        )


# configurations
@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("lm plain", {"source_vocab": 50}, "one vocabulary"),
        ("lm plain", {"share_embeddings": True}, "need an encoder"),
        ("lm plain", {"encoder": CONFIGS["glu"].encoder}, "lightconv_lm has no encoder"),
        ("glu", {"encoder": None}, "dynamicconv needs an encoder"),
        ("glu", {"adaptive": AdaptiveConfig(Bands((9,)))}, "belong to language models"),
        ("slicenet language model", {"adaptive": AdaptiveConfig(Bands((9,)))}, "neither adaptive softmax"),
        ("lm plain", {"adaptive": AdaptiveConfig()}, "needs bands for softmax or input"),
        ("lm plain", {"adaptive": AdaptiveConfig(Bands(()))}, "at least one"),
        ("lm plain", {"adaptive": AdaptiveConfig(Bands((9, 9)))}, "must be ascending"),
        (
            "lm plain",
            {"adaptive": AdaptiveConfig(input=Bands((47,)))},
            "adaptive input: cutoffs .* must be ascending",
        ),
        ("lm plain", {"adaptive": AdaptiveConfig(Bands((9,), 64.0))}, "gives the last band width 0"),
        ("lm plain", {"adaptive": AdaptiveConfig(Bands((9,)), tie_weights=True)}, "the same bands"),
        ("lm tied", {"adaptive": AdaptiveConfig(Bands((9,)), tie_projections=True)}, "needs tie_weights"),
        ("lm adaptive", {"adaptive": AdaptiveConfig(Bands((9,))), "share_output": True}, "see tie_weights"),
    ],
)
def test_an_impossible_language_model_is_refused_by_name(name, changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        replace(CONFIGS[name], **changes)


@pytest.mark.parametrize(
    ("adaptive", "complaint"),
    [
        (3, "config.adaptive must be of type object"),
        ({"flux": 1}, "adaptive has unknown keys"),
        ({"softmax": {"factor": 4}}, "adaptive.softmax lacks the key 'cutoffs'"),
        ({"softmax": {"cutoffs": [9.5]}}, "cutoffs must be of type int"),
    ],
)
def test_an_adaptive_configuration_of_another_form_is_refused(adaptive, complaint):
    data = json.loads(json.dumps(CONFIGS["lm tied"].to_dict())) | {"adaptive": adaptive}
    with pytest.raises(ConfigError, match=complaint):
        ModelConfig.from_dict(data)


def test_an_ensemble_never_mixes_language_models_with_others():
    with pytest.raises(ConfigError, match="member 1 is a language model, unlike member 0"):
        replace(
            CONFIGS["lm ensemble"], members=(replace(CONFIGS["glu"], source_vocab=47), CONFIGS["lm plain"])
        )


def test_options_that_need_attention_are_refused_without_a_source():
    limits = Limits(5, 40, 39, 47, attention=False)
    DecodeOptions().check(limits)
    for wish in ({"alignment": True}, {"coverage_penalty": 0.5}):
        with pytest.raises(InvalidRequest, match="a source to attend to"):
            DecodeOptions(**wish).check(limits)


def test_an_engine_refuses_a_source_that_its_language_model_would_not_read():
    engine = Engine([executor("torch", "lm plain", 2, 1)])
    options = DecodeOptions(beam_size=2)
    engine.submit([Request([EOS], options, print)])
    with pytest.raises(InvalidRequest, match="end-of-sentence alone: text is its prefix"):
        engine.submit([Request([5, EOS], options, print)])
    engine.stop(drain=False)
