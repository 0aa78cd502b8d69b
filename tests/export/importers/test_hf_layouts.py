"""Layouts and settings of published Hugging Face folders, and of folders saved by `transformers` 5."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from safetensors.torch import load_file, save_file

from engine.bundle.bundle import open_bundle
from engine.errors import CheckpointError
from engine.text.tokenizers.tokenizer import open_tokenizer
from export.importers import convert
from export.importers.huggingface.files import open_folder
from export.importers.huggingface.generation import generation
from export.importers.huggingface.tokenizer_json import sentencepiece_model
from tests.support.hf_models import SPOKEN, WISH, imported, transformers
from tests.support.marian_models import sentences


def copied(family: str, setting: str, place: Path) -> Path:
    return shutil.copytree(imported(family, setting)[0].path, place / "hf")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def same(ours, theirs) -> None:
    """Assert that two bundles have the same weights."""
    ours, theirs = ours.weights(), theirs.weights()
    assert set(ours) == set(theirs)
    assert all((ours[name] == theirs[name]).all() for name in theirs)


def test_published_madlad_has_a_decoder_table_and_no_shared_table(tmp_path) -> None:
    folder, bundle = copied("madlad", "gated", tmp_path), imported("madlad", "gated")[1]
    tensors = load_file(folder / "model.safetensors")
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    tensors.pop("encoder.embed_tokens.weight", None)
    save_file(tensors, folder / "model.safetensors")
    same(convert("hf", folder, tmp_path / "out", WISH), bundle)


def test_tied_t5_may_store_all_four_copies_of_its_table(tmp_path) -> None:
    folder, bundle = copied("t5", "tied relu", tmp_path), imported("t5", "tied relu")[1]
    tensors = load_file(folder / "model.safetensors")
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    torch.save(
        tensors | {name: tensors["shared.weight"].clone() for name in names}, folder / "pytorch_model.bin"
    )
    (folder / "model.safetensors").unlink()
    same(convert("hf", folder, tmp_path / "out", WISH), bundle)


def test_copies_that_differ_are_refused_by_name(tmp_path) -> None:
    folder = copied("t5", "tied relu", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["shared.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="output_projection.weight differs"):
        convert("hf", folder, tmp_path / "out", WISH)


@pytest.mark.parametrize(("family", "setting"), [("flan", "gated"), ("t5", "tied relu")])
def test_weights_decide_whether_a_t5_of_transformers_5_is_tied(tmp_path, family, setting) -> None:
    folder, bundle = copied(family, setting, tmp_path), imported(family, setting)[1]
    change(folder / "config.json", tie_word_embeddings=True, scale_decoder_outputs=family == "t5")
    same(convert("hf", folder, tmp_path / "out", WISH), bundle)


def test_mbart_50_without_a_tokenizer_class_is_refused(tmp_path) -> None:
    folder = copied("mbart50", "gelu", tmp_path)
    said = json.loads((folder / "tokenizer_config.json").read_text())
    del said["tokenizer_class"]
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    assert convert("hf", folder, tmp_path / "by-config", WISH).config.eos == 2
    config = json.loads((folder / "config.json").read_text())
    del config["tokenizer_class"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="names no tokenizer, and mBART's default one lacks af_ZA"):
        convert("hf", folder, tmp_path / "out", WISH)


@pytest.mark.parametrize("kind", ["fp16's own", "another"])
def test_stored_positions_of_pegasus_are_used_if_they_differ(tmp_path, kind) -> None:
    folder, bundle = copied("pegasus", "relu", tmp_path), imported("pegasus", "relu")[1]
    assert "encoder.embed_positions.weight" not in bundle.weights()
    tensors = load_file(folder / "model.safetensors")
    name = "model.encoder.embed_positions.weight"
    table = tensors[name] if name in tensors else imported("pegasus", "relu")[0].model.state_dict()[name]
    stored = table.half().float() if kind == "fp16's own" else table.flip(0).contiguous()
    save_file(tensors | {name: stored}, folder / "model.safetensors")
    weights = convert("hf", folder, tmp_path / "out", WISH).weights()
    np.testing.assert_array_equal(weights["encoder.embed_positions.weight"], stored.numpy())


def test_scaled_weights_are_not_rounded_to_fp16(tmp_path) -> None:
    folder = copied("mt5", "gated", tmp_path)
    change(folder / "config.json", d_kv=8)
    tensors = {name: w.half() for name, w in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    weights = convert("hf", folder, tmp_path / "out", WISH).weights()
    query = tensors["decoder.block.0.layer.0.SelfAttention.q.weight"].float() * 8**0.5
    name = "decoder.layers.0.self_attn.q_proj.weight"
    np.testing.assert_allclose(weights[name], query.numpy(), rtol=0, atol=1e-6)


REFUSED = [
    ("t5", "tied relu", {"forced_bos_token_id": 5}, "forced_bos_token_id"),
    ("pegasus", "relu", {"forced_bos_token_id": 5}, "forced_bos_token_id"),
    ("bart", "large-cnn", {"forced_bos_token_id": 99999}, "forced_bos_token_id = 99999"),
    ("bart", "large-cnn", {"num_beams": "4"}, "num_beams = '4' is not a number"),
    ("bart", "large-cnn", {"num_beams": 0}, "beam_size"),
    ("bart", "large-cnn", {"num_beams": 10000}, "beam_size"),
    ("bart", "large-cnn", {"length_penalty": float("inf")}, "length_penalty"),
    ("t5", "tied relu", {"eos_token_id": [1, 2]}, "only one end-of-sentence token"),
    ("nllb", "relu", {"sequence_bias": [[[5], -1.0]]}, "sequence_bias"),
]


@pytest.mark.parametrize(("family", "setting", "rules", "message"), REFUSED)
def test_unusable_settings_are_refused_and_nothing_is_written(
    tmp_path, family, setting, rules, message
) -> None:
    folder = copied(family, setting, tmp_path)
    change(folder / "generation_config.json", **rules)
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, tmp_path / "out", WISH)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_pegasus_with_another_offset_is_read_or_refused(tmp_path) -> None:
    folder = copied("pegasus", "relu", tmp_path)
    change(folder / "tokenizer_config.json", offset="many")
    with pytest.raises(CheckpointError, match="offset = 'many'"):
        convert("hf", folder, tmp_path / "out", WISH)


def test_card_names_every_setting_without_counterpart(tmp_path) -> None:
    folder = copied("t5", "tied relu", tmp_path)
    rules = {"min_new_tokens": 3, "num_return_sequences": 2, "repetition_penalty": 1.2, "brand_new": 7}
    change(folder / "generation_config.json", **rules, use_cache=True, temperature=0.3)
    bundle = convert("hf", folder, tmp_path / "out", WISH)
    card = (bundle.path / "README.md").read_text()
    for named in ("num_return_sequences = 2", "repetition_penalty = 1.2", "brand_new = 7"):
        assert named in card
    assert "temperature" not in card, "nothing is drawn"
    assert bundle.options.min_length == 3
    assert open_bundle(bundle.path).options.beam_size == 1


WORDS = [
    ("num_decoder_layers", "two", "num_decoder_layers = 'two' is not a valid size"),
    ("layer_norm_epsilon", "1e-6", "layer_norm_epsilon = '1e-6' is not a number between 0 and 1"),
]


@pytest.mark.parametrize(("name", "value", "message"), WORDS)
def test_sizes_given_as_text_are_refused_in_our_words(tmp_path, name, value, message) -> None:
    folder = copied("t5", "tied relu", tmp_path)
    change(folder / "config.json", **{name: value})
    with pytest.raises(CheckpointError, match=message):
        convert("hf", folder, tmp_path / "out", WISH)


LINES = [
    "ba ba!",
    "Gr\u00f6\u00dfe & Ma\u00df: 3,5 \u20ac",
    "  two   spaces ",
    "\u65e5\u672c\u8a9e text",
    "bade kolo  x",
]
FAST = {
    "bart": ("large-cnn", "BartTokenizerFast"),
    "mbart50": ("gelu", "MBart50TokenizerFast"),
    "pegasus": ("relu", "PegasusTokenizerFast"),
    "nllb": ("relu", "NllbTokenizerFast"),
    "t5": ("tied relu", "T5TokenizerFast"),
    "madlad": ("gated", "T5TokenizerFast"),
    "barthez": ("gelu", "BarthezTokenizerFast"),
}


@pytest.mark.parametrize("family", FAST)
def test_tokenizer_json_alone_gives_the_ids_of_its_tokenizer(tmp_path, family) -> None:
    setting, name = FAST[family]
    folder = copied(family, setting, tmp_path)
    fast = getattr(transformers, name).from_pretrained(folder)
    if family in SPOKEN:
        fast.src_lang, fast.tgt_lang = SPOKEN[family]
    fast.backend_tokenizer.save(str(folder / "tokenizer.json"))
    for file in ("spiece.model", "sentencepiece.bpe.model", "vocab.json", "merges.txt", "added_tokens.json"):
        (folder / file).unlink(missing_ok=True)
    bundle = convert("hf", folder, tmp_path / "out", WISH)
    ours = open_tokenizer(bundle)
    for line in LINES:
        asked = f"<2de> {line}" if family == "madlad" else line
        assert [*ours.encode(line), bundle.config.eos] == fast(asked).input_ids, line
        ids = ours.encode_target(line)
        theirs = fast.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids).strip() == theirs.strip()


def test_unicode_is_composed_before_it_is_cut_by_the_rule_of_tokenizer_json(tmp_path) -> None:
    """BARThez, saved by `transformers` 5, has this rule in the place of SentencePiece's."""
    folder = copied("barthez", "gelu", tmp_path)
    fast = transformers.BarthezTokenizerFast.from_pretrained(folder)
    content = json.loads(fast.backend_tokenizer.to_str())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    pieces = content["model"]["vocab"]
    letter = next(i for i, (piece, _) in enumerate(pieces) if len(piece) == 1 and piece.isalpha())
    pieces[letter][0] = "\u00e9"
    (folder / "tokenizer.json").write_text(json.dumps(content))
    for file in folder.glob("*.model"):
        file.unlink()
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    bundle = convert("hf", folder, tmp_path / "out", WISH)
    ours = open_tokenizer(bundle)
    for line in ("e\u0301e\u0301", "\u00e9", "ba e\u0301"):
        assert [*ours.encode(line), bundle.config.eos] == theirs.encode(line).ids
        assert letter in ours.encode(line)


