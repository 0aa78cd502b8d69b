"""SliceNet's hyperparameters, presets and import."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.bundle.config import ModelConfig
from engine.bundle.presets import preset
from engine.bundle.stacks import SliceStack
from engine.errors import ConfigError
from engine.models import build
from export.importers.tensorflow import slicenet
from tests.support import models
from tests.support.slicenet import NAMES, converted, fixture


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
        ({"kernel_sizes": (3, 3)}, {}, "at least three"),
        ({"dilations": (1, 1, 0, 1)}, {}, "equally many positive numbers"),
        ({"separability": -4}, {}, "number of groups"),
        ({"attention": "simple"}, {}, "none of transformer, inner_product, none"),
        ({"heads": 5}, {}, "multiple of heads"),
        ({"target_space": 32}, {}, "between 0 and 31"),
        ({"attention": "none", "heads": 1}, {}, "attention 'none' needs"),
        ({}, {"encoder": None, "source_vocab": 47}, "attention 'none' needs"),
        ({}, {"zero_start": True}, "does not support zero_start"),
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


@pytest.mark.parametrize(
    ("name", "stated", "others"), [("slicenet_full_2048", 349, 265), ("slicenet_super_3072", 348, 222)]
)
def test_presets_of_stated_depth_have_the_papers_counts(name: str, stated: int, others: int) -> None:
    """Table 2 does not state the vocabulary: 84 M at depth 2048 and 126 M at 3072 imply 41,015 symbols."""
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
