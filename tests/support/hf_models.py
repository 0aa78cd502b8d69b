"""Small models of Hugging Face's families: random weights and vocabularies, saved by `transformers`.

`transformers` itself is the oracle; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from engine.bundle.bundle import Bundle
from export.importers import convert
from export.importers.settings import HuggingFaceImport
from tests.support.hf_tokenizers import (
    FAIRSEQ_PIECES,
    bart_tokenizer,
    bartpho_tokenizer,
    bert_tokenizer,
    blenderbot_tokenizer,
    fsmt_tokenizer,
    m2m_tokenizer,
    roberta_tokenizer,
    spiece,
    transformers,
)

NLLB_LANGUAGES = importlib.import_module("transformers.models.nllb.tokenization_nllb").FAIRSEQ_LANGUAGE_CODES
NEWER = int(transformers.__version__.partition(".")[0]) >= 5  # tests/export/importers/test_hf_oracles.py

# source and target by the tokenizers' codes
SPOKEN = {
    "mbart50": ("en_XX", "de_DE"),
    "mbart25": ("en_XX", "de_DE"),
    "m2m100": ("en", "de"),
    "small100": ("de", "de"),
    "nllb": ("eng_Latn", "deu_Latn"),
}
DECODER_NORM = re.compile(r"decoder\..*norm\.weight$")
WISH = HuggingFaceImport(source="en", target="de", task="translate")


@dataclass(frozen=True)
class Folder:
    """A folder, and its model and tokenizer."""

    path: Path
    model: Any
    tokenizer: Any


BART: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "init_std": 0.3,
}
T5: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "initializer_factor": 1.0,
    "decoder_start_token_id": 0,
}


@dataclass(frozen=True)
class Family:
    """Classes, base options, tokenizer and settings (changed options) of a family."""

    config: str
    model: str
    base: dict[str, Any]
    tokenizer: Callable[[Path], Any]
    settings: dict[str, dict[str, Any]]
    tokenizer_class: str | None = None  # class named in the folder that `transformers` lacks


FAMILIES: dict[str, Family] = {
    "bart": Family(
        "BartConfig",
        "BartForConditionalGeneration",
        BART,
        bart_tokenizer,
        {
            "large-cnn": {"forced_bos_token_id": 0},
            "scaled, deep": {"scale_embedding": True, "decoder_layers": 3},
        },
    ),
    "mbart50": Family(
        "MBartConfig",
        "MBartForConditionalGeneration",
        BART | {"scale_embedding": True, "decoder_start_token_id": 2, "tokenizer_class": "MBart50Tokenizer"},
        lambda path: spiece(path, "MBart50Tokenizer", 1, 2, 0, -1, name=FAIRSEQ_PIECES),
        {
            "gelu": {},
            "relu": {"activation_function": "relu", "encoder_ffn_dim": 32},
            "gelu_pytorch_tanh": {"activation_function": "gelu_pytorch_tanh"},
            "quick_gelu": {"activation_function": "quick_gelu"},
            "tanh": {"activation_function": "tanh"},
        },
    ),
    "mbart25": Family(  # as fine-tuned for one direction
        "MBartConfig",
        "MBartForConditionalGeneration",
        BART | {"scale_embedding": True, "vocab_size": 100},
        lambda path: spiece(path, "MBartTokenizer", 1, 2, 0, -1, name=FAIRSEQ_PIECES),
        {"gelu": {}},
    ),
    "barthez": Family(
        "MBartConfig",
        "MBartForConditionalGeneration",
        BART | {"scale_embedding": True, "decoder_start_token_id": 2},
        lambda path: spiece(path, "BarthezTokenizer", 0, 2, 3, 1, name=FAIRSEQ_PIECES, symbols=("<mask>",)),
        {"gelu": {}},
    ),
    "bartpho": Family(
        "MBartConfig",
        "MBartForConditionalGeneration",
        BART | {"scale_embedding": True, "decoder_start_token_id": 2},
        bartpho_tokenizer,
        {"gelu_fast": {"activation_function": "gelu_fast", "encoder_layers": 3}},
    ),
    "bart-chinese": Family(  # fnlp/bart-base-chinese
        "BartConfig",
        "BartForConditionalGeneration",
        BART | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3},
        bert_tokenizer,
        {"relu6": {"activation_function": "relu6"}},
    ),
    "blenderbot": Family(
        "BlenderbotConfig",
        "BlenderbotForConditionalGeneration",
        BART | {"scale_embedding": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        blenderbot_tokenizer,
        {"one layer": {"encoder_layers": 1}},
    ),
    "pegasus": Family(
        "PegasusConfig",
        "PegasusForConditionalGeneration",
        BART | {"scale_embedding": True, "activation_function": "relu"},
        lambda path: spiece(path, "PegasusTokenizer", -1, 1, 2, 0),
        {"relu": {}, "gelu, one layer": {"activation_function": "gelu", "encoder_layers": 1}},
    ),
    "m2m100": Family(
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        BART
        | {"scale_embedding": True, "activation_function": "relu", "decoder_start_token_id": 2}
        | {"vocab_size": 180},  # its tokenizer's size excludes languages
        m2m_tokenizer,
        {"relu": {}, "untied": {"tie_word_embeddings": False}},
    ),
    "small100": Family(  # its own tokenizer puts the target's symbol before the source
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        BART
        | {"scale_embedding": True, "activation_function": "relu", "decoder_start_token_id": 2}
        | {"vocab_size": 180},
        m2m_tokenizer,
        {"deep encoder": {"encoder_layers": 3, "decoder_layers": 1}, "gelu": {"activation_function": "gelu"}},
        "SMALL100Tokenizer",
    ),
    "fsmt": Family(  # fairseq's wmt19 models in this layout
        "FSMTConfig",
        "FSMTForConditionalGeneration",
        BART | {"scale_embedding": True, "activation_function": "relu", "langs": ["en", "de"]},
        fsmt_tokenizer,
        {"relu": {}, "deep encoder": {"encoder_layers": 3, "encoder_ffn_dim": 32}},
    ),
    "nllb": Family(
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        BART | {"scale_embedding": True, "activation_function": "relu", "decoder_start_token_id": 2},
        lambda path: spiece(
            path, "NllbTokenizer", 1, 2, 0, -1, name=FAIRSEQ_PIECES, listed=tuple(NLLB_LANGUAGES)
        ),
        {"relu": {}, "swish": {"activation_function": "swish", "decoder_layers": 1}},
    ),
    "t5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        T5,
        lambda path: spiece(path, "T5Tokenizer", -1, 1, 2, 0, extra_ids=4, legacy=True),
        {
            "tied relu": {},
            "few distances": {"relative_attention_max_distance": 16, "relative_attention_num_buckets": 8},
        },
    ),
    "flan": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        lambda path: spiece(path, "T5Tokenizer", -1, 1, 2, 0, extra_ids=4, legacy=True),
        {"wide heads": {"d_kv": 12}, "gated": {}},
    ),
    "mt5": Family(
        "MT5Config",
        "MT5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        lambda path: spiece(path, "T5Tokenizer", -1, 1, 2, 0, extra_ids=0, legacy=True),
        {"gated": {}, "more heads": {"num_heads": 8}},
    ),
    "umt5": Family(  # each layer has its own relative bias
        "UMT5Config",
        "UMT5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        lambda path: spiece(path, "T5Tokenizer", -1, 1, 2, 0, extra_ids=0, legacy=True),
        {"gated": {}, "tied relu": {"feed_forward_proj": "relu", "tie_word_embeddings": True}},
    ),
    "codet5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        roberta_tokenizer,
        {"gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}},
    ),
    "t5-chinese": Family(  # uer/t5-base-chinese-cluecorpussmall
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2},
        bert_tokenizer,
        {"relu": {}},
    ),
    "madlad": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        T5
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        | {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0},
        lambda path: spiece(
            path,
            "T5Tokenizer",
            *(1, 2, 0, -1),
            symbols=("<2de>", "<2en>", "<2zh_Hant>"),
            pad_token="<s>",
            extra_ids=0,
            legacy=True,
        ),
        {"gated": {}, "two layers": {"num_decoder_layers": 2}},
    ),
    "byt5": Family(
        "T5Config",
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        lambda path: transformers.ByT5Tokenizer(extra_ids=0),
        {"gated": {}, "deep encoder": {"num_layers": 4}},
    ),
}
EVERY = [(family, setting) for family, made in FAMILIES.items() for setting in made.settings]


def make(path: Path, family: str, setting: str, seed: int = 1, **more: Any) -> Folder:
    """Write a folder with random weights, saved by `transformers`.

    path: folder to write.
    family: name in FAMILIES.
    setting: setting of the family.
    seed: seed of the weights.
    more: further options of the configuration.
    """
    made = FAMILIES[family]
    tokenizer = made.tokenizer(path / "parts")
    sizes = {"vocab_size": len(tokenizer)}
    if family == "fsmt":
        sizes = {f"{side}_vocab_size": getattr(tokenizer, f"{side}_vocab_size") for side in ("src", "tgt")}
    options = {**sizes, **made.base, **made.settings[setting], **more}
    torch.manual_seed(seed)
    forced = options.pop("forced_bos_token_id", None)
    model = getattr(transformers, made.model)(getattr(transformers, made.config)(**options)).eval()
    if NEWER and made.config.endswith("T5Config") and not options.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(
            torch.randn_like(model.lm_head.weight)
        )  # like after loading
    model.generation_config.forced_bos_token_id = forced
    with torch.no_grad():  # with initial values an exchange of two weights would have no effect
        for name, weight in model.named_parameters():
            if weight.dim() == 1 or "relative_attention_bias" in name:
                weight += 0.2 * torch.randn_like(weight)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3)
        _vary_answers(model)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    if made.tokenizer_class is not None:
        said = json.loads((path / "tokenizer_config.json").read_text())
        named = json.dumps(said | {"tokenizer_class": made.tokenizer_class})
        (path / "tokenizer_config.json").write_text(named)
    return Folder(path, model, tokenizer)


def _vary_answers(model: Any) -> None:
    """Change weights so that answers neither repeat one token, as with a tied output, nor always reach the
    limit: end-of-sentence wins in about a seventh of the steps."""
    last_norm = [weight for name, weight in model.named_parameters() if DECODER_NORM.search(name)][-1]
    last_norm *= torch.randn_like(last_norm).sign()
    sources = torch.randint(4, 40, (4, 6), generator=torch.Generator().manual_seed(4))
    asked = {"max_length": 12, "min_length": 12, "use_cache": False}
    steps = model.generate(sources, **asked, output_logits=True, return_dict_in_generate=True).logits
    eos, logits = model.config.eos_token_id, torch.stack(steps).flatten(0, 1)
    sign = logits[:, eos].median().sign()
    factors = logits.amax(1) / logits[:, eos] * sign  # by which end-of-sentence would win
    factor = factors.where(factors > 0, torch.inf).sort().values[len(factors) // 7].clamp(max=10.0)
    model.get_output_embeddings().weight[eos] *= sign * factor


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="convoy-hf-")


@cache
def imported(family: str, setting: str) -> tuple[Folder, Bundle]:
    """Return a folder with its model, and its bundle for translation from English into German; made once."""
    place = Path(_root().name) / family / setting.replace(" ", "-")
    folder = make(place / "hf", family, setting)
    if family in SPOKEN:
        folder.tokenizer.src_lang, folder.tokenizer.tgt_lang = SPOKEN[family]
    return folder, convert("hf", folder.path, place / "bundle", WISH)