ONE_PIECE = {"type": "Unigram", "vocab": [["a", 1.0]], "unk_id": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"type": "WordPiece", "vocab": {}}}, "of the kind 'WordPiece'"),
        ({"model": {"type": "Unigram", "vocab": [["a", "x"]], "unk_id": 0}}, "no pieces with scores"),
        (
            {"model": {"type": "Unigram", "vocab": [["a", 1.0]], "unk_id": 3}},
            "has no piece for unknown words",
        ),
        ({"model": {"type": "Unigram", "vocab": [["a", 1.0], ["a", 2.0]], "unk_id": 0}}, "twice"),
        (
            {"model": {"type": "Unigram", "vocab": [["a", 1.0]], "unk_id": 0}, "normalizer": {"type": "NFD"}},
            "NFD",
        ),
        ({"pre_tokenizer": {"type": "Digits"}}, "Digits"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "no valid vocabulary or merges"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}}, "no valid vocabulary or merges"),
    ],
)
def test_damaged_or_unsupported_tokenizer_json_is_refused_in_one_line(tmp_path, content, message) -> None:
    folder = copied("t5", "tied relu", tmp_path)
    (folder / "spiece.model").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message) as error:
        convert("hf", folder, tmp_path / "out", WISH)
    assert "\n" not in str(error.value)


