"""The map of fairseq's `lightconv` family (LightConv and DynamicConv) to ours: options and weights.

Names and defaults: REFERENCE.md 2.3 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from engine.config import ModelConfig
from engine.errors import ConfigError
from engine.stacks import StackConfig
from export.maps import (
    DECODER_WIDTHS,
    SHARING,
    SIDES,
    STACK_FIELDS,
    UNUSUAL,
    Names,
    Options,
    Weights,
    defaults,
    positions,
    read_options,
    read_weights,
    tied_embeddings,
)

FIELDS: Final = STACK_FIELDS | {
    "weight_softmax": "encoder.weight_softmax",
    **{f"{side}_kernel_size_list": f"{side}.kernel_sizes" for side in SIDES},
    **{f"{side}_glu": f"{side}.glu" for side in SIDES},
    **{f"{side}_conv_type": f"{side}.mixer" for side in SIDES},
}
INHERITED: Final = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "encoder_conv_dim": "encoder_embed_dim",
    "decoder_conv_dim": "decoder_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}
# all of them have dynamic kernels unless their options say otherwise
AS_THE_ENCODER: Final = ("", "_wmt_en_de")  # widths of the decoder
ARCHITECTURES: Final = {
    f"lightconv{name}": defaults(
        f"dynamicconv{name}", FIELDS if name in AS_THE_ENCODER else FIELDS | DECODER_WIDTHS
    )
    for name in (*AS_THE_ENCODER, "_iwslt_de_en", "_wmt_en_de_big", "_wmt_en_fr_big", "_wmt_zh_en_big")
}
NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    **UNUSUAL,
    "activation_fn": (None, "relu"),
    **dict.fromkeys(("layernorm_embedding", "no_scale_embedding", "renorm_padding"), (None, False)),
}
OPTIONS: Final = Options(SHARING, INHERITED, ARCHITECTURES, NEUTRAL)
NAMES: Final = Names(
    renamed=(
        (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.0\."), r"\1layer_norm1."),
        (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.1\."), r"\1layer_norm2."),
        (re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),
    ),
    # conv_bias is unused and never initialised; the others are markers of versions and of generated tables
    dropped=re.compile(
        r"^(encoder|decoder)\.version$|\.embed_positions\.(_float_tensor|weights)$|\.conv\.conv_bias$"
    ),
)


def options(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """All options of the model, absent ones by its architecture's defaults, and what is wrong with them."""
    values, problems = read_options(positions(given), OPTIONS)
    for side in SIDES:
        kernels, layers = values[f"{side}_kernel_size_list"], values[f"{side}_layers"]
        if kernels and layers and len(kernels) == 1:
            values[f"{side}_kernel_size_list"] = kernels * layers
        elif kernels and layers and len(kernels) != layers:
            problems.append(f"{side}_kernel_size_list has {len(kernels)} widths for {layers} layers")
    return values, problems


def model_config(
    given: Mapping[str, Any], source_vocab: int, target_vocab: int
) -> tuple[ModelConfig | None, list[str]]:
    """Our configuration of a checkpoint's options, or None and all the reasons why there is none."""
    values, problems = options(given)
    if problems:
        return None, problems
    tied = bool(values["share_all_embeddings"])
    try:
        config = ModelConfig(
            architecture="dynamicconv",
            source_vocab=source_vocab,
            target_vocab=target_vocab,
            encoder=_stack(values, "encoder"),
            decoder=_stack(values, "decoder"),
            share_embeddings=tied,
            share_output=tied or values["share_decoder_input_output_embed"],
            token_positions=not values["no_token_positional_embeddings"],
            max_source=values["max_source_positions"],
            max_target=values["max_target_positions"],
        )
    except ConfigError as error:
        return None, [str(error)]
    return config, []


def model_weights(state: Mapping[str, Tensor], config: ModelConfig) -> tuple[Weights, list[str]]:
    """The state dictionary under our names, of either era, and every weight that does not fit."""
    return read_weights(state, config, NAMES, tied_embeddings(config))


def _stack(values: Mapping[str, Any], side: str) -> StackConfig:
    embed = values[f"{side}_embed_dim"]
    widths = [values[f"decoder_{part}_dim"] if side == "decoder" else embed for part in ("input", "output")]
    return StackConfig(
        embed_dim=embed,
        conv_dim=values[f"{side}_conv_dim"],
        ffn_dim=values[f"{side}_ffn_embed_dim"],
        heads=values[f"{side}_attention_heads"],
        kernel_sizes=tuple(values[f"{side}_kernel_size_list"]),
        mixer=values[f"{side}_conv_type"],
        glu=values[f"{side}_glu"],
        weight_softmax=values["weight_softmax"],
        normalize_before=values[f"{side}_normalize_before"],
        learned_positions=values[f"{side}_learned_pos"],
        input_dim=widths[0] if widths[0] != embed else None,
        output_dim=widths[1] if widths[1] != embed else None,
    )
