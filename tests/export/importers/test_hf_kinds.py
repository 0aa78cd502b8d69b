"""Model types, classes and tokenizers of Hugging Face's folders: read like `transformers`, or refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bundle.bundle import Bundle
from engine.errors import CheckpointError
from engine.models import load
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.huggingface.kinds import REFUSED
from export.importers.settings import CTranslate2Import
from tests.support.hf_models import WISH, imported, make, transformers


def copied(family: str, setting: str, place: Path, **changes: Any) -> Path:
    folder = shutil.copytree(imported(family, setting)[0].path, place / "hf")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def agrees(folder: Path, bundle: Bundle) -> None:
    """Assert that a bundle has the logits of the model that `transformers` loads from a folder."""
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ours = load(bundle.config, bundle.weights())
    source, previous = torch.randint(4, 40, (2, 2, 9), generator=torch.Generator().manual_seed(1))
    previous[:, 0] = bundle.config.first_token
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=previous, use_cache=False).logits
        memory = ours.encode(source, torch.arange(9), torch.ones(2, 9))
        logits = ours.project(ours.decode(previous, memory, torch.zeros(2, 9))[0])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


BASES = [("bart", "large-cnn", "model"), ("mbart50", "gelu", "model"), ("t5", "tied relu", None)]


@pytest.mark.parametrize(("family", "setting", "base"), BASES)
def test_model_without_a_head_uses_its_table_as_output(
    tmp_path: Path, family: str, setting: str, base: str | None
) -> None:
    """facebook/bart-base and bart-large are `BartModel`."""
    folder = copied(family, setting, tmp_path)
    model = imported(family, setting)[0].model
    inner = model.model if base else transformers.T5Model(model.config)
    if base is None:
        inner.load_state_dict(model.state_dict(), strict=False)
    inner.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["architectures"][0].endswith("Model")
    agrees(folder, convert("hf", folder, tmp_path / "out", WISH))


CLASSES = [
    ("mt5", "gated", "T5ForConditionalGeneration"),
    ("flan", "gated", "MT5ForConditionalGeneration"),
    ("t5", "tied relu", "MT5ForConditionalGeneration"),
    ("barthez", "gelu", "BartForConditionalGeneration"),
]


@pytest.mark.parametrize(("family", "setting", "named"), CLASSES)
def test_model_type_counts_and_not_a_class_with_the_same_weights(
    tmp_path: Path, family: str, setting: str, named: str
) -> None:
    folder = copied(family, setting, tmp_path, architectures=[named])
    agrees(folder, convert("hf", folder, tmp_path / "out", WISH))


@pytest.mark.parametrize(("family", "setting", "kind"), [("mt5", "gated", "t5"), ("flan", "gated", "mt5")])
def test_t5_saved_under_the_other_model_type_is_computed_by_it(
    tmp_path: Path, family: str, setting: str, kind: str
) -> None:
    folder = copied(family, setting, tmp_path, model_type=kind)
    agrees(folder, convert("hf", folder, tmp_path / "out", WISH))


@pytest.mark.parametrize("prefix", ["module.", "module._orig_mod."])
def test_prefixes_of_distributed_and_compiled_models_are_taken_off(tmp_path: Path, prefix: str) -> None:
    folder, bundle = copied("bart", "large-cnn", tmp_path), imported("bart", "large-cnn")[1]
    tensors = load_file(folder / "model.safetensors")
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    weights = convert("hf", folder, tmp_path / "out", WISH).weights()
    assert all((weights[name] == weight).all() for name, weight in bundle.weights().items())


def refused(folder: Path, message: str, place: Path) -> str:
    """Assert that the import fails with one line that matches; return the line."""
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, place / "refused", WISH)
    assert "\n" not in str(error.value)
    assert not (place / "refused").exists()
    return str(error.value)


@pytest.mark.parametrize("kind", REFUSED)
def test_known_model_type_is_refused_with_its_reason_and_the_supported_types(
    tmp_path: Path, kind: str
) -> None:
    folder = copied("bart", "large-cnn", tmp_path, model_type=kind)
    line = refused(folder, "because", tmp_path)
    assert REFUSED[kind] in line
    assert "supported are marian, bart, blenderbot, fsmt, m2m_100, mbart, mt5, pegasus, t5, umt5" in line


TOKENIZERS = [
    ("bart", "large-cnn", "PhobertTokenizer", "has the tokenizer PhobertTokenizer; .* with BartTokenizer"),
    ("mbart50", "gelu", "AlbertTokenizer", "IndicBART is not: take NLLB-200, which has its languages"),
    ("mbart50", "gelu", "PhobertTokenizer", "has the tokenizer PhobertTokenizer; .* MBart50Tokenizer"),
]


@pytest.mark.parametrize(("family", "setting", "kind", "message"), TOKENIZERS)
def test_tokenizer_of_another_kind_is_refused_by_its_name(
    tmp_path: Path, family: str, setting: str, kind: str, message: str
) -> None:
    folder = copied(family, setting, tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    refused(folder, message, tmp_path)


@pytest.mark.parametrize(
    ("family", "setting", "files"),
    [("t5", "tied relu", ("vocab.txt",)), ("flan", "gated", ("vocab.json", "merges.txt"))],
)
def test_whole_folder_with_another_tokenizer_is_not_called_incomplete(
    tmp_path: Path, family: str, setting: str, files: tuple[str, ...]
) -> None:
    folder = copied(family, setting, tmp_path)
    for name in ("spiece.model", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    for name in files:
        (folder / name).write_text("{}")
    line = refused(folder, r"lacks spiece.model or tokenizer.json; its tokenizer, of another kind", tmp_path)
    assert ", ".join(files) in line
    assert "download" not in line
    assert "is read only if tokenizer_config.json names its class; copy that file" in line


def test_folders_of_hugging_face_and_ctranslate2_are_refused_by_the_right_command(tmp_path: Path) -> None:
    folder = copied("bart", "large-cnn", tmp_path, model_type=None)
    refused(folder, "names no model_type; name it there", tmp_path)
    (folder / "model.bin").touch()
    refused(folder, "the folder is CTranslate2's: use convoy convert ctranslate2", tmp_path)
    (folder / "model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"model.bin: is missing; .* convoy convert hf$"):
        convert("ctranslate2", folder, tmp_path / "refused", CTranslate2Import(source="en", target="de"))


@pytest.mark.parametrize("listed", [True, False])
def test_language_added_to_m2m_100_leaves_its_hundred(tmp_path: Path, listed: bool) -> None:
    folder = make(tmp_path / "hf", "m2m100", "relu")
    names = "extra_special_tokens" if int(transformers.__version__[0]) >= 5 else "additional_special_tokens"
    folder.tokenizer.add_special_tokens({names: ["__tyv__"]})
    folder.tokenizer.save_pretrained(folder.path)
    if not listed:
        for name in ("added_tokens.json", "special_tokens_map.json"):
            (folder.path / name).unlink(missing_ok=True)
    languages = open_tokenizer(convert("hf", folder.path, tmp_path / "out", WISH)).languages
    assert len(languages) == 101
    for code in ("af", "zu", "en", "tyv"):
        assert languages[code] == folder.tokenizer.convert_tokens_to_ids(f"__{code}__")


def test_first_symbol_of_codet5_is_no_text_of_an_answer() -> None:
    folder, bundle = imported("codet5", "gated")
    ours = open_tokenizer(bundle)
    ids = [1, *ours.encode_target("ba de")]  # as its published models answer
    assert ours.decode(ids) == folder.tokenizer.decode(ids, skip_special_tokens=True).strip() == "ba de"


def test_prompt_of_codet5_is_written_before_a_source(tmp_path: Path) -> None:
    folder = copied("codet5", "gated", tmp_path)
    bundle = convert("hf", folder, tmp_path / "out", replace(WISH, prompt="ba: "))
    theirs = imported("codet5", "gated")[0].tokenizer("ba: de").input_ids
    assert [*open_tokenizer(bundle).encode("de"), bundle.config.eos] == theirs