def test_bart_with_a_prefix_space_gets_one(tmp_path) -> None:
    folder = copied("bart", "large-cnn", tmp_path)
    change(folder / "tokenizer_config.json", add_prefix_space=True)
    theirs = transformers.BartTokenizer.from_pretrained(folder)
    bundle = convert("hf", folder, tmp_path / "out", WISH)
    ours = open_tokenizer(bundle)
    for line in LINES:
        assert [*ours.encode(line), bundle.config.eos] == theirs(line).input_ids


def test_merges_of_a_tokenizer_json_agree_with_sentencepiece(tmp_path) -> None:
    """NLLB-200's published tokenizer is BPE, not Unigram."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(200, 5)), model_writer=out, vocab_size=90, model_type="bpe",
        bos_id=1, eos_id=2, unk_id=0, pad_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "sentencepiece.bpe.model").write_bytes(out.getvalue())
    fast = transformers.NllbTokenizerFast(str(tmp_path / "sentencepiece.bpe.model"))
    assert json.loads(fast.backend_tokenizer.to_str())["model"]["type"] == "BPE"
    fast.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    made = sentencepiece_model(tmp_path / "tokenizer.json")
    ours = sentencepiece.SentencePieceProcessor(model_proto=made)
    for line in [*LINES, *sentences(30, 6)]:
        assert ours.encode(line) == fast(line, add_special_tokens=False).input_ids, line


@pytest.mark.parametrize(
    ("rules", "longest", "shortest"),
    [
        ({"max_length": 20, "min_length": 5}, 18, 4),
        ({"max_new_tokens": 20, "max_length": 7, "min_new_tokens": 6}, 19, 6),
        ({"max_new_tokens": 900}, 99, 0),
    ],
)
def test_lengths_count_neither_the_first_token_nor_the_end(
    rules: dict[str, int], longest: int, shortest: int
) -> None:
    options, _ = generation(rules, 99)
    assert (options["max_length_b"], options["min_length"]) == (longest, shortest)


def test_null_in_the_generation_settings_leaves_the_older_rule(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart", "num_beams": 4, "min_length": 3}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"num_beams": None, "min_length": 5}))
    rules = open_folder(tmp_path).rules
    assert (rules["num_beams"], rules["min_length"]) == (4, 5)
