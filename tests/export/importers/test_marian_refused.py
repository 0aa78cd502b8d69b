"""Folders that are no Marian model, or a damaged one: each gives one clear error and no files."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.bundle.bundle import open_bundle
from engine.errors import BundleError, CheckpointError
from export.importers import convert
from export.importers.settings import MarianImport
from tests.export.importers.test_safety import traps
from tests.support.marian_models import make


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a valid folder, which tests copy and damage."""
    return make(tmp_path_factory.mktemp("whole") / "hf", "post-norm swish").path


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "hf")


def refusal(folder, tmp_path, settings=None):
    """Return the error of an import, after which there is no bundle."""
    out = tmp_path / "out"
    with pytest.raises(CheckpointError) as caught:
        convert("marian", folder, out, settings)
    assert not out.exists()
    return str(caught.value)


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "name", ["model.safetensors", "source.spm", "target.spm", "vocab.json", "config.json"]
)
def test_missing_file_is_named(folder, tmp_path, name):
    (folder / name).unlink()
    message = refusal(folder, tmp_path)
    assert name in message
    assert "download" in message or "name the folder" in message


def test_all_missing_files_are_named_at_once(folder, tmp_path):
    for name in ("source.spm", "vocab.json"):
        (folder / name).unlink()
    message = refusal(folder, tmp_path)
    assert "source.spm, vocab.json" in message


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "generation_config.json", "source.spm"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_damaged_file_is_named(folder, tmp_path, name, content):
    (folder / name).write_bytes(content)
    message = refusal(folder, tmp_path)
    assert name in message
    assert "again" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, "type 'bart'"),
        ({"model_type": "m2m_100"}, "type 'm2m_100'"),
        ({"architectures": ["MarianForCausalLM"]}, "MarianForCausalLM"),
        ({"activation_function": "mish"}, "activation_function 'mish'"),
        ({"normalize_before": True}, "normalize_before = True"),
        ({"d_model": 0}, "d_model = 0 is not a valid size"),
        ({"d_model": "32"}, "d_model = '32' is not a valid size"),
        ({"encoder_layers": 10**9}, "encoder_layers = 1000000000 is not a valid size"),
        ({"encoder_attention_heads": 5}, "not a multiple of heads 5"),
        ({"pad_token_id": None}, "pad_token_id = None"),
        ({"eos_token_id": 2}, "eos_token_id is 2"),
        ({"decoder_layers": 3}, "decoder.layers.2"),
        ({"d_model": 36}, "shape"),
        ({"vocab_size": 40}, "special ids|the model only"),
    ],
)
def test_unsupported_options_are_named(folder, tmp_path, changes, message):
    change(folder / "config.json", **changes)
    found = refusal(folder, tmp_path)
    assert any(part in found for part in message.split("|")), found


def test_all_unsupported_options_are_named_at_once(folder, tmp_path):
    change(folder / "config.json", activation_function="mish", d_model=-1, normalize_embedding=True)
    message = refusal(folder, tmp_path)
    assert all(name in message for name in ("activation_function", "d_model", "normalize_embedding"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: w.pop("model.encoder.layers.0.fc1.weight"), "encoder.layers.0.fc1.weight is missing"),
        (lambda w: w.update(extra=torch.zeros(2)), "extra is not part of the model"),
        (lambda w: w.update({"final_logits_bias": torch.zeros(1, 3)}), "decoder.output_bias has shape"),
        (lambda w: w["model.decoder.layers.1.fc2.bias"].fill_(torch.nan), "not finite"),
        (lambda w: w.update({"model.decoder.embed_tokens.weight": torch.ones(3, 3)}), "differs from shared"),
        (lambda w: w.update({"lm_head.weight": w["model.shared.weight"] + 1}), "differs from"),
    ],
)
def test_weights_that_do_not_fit_are_named(folder, tmp_path, spoil, message):
    weights = load_file(folder / "model.safetensors")
    spoil(weights)
    save_file(weights, folder / "model.safetensors")
    assert message in refusal(folder, tmp_path)


@given(share=st.floats(0, 0.999))
def test_truncated_weights_are_refused_at_any_length(whole, tmp_path_factory, share):
    folder = shutil.copytree(whole, tmp_path_factory.mktemp("cut") / "hf")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: int(share * len(data))])
    message = refusal(folder, folder.parent)
    assert "model.safetensors" in message
    assert "download it again" in message


@pytest.mark.parametrize("name", ["mkdir", "system", "eval", "exec", "Popen", "getattr", "loads", "partial"])
def test_hostile_pickle_is_not_run(folder, tmp_path, name):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    marker = tmp_path / "marker"
    torch.save({**weights, "more": traps(marker)[name]}, folder / "pytorch_model.bin")
    message = refusal(folder, tmp_path)
    assert not marker.exists()
    assert "nothing was run" in message


def test_truncated_pickle_is_refused(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(OrderedDict(weights), path)
    path.write_bytes(path.read_bytes()[:-500])
    assert "damaged or incomplete" in refusal(folder, tmp_path)


def test_pickled_state_dictionary_gives_the_same_bundle(folder, tmp_path):
    convert("marian", folder, tmp_path / "a", MarianImport(name="same"))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(OrderedDict(weights), folder / "pytorch_model.bin")
    convert("marian", folder, tmp_path / "b", MarianImport(name="same"))
    first, second = (open_bundle(tmp_path / name).manifest for name in "ab")
    assert first == second


def test_several_languages_need_a_choice(tmp_path):
    folder = make(tmp_path / "hf", "several languages").path
    change(folder / "tokenizer_config.json", target_lang="mul")
    message = refusal(folder, tmp_path)
    assert "--target: deu, fra, nld" in message
    assert convert("marian", folder, tmp_path / "out", MarianImport(target="DEU")).target == "deu"


def test_unnamed_languages_are_refused_with_the_flags_to_give(folder, tmp_path):
    (folder / "tokenizer_config.json").unlink()
    assert "--source and --target" in refusal(folder, tmp_path)
    assert convert("marian", folder, tmp_path / "out", MarianImport(source="en", target="nl")).source == "en"


def test_existing_bundle_is_replaced_only_with_overwrite(folder, tmp_path):
    convert("marian", folder, tmp_path / "out")
    with pytest.raises(BundleError, match="already exists"):
        convert("marian", folder, tmp_path / "out")
    convert("marian", folder, tmp_path / "out", overwrite=True)
