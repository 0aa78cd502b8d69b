"""Layouts of the most downloaded translation and summarization models, described without their files.

A layout lists the differences between the published folder and one saved today: settings that the importer
must ignore, names of weights, copies of tables, files of the tokenizer. Vocabularies and layers are scaled
down (`tests.support.hf_models`), weights are random. The files themselves were not available: `known` is the
source that documents each layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CARD = "the model's page and the documentation of transformers"
CONVERTED = "the conversion script of transformers, which wrote it"
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
BART_TABLES = tuple(f"model.{name}" for name in TABLES)
T5_TABLES = (*TABLES, "lm_head.weight")
# of the first years, without a meaning today
OLD_BART = {
    **{"_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0},
    **{"gradient_checkpointing": False, "normalize_before": False, "normalize_embedding": True},
    **{"output_past": True, "static_position_embeddings": False, "num_hidden_layers": 2},
    **{"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "classifier_dropout": 0.0},
}
OLD_PEGASUS = OLD_BART | {
    **{"add_final_layer_norm": True, "normalize_before": True, "normalize_embedding": False},
    **{"static_position_embeddings": True, "extra_pos_embeddings": 1, "save_step": 58},
    **{"force_bos_token_to_be_generated": False, "forced_eos_token_id": 1},
}
CNN = {
    **{"early_stopping": True, "length_penalty": 2.0, "max_length": 142, "min_length": 56},
    **{"no_repeat_ngram_size": 3, "num_beams": 4},
}
T5_TASKS = {
    "summarization": CNN | {"max_length": 200, "min_length": 30, "prefix": "summarize: "},
    "translation_en_to_de": {
        **{"early_stopping": True, "max_length": 300, "num_beams": 4},
        **{"prefix": "translate English to German: "},
    },
}


@dataclass(frozen=True)
class Layout:
    """A published folder.

    family, setting: names in `tests.support.hf_models`, or "marian" and an option of
        `tests.support.marian_models`.
    known: source that documents the layout.
    config: changed settings of config.json; None: the setting is absent.
    generation: changed settings of generation_config.json; None: there is no such file.
    tokenizer: settings of tokenizer_config.json; None: there is no such file.
    without: files of a folder saved today that the published one lacks.
    weights: name of the file of weights, "*.index.json" for shards.
    copies: names under which the shared table is stored too.
    dropped: names of weights that are not stored.
    extra: further weights without a use, with their shapes.
    half: stored as fp16.
    expected: options of the search that the bundle must have.
    """

    family: str
    setting: str
    known: str
    config: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] | None = None
    tokenizer: dict[str, Any] | None = field(default_factory=dict)
    without: tuple[str, ...] = ()
    weights: str = "pytorch_model.bin"
    copies: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    extra: dict[str, tuple[int, ...]] = field(default_factory=dict)
    half: bool = False
    expected: dict[str, Any] = field(default_factory=dict)


BEAM_5 = {"beam_size": 5}
MARIAN_EXTRA = {
    **{"add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0},
    **{"normalize_before": False, "normalize_embedding": False, "static_position_embeddings": True},
    **{
        "num_beams": 6,
        "max_length": 512,
        "gradient_checkpointing": False,
        "transformers_version": "4.22.0.dev0",
    },
}
RENORMALIZED = {"renormalize_logits": True, "forced_eos_token_id": 0, "num_beams": 6}
LAYOUTS: dict[str, Layout] = {
    "Helsinki-NLP/opus-mt-en-de": Layout(
        "marian",
        "post-norm swish",
        CONVERTED,
        config=MARIAN_EXTRA,
        generation=RENORMALIZED,
        copies=BART_TABLES,
        expected={"beam_size": 6},
    ),
    "Helsinki-NLP/opus-mt-de-en": Layout(
        "marian",
        "post-norm swish",
        CONVERTED,
        MARIAN_EXTRA,
        RENORMALIZED,
        copies=(*BART_TABLES, "lm_head.weight"),
    ),
    "Helsinki-NLP/opus-mt-en-ROMANCE": Layout(
        "marian", "several languages", CONVERTED, MARIAN_EXTRA, RENORMALIZED, copies=BART_TABLES
    ),
    "Helsinki-NLP/opus-mt-tc-big-en-de": Layout(
        "marian", "relu", CONVERTED, MARIAN_EXTRA, RENORMALIZED, copies=BART_TABLES, half=True
    ),
    "facebook/wmt19-en-de": Layout(
        "fsmt",
        "relu",
        CONVERTED,
        config={"num_beams": 5, "early_stopping": False, "decoder": {"model_type": "fsmt_decoder"}},
        tokenizer={"langs": ["en", "de"], "model_max_length": 1024},
        expected=BEAM_5,
    ),
    "facebook/nllb-200-distilled-600M": Layout(
        "nllb",
        "relu",
        CONVERTED,
        config={"max_length": 200, "tokenizer_class": "NllbTokenizer", "num_hidden_layers": 12},
        generation={"_from_model_config": True, "max_length": 200, "decoder_start_token_id": 2},
        without=("added_tokens.json",),
        copies=(*BART_TABLES, "lm_head.weight"),
    ),
    "facebook/nllb-200-3.3B": Layout(
        "nllb",
        "relu",
        CONVERTED,
        weights="pytorch_model.bin.index.json",
        copies=(*BART_TABLES, "lm_head.weight"),
    ),
    "facebook/m2m100_418M": Layout(
        "m2m100",
        "relu",
        CONVERTED,
        config={"early_stopping": True, "max_length": 200, "num_beams": 5, "gradient_checkpointing": False},
        without=("added_tokens.json",),
        copies=(*BART_TABLES, "lm_head.weight"),
        extra={f"model.{side}.embed_positions.weights": (66, 32) for side in ("encoder", "decoder")},
        expected=BEAM_5,
    ),
    "alirezamsh/small100": Layout(
        "small100",
        "gelu",
        CARD,
        config={"early_stopping": True, "max_length": 200, "num_beams": 5},
        copies=(*BART_TABLES, "lm_head.weight"),
        expected=BEAM_5,
    ),
    "facebook/mbart-large-50-many-to-many-mmt": Layout(
        "mbart50",
        "relu",
        CONVERTED,
        config=OLD_BART
        | {"add_final_layer_norm": True, "normalize_before": True, "early_stopping": True}
        | {"max_length": 200, "num_beams": 5, "tokenizer_class": "MBart50Tokenizer"},
        tokenizer={"language_codes": "ML50", "src_lang": None, "tgt_lang": None},
        copies=(*BART_TABLES, "lm_head.weight"),
        expected=BEAM_5,
    ),
    "facebook/bart-large-cnn": Layout(
        "bart",
        "large-cnn",
        "a copy of its config.json in the tests of another library",
        config=OLD_BART
        | CNN
        | {"force_bos_token_to_be_generated": True, "forced_bos_token_id": 0, "prefix": " "}
        | {"task_specific_params": {"summarization": CNN}},
        generation=CNN | {"forced_bos_token_id": 0, "_from_model_config": True},
        tokenizer=None,
        without=("special_tokens_map.json", "added_tokens.json"),
        copies=BART_TABLES,
        expected={"beam_size": 4, "length_penalty": 2.0, "min_length": 55, "no_repeat_ngram_size": 3},
    ),
    "sshleifer/distilbart-cnn-12-6": Layout(
        "bart",
        "large-cnn",
        "a copy of its config.json in the tests of another library",
        config=OLD_BART
        | {"extra_pos_embeddings": 2, "force_bos_token_to_be_generated": True, "forced_bos_token_id": None}
        | {"activation_function": None, "task_specific_params": {"summarization": CNN}},
        tokenizer={"model_max_length": 1024},
        without=("special_tokens_map.json", "added_tokens.json"),
        copies=BART_TABLES,
        expected={"beam_size": 4, "min_length": 55},
    ),
    "google/pegasus-xsum": Layout(
        "pegasus",
        "relu",
        "a copy of pegasus-large's config.json in a public repository",
        config=OLD_PEGASUS | {"length_penalty": 0.6, "max_length": 64, "num_beams": 8},
        without=("added_tokens.json",),
        copies=BART_TABLES,
        expected={"beam_size": 8, "length_penalty": 0.6},
    ),
    "google-t5/t5-small": Layout(
        "t5",
        "tied relu",
        "a copy of its config.json in a public repository",
        config={
            **{"architectures": ["T5WithLMHeadModel"], "n_positions": 512, "output_past": True},
            **{"feed_forward_proj": None, "task_specific_params": T5_TASKS},
        },
        tokenizer={"extra_ids": 4, "model_max_length": 512},
        without=("special_tokens_map.json", "added_tokens.json"),
        copies=T5_TABLES,
        extra={"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (32, 4)},
        expected={"beam_size": 4},
    ),
    "google-t5/t5-base": Layout(
        "t5",
        "tied relu",
        CARD,
        config={"n_positions": 512, "output_past": True, "task_specific_params": T5_TASKS},
        weights="model.safetensors",
        expected={"beam_size": 4},
    ),
    "google/flan-t5-base": Layout(
        "flan",
        "gated",
        CARD,
        config={"n_positions": 512, "output_past": True, "task_specific_params": T5_TASKS},
        copies=TABLES,
        expected={"beam_size": 4},
    ),
    "google/mt5-small": Layout(
        "mt5",
        "more heads",
        CARD,
        config={"tokenizer_class": "T5Tokenizer", "output_past": True},
        copies=TABLES,
    ),
    "csebuetnlp/mT5_multilingual_XLSum": Layout(
        "mt5",
        "gated",
        CARD,
        config={"length_penalty": 0.6, "max_length": 84, "num_beams": 4, "no_repeat_ngram_size": 2},
        copies=TABLES,
        expected={"beam_size": 4, "no_repeat_ngram_size": 2},
    ),
    "google/madlad400-3b-mt": Layout(
        "madlad",
        "gated",
        "an issue: it has no shared.weight",
        weights="model.safetensors",
        copies=("decoder.embed_tokens.weight",),
        dropped=("shared.weight",),
    ),
    "google/byt5-small": Layout(
        "byt5",
        "deep encoder",
        CARD,
        config={"tokenizer_class": "ByT5Tokenizer", "gradient_checkpointing": False},
        tokenizer={"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125},
        copies=TABLES,
    ),
    "google/umt5-small": Layout("umt5", "gated", CARD, config={"scalable_attention": True}, copies=TABLES),
}
# folders of other kinds that people try, and what the refusal names
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "allenai/led-base-16384": ("bart", {"model_type": "led"}, "led"),
    "google/long-t5-tglobal-base": ("t5", {"model_type": "longt5"}, "longt5"),
    "google/bigbird-pegasus-large-arxiv": ("pegasus", {"model_type": "bigbird_pegasus"}, "bigbird_pegasus"),
    "facebook/nllb-moe-54b": ("nllb", {"model_type": "nllb-moe"}, "nllb-moe"),
    "facebook/seamless-m4t-medium": ("nllb", {"model_type": "seamless_m4t"}, "seamless_m4t"),
}
