"""Convert BART, Blenderbot, mBART, PEGASUS, M2M-100, NLLB-200 and FSMT to our configuration and weights.

All are one stack with different options: place of norms, table of positions, scale of embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.stacks import StackConfig
from engine.bundle.tables import sinusoids
from engine.errors import CheckpointError
from export.importers.huggingface.family import (
    HF_ACTIVATIONS,
    Ids,
    TextPart,
    share,
    token_problems,
    transformer,
)
from export.importers.huggingface.files import ModelFolder, size_problems
from export.importers.weights import Names, Tensor, rename, same, tied_embeddings, untie

BART_SIZES: Final = (
    "d_model",
    "vocab_size",
    "max_position_embeddings",
    *(f"{side}_{size}" for side in SIDES for size in ("layers", "attention_heads", "ffn_dim")),
)
BART_NAMES: Final = Names(
    renamed=(
        (re.compile(r"^model\."), ""),
        (re.compile(r"^(encoder\.layers\.\d+\.)self_attn_layer_norm\."), r"\1layer_norm1."),
        (re.compile(r"^(encoder\.layers\.\d+\.)final_layer_norm\."), r"\1layer_norm2."),
        (re.compile(r"^(decoder\.layers\.\d+\.)self_attn_layer_norm\."), r"\1conv_layer_norm."),
        (re.compile(r"^lm_head\.weight$"), "decoder.output_projection.weight"),
        (re.compile(r"^final_logits_bias$"), "decoder.output_bias"),
    ),
    dropped=re.compile(r"\.embed_positions\.weights$"),  # a constant that some files store
)


@dataclass(frozen=True, slots=True)
class Variant:
    """Options of one of the families.

    pre_norm: whether norms come before sub-blocks.
    embedding_norm: whether embeddings are normalised.
    learned: whether positions are learned.
    first: row of the first position; None: the row after padding's.
    paper: whether sinusoids have the frequencies of Vaswani et al.
    separate: whether there are two vocabularies.
    """

    pre_norm: bool
    embedding_norm: bool
    learned: bool
    first: int | None = None
    paper: bool = False
    separate: bool = False


HEAD, TARGET_TABLE = "decoder.output_projection.weight", "decoder.embed_tokens.weight"
SAME_TABLE: Final = 1e-6  # largest difference of equal tables of positions in fp32
VARIANTS: Final = {
    "bart": Variant(pre_norm=False, embedding_norm=True, learned=True, first=2),
    "blenderbot": Variant(pre_norm=True, embedding_norm=False, learned=True, first=0),
    "mbart": Variant(pre_norm=True, embedding_norm=True, learned=True, first=2),
    "pegasus": Variant(pre_norm=True, embedding_norm=False, learned=False, first=0, paper=True),
    "m2m_100": Variant(pre_norm=True, embedding_norm=False, learned=False),
    "fsmt": Variant(pre_norm=False, embedding_norm=False, learned=False, separate=True),
}


def check(folder: ModelFolder) -> None:
    """Raise CheckpointError with every unsupported setting of config.json."""
    config = folder.config
    separate = ("tgt_vocab_size",) if VARIANTS[config["model_type"]].separate else ()
    problems = size_problems(config, (*BART_SIZES, *separate))
    if config.get("activation_function") not in HF_ACTIVATIONS:
        problems.append(f"activation_function {config.get('activation_function')!r} is not known")
    problems += token_problems(config)
    if config.get("model_type") == "pegasus" and folder.rules.get("forced_bos_token_id") is not None:
        problems.append("forced_bos_token_id has no counterpart in this family")
    if not VARIANTS[config["model_type"]].pre_norm and config.get("normalize_before"):
        problems.append("normalize_before is not of this family")
    if problems:
        raise CheckpointError(f"{folder.path}: can't be imported: {'; '.join(problems)}")


def model_weights(
    folder: ModelFolder, tensors: Mapping[str, Tensor], text: TextPart
) -> tuple[ModelConfig, dict[str, Tensor], list[str]]:
    """Return the configuration, the weights by our names, and their problems.

    folder: folder of the model.
    tensors: weights by the file's names.
    text: text side of the model.
    """
    named, problems = rename(tensors, BART_NAMES)
    own, rules = folder.config, folder.rules
    variant, tied = VARIANTS[own["model_type"]], bool(own.get("tie_word_embeddings", True))
    if variant.separate and HEAD in named:  # a file may store the target's table under one name or under both
        tied = same(named.setdefault(TARGET_TABLE, named[HEAD]), named[HEAD])
    shared = share(named, problems, tied=tied and not variant.separate)
    bias = named.pop("decoder.output_bias", None)
    if bias is not None and bool(bias.any()):
        named["decoder.output_bias"] = bias.reshape(-1)
    learned = own_positions(named, own, SAME_TABLE) if not variant.learned else dict.fromkeys(SIDES, True)
    start = rules.get("decoder_start_token_id") if text.start is None else text.start
    bos = own.get("bos_token_id")
    others = (own["pad_token_id"], own["eos_token_id"], text.unk)

    def fields() -> dict[str, Any]:
        return {
            **{side: stack(own, side, replace(variant, learned=learned[side])) for side in SIDES},
            "share_embeddings": shared,
            "share_output": tied,
            "output_bias": "decoder.output_bias" in named,
            "scale_embeddings": bool(own.get("scale_embedding", False)),
            "first_position": variant.first,
            "paper_sinusoids": variant.paper,
            "source_end": text.source_end,
            "bos": bos if type(bos) is int and bos not in others else None,
            **({"target_vocab": own["tgt_vocab_size"]} if variant.separate else {}),
        }

    ids = Ids(own["eos_token_id"] if start is None else start, text.unk)
    config = transformer(folder.path, own, ids, own["max_position_embeddings"], fields)
    problems += untie(named, tied_embeddings(config))
    return config, named, problems


def own_positions(named: dict[str, Tensor], config: Mapping[str, Any], tolerance: float) -> dict[str, bool]:
    """Return for each side whether its stored table of positions differs from the sinusoids.

    named: weights by our names; tables equal to the sinusoids are removed from it.
    config: content of config.json.
    tolerance: largest difference of equal tables.
    """
    own = {}
    for side in SIDES:
        name = f"{side}.embed_positions.weight"
        stored = named.get(name)
        usual = sinusoids(config["max_position_embeddings"], config["d_model"], None, True)
        own[side] = stored is not None and not (
            stored.shape == usual.shape
            and np.allclose(stored.astype(np.float32), usual, rtol=0, atol=tolerance)
        )
        if not own[side]:
            named.pop(name, None)
    return own


def stack(config: Mapping[str, Any], side: str, variant: Variant) -> StackConfig:
    """Return the configuration of a side. Raises ConfigError on impossible values.

    config: content of config.json.
    side: "encoder" or "decoder".
    variant: options of the family.
    """
    return StackConfig(
        embed_dim=config["d_model"],
        conv_dim=config["d_model"],
        ffn_dim=config[f"{side}_ffn_dim"],
        heads=config[f"{side}_attention_heads"],
        kernel_sizes=(0,) * config[f"{side}_layers"],
        mixer="attention",
        glu=False,
        normalize_before=variant.pre_norm,
        learned_positions=variant.learned,
        embedding_norm=variant.embedding_norm,
        activation=HF_ACTIVATIONS[config["activation_function"]],
    )
