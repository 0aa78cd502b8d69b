"""Compare presets with parameter counts of the papers and with fairseq's architectures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bundle.config import ModelConfig
from engine.bundle.presets import ABLATIONS, PRESETS, preset
from engine.errors import ConfigError
from engine.models import build, weight_shapes
from export.importers.fairseq import fconv
from export.importers.fairseq.fconv import FCONV
from export.importers.fairseq.lightconv import LIGHTCONV
from export.importers.fairseq.lightconv_lm import LIGHTCONV_LM
from export.importers.fairseq.transformer import TRANSFORMER

DEFAULTS = Path(__file__).resolve().parents[4] / "shared" / "arch_defaults.json"
MILLION = 1_000_000
JOINT = 32_768  # "Pay Less Attention": 32K joint tokens
WORDS = 793_471  # Billion Word benchmark
UNSHARED = {"share_embeddings": False, "share_output": False}
FAMILIES = (LIGHTCONV, TRANSFORMER, FCONV, LIGHTCONV_LM)
# Millions; Tables 1, 3, 4 and 7. One table of 32,768 x 1,024 serves source, target and output in all of them
# except the language model, whose input and softmax share one. One more table would not fit any count.
COUNTS = {
    "dynamicconv_wmt_en_de_big": 213,
    "transformer_wmt_en_de_big": 210,
    "transformer_big_windowed": 210,
    "cnn_k3": 208,
    "cnn_depthwise_k3": 195,
    "cnn_depthwise": 195,
    "cnn_depthwise_shared": 195,
    "lightconv_big_no_glu": 195,
    "dynamicconv_big_no_glu": 200,
    "dynamicconv_big_no_softmax": 200,
    "aan_decoder": 260,
    "aan_both": 310,
    "dynamicconv_1_decoder_layer": 124,
    "dynamicconv_3_decoder_layers": 153,
    "dynamicconv_lm_billion_word": 339,
}


def parameters(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(math.prod(shape) for shape in weight_shapes(build(config)).values())


@pytest.mark.parametrize("name", COUNTS)
def test_preset_has_the_parameter_count_of_its_paper(name: str) -> None:
    vocab = WORDS if name.endswith("billion_word") else JOINT
    count = parameters(preset(name, vocab, vocab))
    assert abs(count - COUNTS[name] * MILLION) < MILLION


def test_every_row_of_the_papers_tables_is_counted() -> None:
    assert set(ABLATIONS) <= set(COUNTS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built_with_vocabularies_of_its_kind(name: str) -> None:
    apart = PRESETS[name]["encoder"] is not None and not PRESETS[name].get("share_embeddings")
    vocab = WORDS if PRESETS[name].get("adaptive") else 500
    config = preset(name, vocab - 7 * apart, vocab)
    with torch.device("meta"):
        model = build(config)
    assert model.feature_dim == config.decoder.feature_dim


@pytest.mark.parametrize(
    ("family", "arch"), [(family, arch) for family in FAMILIES for arch in family.table.architectures]
)
def test_a_preset_is_the_importers_model_of_that_name(family: Any, arch: str) -> None:
    imported, problems = family.model_config({"arch": arch}, 90, 90)
    assert problems == []
    name = arch.replace("lightconv", "dynamicconv") if family is LIGHTCONV else arch
    assert preset(name, 90, 90, UNSHARED) == imported


@pytest.mark.skipif(not DEFAULTS.is_file(), reason="no ../shared/arch_defaults.json")
def test_importer_defaults_equal_recorded_fairseq_defaults() -> None:
    measured = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    seen = set()
    for family in FAMILIES:
        for arch in set(family.table.architectures) & set(measured):
            found = {**family.table.base, **family.table.architectures[arch]}
            for option, value in found.items():
                # both sides write layers as Python expressions
                same = measured[arch].get(option, value)
                if option.endswith("_layers") and isinstance(value, str):
                    value, same = (fconv._layers(fconv._parse_expression(text)) for text in (value, same))
                assert value == (1024 if same is None else same), (arch, option)
            seen.add(arch)
    assert seen == set(measured)


def test_changes_reach_into_the_stacks_and_leave_the_rest() -> None:
    changes = {"max_target": 256, "decoder": {"kernel_sizes": [3, 5], "glu": False}}
    config = preset("lightconv_iwslt_de_en", 40, 50, changes)
    plain = preset("lightconv_iwslt_de_en", 40, 50)
    assert (config.max_target, config.decoder.kernel_sizes, config.decoder.glu) == (256, (3, 5), False)
    assert config.encoder == plain.encoder
    assert config.decoder.ffn_dim == 1024
    assert plain.decoder.kernel_sizes == (3, 7, 15, 31, 31, 31)


@pytest.mark.parametrize(
    ("name", "vocabularies", "changes", "complaint"),
    [
        ("lightconv_wmt_xx", (40, 40), {}, "lightconv_wmt_xx.*known are .*lightconv_wmt_en_de_big"),
        ("lightconv_wmt_en_de", (40, 41), {}, "share_embeddings needs equal vocabularies"),
        ("lightconv", (40, 40), {"decoder": {"kernels": [3]}}, r"unknown keys \['kernels'\]"),
        ("lightconv", (40, 40), {"decoder": {"heads": 7}}, "not a multiple of heads 7"),
    ],
)
def test_an_unknown_name_or_an_impossible_change_is_refused_by_name(
    name: str, vocabularies: tuple[int, int], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        preset(name, *vocabularies, changes)
