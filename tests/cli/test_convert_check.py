"""`convoy convert ... --check`: compares ten answers of the bundle with the original program."""

from __future__ import annotations

import re

import pytest
from safetensors.torch import load_file, save_file

from cli.main import app
from tests.support import ctranslate2_models, hf_models, marian_models

SAID = re.compile(r"Checked: (\d+) of 10 answers are those of (\S+)")


def converted(*words):
    with pytest.raises(SystemExit) as ended:
        app(["convert", *map(str, words), "--no-placeholders", "--check"])
    assert ended.value.code == 0


def card_of(place, *words):
    converted(*words)
    return (place / "README.md").read_text("utf-8")


FAMILIES = [
    ("bart", "large-cnn", ()),
    ("nllb", "relu", ("--source", "en", "--target", "de")),
    ("flan", "gated", ("--source", "en", "--target", "de")),
    ("t5", "tied relu", ("--source", "en", "--target", "de", "--prompt", "ba: ")),
    ("mbart25", "gelu", ("--source", "de", "--target", "en")),  # its users pass both languages
    ("codet5", "gated", ("--source", "en", "--target", "de")),  # the limit cuts characters of several bytes
]


@pytest.mark.parametrize(("family", "setting", "flags"), FAMILIES)
def test_hugging_face_model_is_compared_with_transformers(tmp_path, family, setting, flags):
    folder = hf_models.make(tmp_path / "hf", family, setting).path
    card = card_of(tmp_path / "out", "hf", folder, tmp_path / "out", *flags)
    found = SAID.search(card)
    assert found is not None, card
    assert found.groups() == ("10", "transformers")


def test_spaces_around_han_characters_are_no_difference(tmp_path):
    folder = hf_models.make(tmp_path / "hf", "bart-chinese", "relu6", seed=5).path
    card = card_of(tmp_path / "out", "hf", folder, tmp_path / "out")
    assert SAID.search(card).groups() == ("10", "transformers")


def test_marian_model_with_target_languages_is_compared(tmp_path):
    folder = marian_models.make(tmp_path / "hf", "several languages").path
    card = card_of(tmp_path / "out", "marian", folder, tmp_path / "out", "--source", "en", "--target", "fra")
    assert SAID.search(card)[1] == "10"


def test_ctranslate2_model_is_compared_on_equal_tokens(tmp_path):
    folder = ctranslate2_models.write(tmp_path / "ct2", ctranslate2_models.Options())
    card = card_of(
        tmp_path / "out", "ctranslate2", folder, tmp_path / "out", "--source", "en", "--target", "de"
    )
    assert SAID.search(card).groups() == ("10", "ctranslate2")


def test_changed_weights_lower_the_agreement_in_the_card(tmp_path, monkeypatch):
    """The original program gets a folder with changed weights, so that the answers differ."""
    from export import peers

    folder = hf_models.make(tmp_path / "hf", "bart", "large-cnn")
    ask = peers.ask_peer

    def after_a_change(*arguments):
        tensors = load_file(folder.path / "model.safetensors")
        tensors["final_logits_bias"][0, folder.model.config.eos_token_id] += 9.0  # answers end at once
        save_file(tensors, folder.path / "model.safetensors", metadata={"format": "pt"})
        return ask(*arguments)

    monkeypatch.setattr(peers, "ask_peer", after_a_change)
    card = card_of(tmp_path / "out", "hf", folder.path, tmp_path / "out")
    assert int(SAID.search(card)[1]) < 10


def test_check_without_the_original_program_prints_the_reason(tmp_path):
    folder = hf_models.make(tmp_path / "hf", "small100", "gelu").path
    card = card_of(tmp_path / "out", "hf", folder, tmp_path / "out", "--source", "en", "--target", "de")
    assert "Not checked: " in card
    assert (tmp_path / "out" / "config.json").is_file()


def test_check_needs_graphs(tmp_path, capsys):
    folder = hf_models.make(tmp_path / "hf", "bart", "large-cnn").path
    with pytest.raises(SystemExit) as ended:
        app(["convert", "hf", str(folder), str(tmp_path / "out"), "--check", "--no-onnx"])
    assert ended.value.code != 0
    assert "leave out --no-onnx" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
