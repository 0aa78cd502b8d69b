"""Compare shallow fusion with an independent search over the scores of both models."""

from __future__ import annotations

import collections
import shutil
from argparse import Namespace
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.main import app
from engine.backends import Placement
from engine.bundle.bundle import open_bundle
from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError, ConfigError, InvalidRequest
from engine.executors import open_executors
from engine.executors.torch.executor import TorchExecutor
from engine.models import build, load
from engine.models.fusion import Fusion
from engine.schedule.lane import Lane
from engine.types import DecodeOptions, Hypothesis
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.fairseq.lightconv_lm import LIGHTCONV_LM_ARCHITECTURES, model_config
from export.importers.settings import FairseqImport
from tests.support.golden_fixtures import SELECTION
from tests.support.lanes import lane_of, outcomes_of
from tests.support.models import BACKENDS, CONFIGS, KERNELS, executor, model
from tests.support.oracle import oracle

EOS, BEAMS = 2, 3
WEIGHTS = (0.0, 0.3, 1.0, 2.5)


def decode(lane: Lane, jobs: list[tuple[list[int], DecodeOptions]], each: int = 2) -> list[list[Hypothesis]]:
    """Decode requests that join a few at a time, while others are at different steps."""
    return [result.hypotheses for result in outcomes_of(lane, jobs, lambda: each)]


def jobs(count: int = 8) -> list[tuple[list[int], DecodeOptions]]:
    """Return requests for beam and greedy search with all weights, with and without a prefix."""
    rng = np.random.default_rng(4)
    return [
        (
            [*rng.integers(4, 47, rng.integers(1, 30)).tolist(), EOS],
            DecodeOptions(
                beam_size=1 + i % BEAMS,
                n_best=1 + i % BEAMS,
                max_length_b=12,
                lm_weight=WEIGHTS[i % len(WEIGHTS)],
                unk_penalty=0.5 * (i % 2),
                prefix=tuple(rng.integers(4, 47, i % 3).tolist()),
            ),
        )
        for i in range(count)
    ]


@torch.no_grad()
def searched(net: Fusion, source: list[int], options: DecodeOptions) -> list:
    """Return the result of a search that scores every prefix by full passes of both models."""
    tokens = torch.tensor([source])
    memory = net.translation.encode(tokens, torch.arange(len(source)), torch.ones(1, len(source)))

    @cache
    def scores(prefix: tuple[int, ...]) -> list[float]:
        target, nothing = torch.tensor([[EOS, *prefix]]), torch.zeros(1, len(source))
        parts = [
            part.log_probs(part.decode(target, held, nothing)[0][:, -1])[0].double()
            for part, held in ((net.translation, memory), (net.language_model, {}))
        ]
        return (parts[0] + options.lm_weight * parts[1]).tolist()

    return oracle(scores, options, len(source), net.config.max_target - 1)


@cache
def wanted() -> list[list]:
    return [searched(model("fused"), *job) for job in jobs()]


@pytest.mark.parametrize("backend", [*BACKENDS, "onnx-bound"])
def test_searches_of_different_lm_weights_equal_searches_over_weighted_sums(backend):
    found = decode(lane_of(executor(backend, "fused", BEAMS, 4)), jobs())
    for hypotheses, best in zip(found, wanted(), strict=True):
        assert [h.tokens for h in hypotheses] == [w.tokens for w in best]
        np.testing.assert_allclose([h.score for h in hypotheses], [w.score for w in best], atol=1e-4)
        for ours, theirs in zip(hypotheses, best, strict=True):
            np.testing.assert_allclose(ours.token_scores, theirs.token_scores, atol=1e-4)


@torch.no_grad()
def test_lm_weight_changes_answers_and_both_models_may_be_ensembles():
    config = replace(CONFIGS["ensemble"], language_model=CONFIGS["lm ensemble"])
    net = build(config)
    net.initialise(seed=3)
    source = [5, 9, 14, 31, EOS]
    options = [DecodeOptions(beam_size=BEAMS, max_length_b=6, lm_weight=weight) for weight in WEIGHTS]
    found = decode(lane_of(TorchExecutor(net, BEAMS, 4)), [(source, each) for each in options])
    assert len({tuple(hypotheses[0].tokens) for hypotheses in found}) > 1
    for each, hypotheses in zip(options, found, strict=True):
        assert [h.tokens for h in hypotheses] == [best.tokens for best in searched(net, source, each)]


@pytest.mark.parametrize("kernels", KERNELS)
def test_batched_answers_equal_single_answers_bit_for_bit(kernels):
    lane, asked = lane_of(executor(f"onnx-{kernels}", "fused", BEAMS, 4)), jobs(12)
    for job, among in zip(asked, decode(lane, asked), strict=True):
        (alone,) = decode(lane, [job])
        assert [(h.tokens, h.score, h.token_scores) for h in alone] == [
            (h.tokens, h.score, h.token_scores) for h in among
        ]


