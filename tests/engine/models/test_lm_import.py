"""Import of fairseq's language models: options, weights and refusals."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.backends import Placement
from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.bundle import open_bundle
from engine.bundle.config import ModelConfig
from engine.errors import CheckpointError
from engine.executors import open_executors
from engine.models import build, load
from export.graphs.onnx import add_graphs
from export.importers import convert
from export.importers.fairseq.lightconv_lm import (
    LIGHTCONV_LM_ARCHITECTURES,
    SOFTMAX,
    model_config,
    model_weights,
    options,
)
from tests.support.golden_fixtures import SHARED
from tests.support.lanes import lane_of
from tests.support.lm import EOS, decode, forced


# the importer
@pytest.mark.parametrize("arch", sorted(LIGHTCONV_LM_ARCHITECTURES))
def test_absent_options_take_the_defaults_of_the_reference(arch):
    path = SHARED.parent / "arch_defaults.json"
    if not path.exists():
        pytest.skip(f"no {path.name}")
    values, problems = options({"arch": arch})
    wanted = json.loads(path.read_text("utf-8"))[arch]
    assert not problems
    assert values["max_target_positions"] == wanted["tokens_per_sample"]
    shared = set(values) & set(wanted) - {"max_target_positions"}
    assert len(shared) >= 15
    assert {name: values[name] for name in shared} == {name: wanted[name] for name in shared}


GIVEN = {
    "arch": "lightconv_lm",
    "task": "language_modeling",
    "decoder_embed_dim": 32,
    "decoder_conv_dim": 32,
    "decoder_ffn_embed_dim": 40,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_kernel_size_list": [3],
    "tokens_per_sample": 40,
}


TIED = {
    "adaptive_input": True,
    "adaptive_input_cutoff": "12,28",
    "adaptive_softmax_cutoff": "12,28",
    "adaptive_softmax_factor": 4.0,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
}


def config_of(**changes) -> ModelConfig:
    config, problems = model_config(GIVEN | changes, 47, 47)
    assert config is not None, problems
    return config


def test_options_become_a_configuration():
    plain = config_of()
    assert plain.adaptive is None
    assert plain.decoder.kernel_sizes == (3, 3)
    assert (plain.decoder.normalize_before, plain.decoder.final_norm) == (True, False)
    assert plain.max_target == 40
    assert config_of(max_target_positions=99).max_target == 99
    assert config_of(share_decoder_input_output_embed=True).share_output
    tied = config_of(**TIED, share_decoder_input_output_embed=True)
    assert tied.adaptive == AdaptiveConfig(Bands((12, 28)), Bands((12, 28)), True, True)
    assert not tied.share_output
    loose = config_of(tie_adaptive_proj=True, adaptive_softmax_cutoff=[12, 47], adaptive_softmax_factor=2)
    assert loose.adaptive == AdaptiveConfig(Bands((12,), 2.0))


@pytest.mark.parametrize("text", ["12,28", "[12, 28]", "(12, 28,)", [12, 28], (12, 28)])
def test_cutoffs_are_read_in_every_form_and_never_evaluated(text):
    assert config_of(adaptive_softmax_cutoff=text).adaptive.softmax.cutoffs == (12, 28)


def test_all_that_is_wrong_with_the_options_comes_in_one_answer():
    config, problems = model_config(
        GIVEN
        | {
            "adaptive_softmax_cutoff": "print(1)",
            "adaptive_input": True,
            "adaptive_input_cutoff": None,
            "character_embeddings": True,
            "add_bos_token": True,
            "decoder_kernel_size_list": [3, 3, 3],
        },
        47,
        47,
    )
    assert config is None
    for part in (
        "adaptive_softmax_cutoff = 'print(1)' is not understood",
        "adaptive_input_cutoff = None is not understood",
        "character_embeddings = True is not supported",
        "add_bos_token = True is not supported",
        "decoder_kernel_size_list has 3 widths for 2 layers",
    ):
        assert part in problems


def saved(path: Path, options: dict, *, change=None) -> Path:
    """Write a folder like fairseq: tied weights under both names, and files that are not read."""
    path.mkdir()
    config = config_of(**options)
    net = build(config)
    net.initialise(seed=5)
    state = net.state_dict()  # contains shared tensors under every name
    state |= {"decoder.version": torch.ones(1), "decoder.embed_positions._float_tensor": torch.ones(1)}
    state["decoder.layers.0.conv.conv_bias"] = torch.randn(1, 1, 32)
    if config.adaptive and config.adaptive.softmax:
        state[f"{SOFTMAX}.version"] = torch.ones(1, dtype=torch.int64)
        state["decoder.embed_tokens._float_tensor"] = torch.ones(1)
    if change:
        change(state)
    torch.save({"args": Namespace(**GIVEN, **options), "model": state}, path / "model.pt")
    (path / "dict.txt").write_text("".join(f"w{i} {99 - i}\n" for i in range(43)))
    return path


@pytest.mark.parametrize("chosen", [{}, TIED, TIED | {"tie_adaptive_proj": False}])
@torch.no_grad()
def test_imported_model_equals_the_saved_one(tmp_path, chosen):
    bundle = convert("fairseq", saved(tmp_path / "in", chosen), tmp_path / "out")
    net = build(config_of(**chosen))
    net.initialise(seed=5)
    tokens = torch.randint(4, 47, (2, 9), generator=torch.Generator().manual_seed(0))
    ours = load(bundle.config, bundle.weights())
    torch.testing.assert_close(*(m.log_probs(m.decode(tokens, {}, None)[0]) for m in (ours, net)))
    names = set(bundle.weights())
    assert f"{SOFTMAX}.tail.0.2.weight" not in names
    assert (f"{SOFTMAX}.tail.0.0.weight" in names) == (chosen.get("tie_adaptive_proj") is False)


def differs(name):
    def change(state):
        state[name] = state[name] + 1

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (differs(f"{SOFTMAX}.tail.1.2.weight"), "tail.1.2.weight differs from .*embeddings.2.0.weight"),
        (differs(f"{SOFTMAX}.tail.0.0.weight"), "tail.0.0.weight differs from .*embeddings.1.1.weight"),
        (
            differs(f"{SOFTMAX}.head.word_proj.weight"),
            "word_proj.weight differs from .*embeddings.0.0.weight",
        ),
        (lambda state: state.pop(f"{SOFTMAX}.version"), "version is missing"),
        (lambda state: state.pop(f"{SOFTMAX}.head.class_proj.weight"), "class_proj.weight is missing"),
        (lambda state: state.update(more=torch.ones(1)), "more is not part of the model"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, change, complaint):
    with pytest.raises(CheckpointError, match=complaint):
        convert("fairseq", saved(tmp_path / "in", TIED, change=change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_several_language_models_become_an_ensemble(tmp_path):
    source = saved(tmp_path / "in", {})
    (source / "model.pt").rename(source / "a.pt")
    (saved(tmp_path / "more", TIED) / "model.pt").rename(source / "b.pt")
    from export.importers.settings import FairseqImport

    bundle = add_graphs(
        convert("fairseq", source, tmp_path / "out", FairseqImport(checkpoints=("a.pt", "b.pt")))
    )
    assert not open_bundle(tmp_path / "out").config.reads_source
    tokens = [8, 30, 46, 5, EOS]
    previous = torch.tensor([[EOS, *tokens[:-1]]])
    with torch.no_grad():
        nets = [build(config_of(**chosen)) for chosen in ({}, TIED)]
        for net in nets:
            net.initialise(seed=5)
        each = torch.stack([n.log_probs(n.decode(previous, {}, None)[0]).exp() for n in nets])
    want = each.mean(0).log()[0].gather(1, torch.tensor(tokens)[:, None])[:, 0]
    (executor,) = open_executors(bundle, Placement(threads=1, lanes=((1, 1),)))
    (result,) = decode(lane_of(executor), [forced(tokens)])
    np.testing.assert_allclose(result.hypotheses[0].token_scores, want.numpy(), atol=1e-4)


def test_weights_are_read_from_a_state_dictionary_without_the_copies(tmp_path):
    config = config_of(**TIED)
    state = {name: torch.randn(p.shape).numpy() for name, p in build(config).named_parameters()}
    found, problems = model_weights({**state, f"{SOFTMAX}.version": np.ones(1, np.float32)}, config)
    assert not problems
    assert set(found) == set(state)
