"""Import of fairseq's ConvS2S: options, weights and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import ConvStack
from engine.errors import ConfigError
from export.importers.fairseq import fconv
from tests.support.convs2s import GIVEN, SHAPES, VOCAB, Plain, arrays, imported, state_of

SHARED = Path(__file__).resolve().parents[4] / "shared"


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
        ({"decoder_attention": "False"}, "attention must list at least one layer"),
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
    assert remedy in "; ".join(fconv.model_weights(arrays(state), config)[1])


def test_a_shared_output_that_differs_from_the_embedding_is_refused() -> None:
    given = SHAPES["shared output"]
    state = state_of(given)
    state["decoder.fc3.weight"][5] += 1.0
    config, _ = fconv.model_config(given, VOCAB, VOCAB)
    assert config is not None
    assert "fc3.weight differs" in "; ".join(fconv.model_weights(arrays(state), config)[1])


def test_the_folded_weights_of_a_checkpoint_in_fp16_are_kept_in_full() -> None:
    """g v / |v| of fp16 numbers is not an fp16 number; rounding it would change answers."""
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
        ({"decoder": ConvStack(8, (8,), (3,), (1,), attention=(1,))}, "attention must list"),
        ({"decoder": ConvStack(8, (8, 8), (3, 3), (1, 1), attention=(1, 0))}, "ascending"),
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