@torch.no_grad()
def test_the_temperature_is_the_translation_model_s_alone():
    net, features = model("fused"), torch.randn(2, 1, model("fused").feature_dim)
    own, beside = features.split([net.translation.feature_dim, net.language_model.feature_dim], -1)
    heat, weight = torch.tensor([0.7, 2.0]), torch.tensor([0.5, 0.0])
    want = net.translation.log_probs(own, heat) + weight[:, None, None] * net.language_model.log_probs(beside)
    torch.testing.assert_close(net.log_probs(features, heat, weight), want)


@pytest.mark.parametrize(
    ("beside", "complaint"),
    [
        ("glu", "language_model must have no source"),
        ("lm shorter", "another target_vocab"),
    ],
)
def test_a_configuration_that_does_not_go_together_is_refused(beside, complaint):
    given = CONFIGS["fused"].to_dict()
    if beside == "glu":
        given["language_model"] = CONFIGS["glu"].to_dict()
    else:
        given["language_model"] |= {"source_vocab": 46, "target_vocab": 46}
        given["language_model"]["adaptive"] = None
    with pytest.raises(ConfigError, match=complaint):
        ModelConfig.from_dict(given)


def test_an_option_without_a_language_model_names_the_remedy():
    limits = CONFIGS["glu"].limits(3, shortlisted=False)
    with pytest.raises(InvalidRequest, match="lm_weight needs a language model .* --lm"):
        DecodeOptions(lm_weight=0.5).check(limits)
    for weight in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest, match="between 0 and 100"):
            DecodeOptions(lm_weight=weight).check(CONFIGS["fused"].limits(3, shortlisted=False))


# import


FOLDER = SELECTION / "dyn_glu"


@pytest.fixture(scope="module")
def beside(tmp_path_factory) -> Path:
    """Return the bundle of a random language model with the fixture's target dictionary."""
    folder = tmp_path_factory.mktemp("lm") / "in"
    folder.mkdir()
    shutil.copyfile(FOLDER / "dict.tgt.txt", folder / "dict.txt")
    given = {
        "arch": next(iter(LIGHTCONV_LM_ARCHITECTURES)),
        "task": "language_modeling",
        "tokens_per_sample": 30,
    }
    given |= {"decoder_embed_dim": 32, "decoder_input_dim": 32, "decoder_output_dim": 32, "decoder_layers": 2}
    given |= {"decoder_conv_dim": 32, "decoder_ffn_embed_dim": 40, "decoder_attention_heads": 4}
    given |= {"decoder_kernel_size_list": [3, 5], "decoder_conv_type": "dynamic"}
    size = open_bundle(convert("fairseq", FOLDER, folder.parent / "model").path).config.target_vocab
    config, problems = model_config(given, size, size)
    assert config is not None, problems
    net = build(config)
    net.initialise(seed=3)
    state = collections.OrderedDict(net.state_dict())
    torch.save({"args": Namespace(**given), "model": state}, folder / "model.pt")
    return convert("fairseq", folder, folder.parent / "lm").path


def test_answers_without_lm_weight_equal_the_translation_model(tmp_path, beside):
    command = ["convert", "fairseq", str(FOLDER), str(tmp_path / "fused"), "--lm", str(beside)]
    with pytest.raises(SystemExit) as ended:
        app([*command, "--lm-weight", "0.25"])
    assert not ended.value.code
    bundle = open_bundle(tmp_path / "fused")
    assert bundle.options.lm_weight == 0.25
    plain = add_graphs(convert("fairseq", FOLDER, tmp_path / "plain"))
    assert isinstance(load(bundle.config, bundle.weights()), Fusion)
    # the language model limits the length of targets
    limits = bundle.config.limits(3, shortlisted=False)
    assert limits.target == min(plain.config.max_target, open_bundle(beside).config.max_target) - 1
    asked = [
        (source, DecodeOptions(beam_size=3, n_best=3, max_length_b=20))
        for source in ([5, 9, 30, 7, 2], [8, 8, 21, 4, 17, 6, 2])
    ]
    placement = Placement(threads=1, lanes=((3, 2),))
    lanes = [lane_of(open_executors(each, placement)[0]) for each in (bundle, plain)]
    fused, alone = ([h for hypotheses in decode(lane, asked) for h in hypotheses] for lane in lanes)
    assert [h.tokens for h in fused] == [h.tokens for h in alone]
    np.testing.assert_allclose([h.score for h in fused], [h.score for h in alone], atol=1e-6)


def test_unsuitable_language_model_is_refused_with_the_remedy(tmp_path, beside):
    def refused(path: Path) -> str:
        with pytest.raises(CheckpointError) as caught:
            convert("fairseq", FOLDER, tmp_path / "out", FairseqImport(language_model=path))
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    assert "is not a bundle; convert it first: convoy convert fairseq" in refused(FOLDER)
    assert "is not a language model" in refused(convert("fairseq", FOLDER, tmp_path / "model").path)
    other = tmp_path / "other"
    shutil.copytree(SELECTION / "light_glu", other)
    with pytest.raises(CheckpointError, match=r"its dictionary differs .*--srcdict"):
        convert("fairseq", other, tmp_path / "out", FairseqImport(language_model=beside))
