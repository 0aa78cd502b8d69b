"""Convert options and weights of fairseq's `transformer` to ours (docs/reference.md 5 and 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import ACTIVATIONS, StackConfig
from export.importers.fairseq.options import (
    DECODER_WIDTHS,
    SHARING,
    STACK_FIELDS,
    UNUSUAL,
    Family,
    Options,
    defaults,
    make_config,
    model_fields,
    read_options,
    separate_positions,
)
from export.importers.weights import Names, Tensor, Weights, read_weights, tied_embeddings

TRANSFORMER_BASE: Final[dict[str, Any]] = SHARING | {
    "no_scale_embedding": False,
    "layernorm_embedding": False,
    "no_decoder_final_norm": False,
}
# without decoder_input_dim: this family ignores it, its embeddings have the decoder's width
TRANSFORMER_FIELDS: Final = STACK_FIELDS | {"activation_fn": "encoder.activation"}
TRANSFORMER_INHERITED: Final = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}
# the decoder of these has the encoder's widths
AS_THE_ENCODER: Final = ("transformer", "transformer_tiny", "transformer_wmt_en_de")
TRANSFORMER_ARCHITECTURES: Final = {
    name: defaults(
        name, TRANSFORMER_FIELDS if name in AS_THE_ENCODER else TRANSFORMER_FIELDS | DECODER_WIDTHS
    )
    for name in (
        *AS_THE_ENCODER,
        "transformer_iwslt_de_en",
        "transformer_vaswani_wmt_en_de_big",
        "transformer_vaswani_wmt_en_fr_big",
        "transformer_wmt_en_de_big",
        "transformer_wmt_en_de_big_t2t",
    )
}
TRANSFORMER_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    **UNUSUAL,
    "activation_fn": (None, *ACTIVATIONS),
    **dict.fromkeys(
        (
            "decoder_xformers_att_config",
            "encoder_xformers_att_config",
            "scale_attn",
            "scale_fc",
            "scale_heads",
            "scale_resids",
        ),
        (None, False, ""),
    ),
}
TRANSFORMER_OPTIONS: Final = Options(
    TRANSFORMER_BASE, TRANSFORMER_INHERITED, TRANSFORMER_ARCHITECTURES, TRANSFORMER_NEUTRAL
)
ENCODER: Final = r"^(encoder\.layers\.\d+\.)"
DECODER: Final = r"^(decoder\.layers\.\d+\.)"
TRANSFORMER_NAMES: Final = Names(
    renamed=(
        (re.compile(ENCODER + r"(layer_norms\.0|self_attn_layer_norm)\."), r"\1layer_norm1."),
        (re.compile(ENCODER + r"(layer_norms\.1|final_layer_norm)\."), r"\1layer_norm2."),
        (re.compile(DECODER + r"(layer_norms\.0|self_attn_layer_norm)\."), r"\1conv_layer_norm."),
        (re.compile(DECODER + r"layer_norms\.1\."), r"\1encoder_attn_layer_norm."),
        (re.compile(DECODER + r"layer_norms\.2\."), r"\1final_layer_norm."),
        (
            re.compile(r"_attn\.([qkv])_proj_weight$"),
            r"_attn.\1_proj.weight",
        ),  # fairseq 0.7 and 0.8, if widths differ
        (re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),
    ),
    dropped=re.compile(r"^(encoder|decoder)\.version$|\.embed_positions\.(_float_tensor|weights)$"),
)


def options(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return all options of the model, and their problems.

    Absent options have their architecture's defaults.
    """
    return read_options(separate_positions(arguments), TRANSFORMER_OPTIONS)


def model_config(
    arguments: Mapping[str, Any], source_vocab: int, target_vocab: int
) -> tuple[ModelConfig | None, list[str]]:
    """Return the configuration that a checkpoint's options describe, or None and the problems.

    arguments: options of the checkpoint, with `encoder_version` and `decoder_version` of the state
        dictionary (`export.importers.checkpoint`).
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    """

    def make(values: Mapping[str, Any]) -> ModelConfig:
        return ModelConfig(
            architecture="transformer",
            encoder=_stack(arguments, values, "encoder"),
            decoder=_stack(arguments, values, "decoder"),
            scale_embeddings=not values["no_scale_embedding"],
            **model_fields(values, source_vocab, target_vocab),
        )

    return make_config(options(arguments), make)


def model_weights(state: Mapping[str, Tensor], config: ModelConfig) -> tuple[Weights, list[str]]:
    """Return a state dictionary under our names, and the problems of its weights."""
    return read_weights(state, config, TRANSFORMER_NAMES, tied_embeddings(config))


def _stack(arguments: Mapping[str, Any], values: Mapping[str, Any], side: str) -> StackConfig:
    """Return the configuration of a side; `arguments` has the versions of its weights."""
    embed, decoder = values[f"{side}_embed_dim"], side == "decoder"
    output = values["decoder_output_dim"] if decoder else embed
    # before version 2 fairseq had no layer norm after the last layer
    final = arguments.get(f"{side}_version", 3) >= 2 and not (decoder and values["no_decoder_final_norm"])
    return StackConfig(
        embed_dim=embed,
        conv_dim=embed,
        ffn_dim=values[f"{side}_ffn_embed_dim"],
        heads=values[f"{side}_attention_heads"],
        kernel_sizes=(0,) * values[f"{side}_layers"],
        mixer="attention",
        glu=False,
        normalize_before=values[f"{side}_normalize_before"],
        learned_positions=values[f"{side}_learned_pos"],
        output_dim=output if output != embed else None,
        activation=values["activation_fn"],
        embedding_norm=values["layernorm_embedding"],
        final_norm=final,
    )


TRANSFORMER: Final = Family(TRANSFORMER_OPTIONS, options, model_config, model_weights)
