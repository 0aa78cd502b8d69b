"""LoRA adapters, merged by the importer, against `peft` if it is installed (`make oracles`)."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from export.importers import convert
from export.importers.settings import HuggingFaceImport
from tests.support import marian_models
from tests.support.hf_models import WISH, make

QUERY = "decoder.block.0.layer.0.SelfAttention.q"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make(tmp_path_factory.mktemp("lora") / "base", "t5", "tied relu")


def adapter(place, tensors=None, **settings):
    """Write an adapter of rank 2 for one matrix, in the layout of peft."""
    place.mkdir()
    torch.manual_seed(4)
    usual = {
        f"base_model.model.{QUERY}.lora_A.weight": torch.randn(2, 32),
        f"base_model.model.{QUERY}.lora_B.weight": torch.randn(32, 2),
    }
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q"], "lora_dropout": 0.1}
    (place / "adapter_config.json").write_text(json.dumps(config | settings))
    save_file(usual if tensors is None else tensors, place / "adapter_model.safetensors")
    return place


def with_adapter(place):
    return HuggingFaceImport(source="en", target="de", task="translate", adapter=place)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"SelfAttention.q": 1}}, 0.5),
        ({"alpha_pattern": {"Attention.q": 1}}, 3.0),
    ],
)
def test_adapter_adds_the_scaled_product_of_its_factors(base, tmp_path, settings, scale):
    place = adapter(tmp_path / "lora", **settings)
    ours = convert("hf", base.path, tmp_path / "out", with_adapter(place)).weights()
    parts = load_file(place / "adapter_model.safetensors")
    tensors = load_file(base.path / "model.safetensors")
    change = (
        parts[f"base_model.model.{QUERY}.lora_B.weight"] @ parts[f"base_model.model.{QUERY}.lora_A.weight"]
    )
    expected = (tensors[f"{QUERY}.weight"] + scale * change) * 8**0.5
    torch.testing.assert_close(
        torch.from_numpy(ours["decoder.layers.0.self_attn.q_proj.weight"].copy()), expected, rtol=0, atol=1e-5
    )


@pytest.mark.filterwarnings("ignore::FutureWarning")  # a warning of peft about `transformers`
@pytest.mark.parametrize(
    ("family", "setting", "options"),
    [
        ("t5", "tied relu", {"target_modules": ["q", "v", "wo"], "r": 4}),
        ("bart", "large-cnn", {"target_modules": ["q_proj", "fc1"], "bias": "lora_only", "use_rslora": True}),
        ("nllb", "relu", {"target_modules": "all-linear", "rank_pattern": {"encoder.layers.0.fc1": 2}}),
        ("marian", "relu", {"target_modules": ["k_proj"], "alpha_pattern": {"encoder_attn.k_proj": 5}}),
    ],
)
def test_merged_adapter_computes_the_same_as_peft(tmp_path, family, setting, options):
    peft = pytest.importorskip("peft", reason="the oracle of adapters is peft: make oracles")
    place = tmp_path / "base"
    made = marian_models.make(place, setting) if family == "marian" else make(place, family, setting)
    path, model = made.path, made.model
    tuned = peft.get_peft_model(model, peft.LoraConfig(**({"r": 3, "lora_alpha": 7} | options)))
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in tuned.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn_like(weight))
    tuned.save_pretrained(tmp_path / "lora")
    merged = tuned.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    for file in path.iterdir():
        if file.is_file() and not (tmp_path / "merged" / file.name).exists():
            (tmp_path / "merged" / file.name).write_bytes(file.read_bytes())
    ours = convert("hf", path, tmp_path / "ours", with_adapter(tmp_path / "lora")).weights()
    plain = convert("hf", path, tmp_path / "plain", WISH).weights()
    theirs = convert("hf", tmp_path / "merged", tmp_path / "theirs", WISH).weights()
    assert set(ours) == set(theirs)
    for name, weight in theirs.items():
        torch.testing.assert_close(*(torch.tensor(w) for w in (ours[name], weight)), rtol=0, atol=2e-5)
    assert sum((plain[name] != weight).any() for name, weight in ours.items()) >= 4


REFUSED = [
    ({"peft_type": "IA3"}, None, "peft_type 'IA3' is not LORA"),
    ({"use_dora": True}, None, "use_dora = True is not supported"),
    ({"init_lora_weights": "pissa"}, None, "changes the base's own weights"),
    ({"lora_alpha": "8"}, None, "lora_alpha = '8' is not a number"),
    ({"alpha_pattern": {"(a+)+": 1}}, None, "alpha_pattern"),
    ({"something_new": 3}, None, "something_new = 3 is not supported"),
    ({}, {"base_model.model.nowhere.lora_A.weight": torch.ones(2, 32)}, "nowhere.weight is changed"),
    ({}, {f"base_model.model.{QUERY}.lora_A.weight": torch.ones(2, 32)}, "two factors of one rank"),
    (
        {},
        {
            f"base_model.model.{QUERY}.lora_A.weight": torch.ones(2, 9),
            f"base_model.model.{QUERY}.lora_B.weight": torch.ones(32, 2),
        },
        r"the shape \(32, 9\), the base \(32, 32\)",
    ),
    ({}, {f"base_model.model.{QUERY}.lora_magnitude_vector": torch.ones(32)}, "is not understood"),
]


@pytest.mark.parametrize(("settings", "tensors", "message"), REFUSED)
def test_unsupported_adapter_is_refused_in_one_line(base, tmp_path, settings, tensors, message):
    place = adapter(tmp_path / "lora", tensors, **settings)
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", base.path, tmp_path / "out", with_adapter(place))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_folder_without_an_adapter_is_refused_in_one_line(base, tmp_path):
    with pytest.raises(CheckpointError, match="adapter_config.json"):
        convert("hf", base.path, tmp_path / "out", with_adapter(tmp_path))
