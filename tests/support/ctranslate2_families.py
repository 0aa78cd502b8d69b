"""Small models of `transformers`, converted by CTranslate2's own converter, and our bundles of them."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import TransformersConverter

from engine.bundle.bundle import Bundle
from export.importers import convert
from export.importers.settings import CTranslate2Import
from tests.support import hf_models, marian_models

# options that published models have in config.json, and `transformers` no longer writes
OPTIONS: dict[str, dict[str, Any]] = {
    "mbart50": {"normalize_before": True, "normalize_embedding": True},
    "pegasus": {"normalize_before": True, "normalize_embedding": False},
    "bart": {"normalize_before": False, "normalize_embedding": True},
    "mbart25": {"normalize_before": True, "normalize_embedding": True, "vocab_size": 97},
    "barthez": {"normalize_before": True, "normalize_embedding": True},
    "bartpho": {"normalize_before": True, "normalize_embedding": True, "activation_function": "gelu"},
    "bart-chinese": {"normalize_before": False, "normalize_embedding": True, "activation_function": "gelu"},
    "m2m100": {"vocab_size": 179},
    "small100": {"vocab_size": 179, "encoder_layers": 12, "decoder_layers": 3},
}
FILES = (
    "tokenizer_config.json",
    "tokenizer.json",  # version 5 writes no other file
    "sentencepiece.bpe.model",
    "spiece.model",
    "merges.txt",
    "dict.txt",
    "source.spm",
    "target.spm",
)
# factor of the end's row in the output, and its bias: some answers end before the limit
ENDING = {"nllb": 8.0, "m2m100": 8.0, "small100": 8.0, "mbart50": 1.5, "marian": 1.0}
BIASED = {"pegasus": 6.0, "bart": 10.0}
NO_START = ("mbart25", "barthez", "bartpho")  # their users pass the first input of the decoder
CHINESE = ("bart-chinese", "t5-chinese")
READ_AS_BYTES = ("bart", "byt5", "codet5")
WISH = CTranslate2Import(source="en", target="de")


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="convoy-ct2-")


@cache
def original(family: str) -> Any:
    """Return a folder of a family, with its model and tokenizer."""
    path = Path(_root().name) / family / "hf"
    if family == "marian":
        return marian_models.make(path, "post-norm swish")
    setting = next(iter(hf_models.FAMILIES[family].settings))
    folder = hf_models.make(path, family, setting, **OPTIONS.get(family, {}))
    if family in ("m2m100", "small100"):  # published folders list the symbols
        named = path / "tokenizer_config.json"
        symbols = {"additional_special_tokens": list(folder.tokenizer.lang_token_to_id)}
        symbols |= {"tokenizer_class": "M2M100Tokenizer"}  # the converter loads no class of a hub
        named.write_text(json.dumps(json.loads(named.read_text()) | symbols))
    with torch.no_grad():  # answers end
        folder.model.get_output_embeddings().weight[folder.tokenizer.eos_token_id] *= ENDING.get(family, 2.5)
        if family in BIASED:
            folder.model.final_logits_bias[0, folder.tokenizer.eos_token_id] = BIASED[family]
    folder.model.save_pretrained(path)
    if family in hf_models.SPOKEN:
        folder.tokenizer.src_lang, folder.tokenizer.tgt_lang = hf_models.SPOKEN[family]
    return folder


@cache
def converted(family: str, quantization: str) -> Path:
    """Return CTranslate2's folder of a family, with the tokenizer's files."""
    folder, out = original(family), Path(_root().name) / family / quantization
    files = [name for name in FILES if (folder.path / name).is_file()]
    if family == "small100":  # its layers alone differ from M2M-100's
        files.remove("tokenizer_config.json")
    TransformersConverter(str(folder.path), copy_files=files).convert(str(out), quantization=quantization)
    if family == "mbart50":  # newer tokenizers name no beginning, and CTranslate2 then loads no model
        config = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(config | {"bos_token": "<s>"}))
    if family in CHINESE:  # BERT's tokenizer names no end, and CTranslate2 then loads no model
        config = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(config | {"bos_token": "[CLS]", "eos_token": "[SEP]"}))
    return out


@cache
def imported(family: str, quantization: str) -> Bundle:
    """Return our bundle of CTranslate2's folder, for translation from English into German."""
    out = Path(_root().name) / family / f"{quantization}-bundle"
    return convert("ctranslate2", converted(family, quantization), out, WISH)


def their_tokens(family: str, line: str) -> list[str]:
    """Return the tokens of a line that CTranslate2's documentation passes: those of `transformers`."""
    tokenizer = original(family).tokenizer
    if hf_models.NEWER and family not in READ_AS_BYTES:  # version 5 makes a piece of a final space
        line = line.rstrip()
    ids = tokenizer(f"<2de> {line}" if family == "madlad" else line).input_ids
    tokens = list(tokenizer.convert_ids_to_tokens(ids))
    if hf_models.NEWER and family == "barthez":  # without a list in tokenizer.json it adds no symbols
        return ["<s>", *tokens, "</s>"]
    if hf_models.NEWER and family == "madlad":  # it uses end-of-sentence for unknown pieces
        return ["<unk>" if token == "</s>" else token for token in tokens[:-1]] + tokens[-1:]
    return tokens
