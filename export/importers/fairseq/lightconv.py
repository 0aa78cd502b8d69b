"""Convert options and weights of fairseq's `lightconv` family (LightConv and DynamicConv) to ours.

Names and defaults: docs/reference.md 2.3 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.stacks import StackConfig
from export.importers.fairseq.options import (
    DECODER_WIDTHS,
    SHARING,
    STACK_FIELDS,
    UNUSUAL,
    Family,
    Options,
    convolution_fields,
    defaults,
    equal_kernels,
    make_config,
    model_fields,
    read_options,
    separate_positions,
)
from export.importers.weights import Names, Tensor, Weights, read_weights, tied_embeddings

LIGHTCONV_FIELDS: Final = STACK_FIELDS | {
    "weight_softmax": "encoder.weight_softmax",
    **{f"{side}_kernel_size_list": f"{side}.kernel_sizes" for side in SIDES},
    **{f"{side}_glu": f"{side}.glu" for side in SIDES},
    **{f"{side}_conv_type": f"{side}.mixer" for side in SIDES},
}
LIGHTCONV_INHERITED: Final = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "encoder_conv_dim": "encoder_embed_dim",
    "decoder_conv_dim": "decoder_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}
# the decoder of these has the encoder's widths; all architectures have dynamic kernels by default
AS_THE_ENCODER: Final = ("", "_wmt_en_de")
LIGHTCONV_ARCHITECTURES: Final = {
    f"lightconv{name}": defaults(
        f"dynamicconv{name}",
        LIGHTCONV_FIELDS if name in AS_THE_ENCODER else LIGHTCONV_FIELDS | DECODER_WIDTHS,
    )
    for name in (*AS_THE_ENCODER, "_iwslt_de_en", "_wmt_en_de_big", "_wmt_en_fr_big", "_wmt_zh_en_big")
}
LIGHTCONV_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    **UNUSUAL,
    "activation_fn": (None, "relu"),
    **dict.fromkeys(("layernorm_embedding", "no_scale_embedding", "renorm_padding"), (None, False)),
}
LIGHTCONV_OPTIONS: Final = Options(SHARING, LIGHTCONV_INHERITED, LIGHTCONV_ARCHITECTURES, LIGHTCONV_NEUTRAL)
LIGHTCONV_NAMES: Final = Names(
    renamed=(
        (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.0\."), r"\1layer_norm1."),
        (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.1\."), r"\1layer_norm2."),
        (re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),
    ),
    # conv_bias is unused and never initialised; the others mark versions and generated tables
    dropped=re.compile(
        r"^(encoder|decoder)\.version$|\.embed_positions\.(_float_tensor|weights)$|\.conv\.conv_bias$"
    ),
)


def options(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return all options of the model, and their problems.

    Absent options have their architecture's defaults.
    """
    values, problems = read_options(separate_positions(arguments), LIGHTCONV_OPTIONS)
    return values, problems + equal_kernels(values, SIDES)


def model_config(
    arguments: Mapping[str, Any], source_vocab: int, target_vocab: int
) -> tuple[ModelConfig | None, list[str]]:
    """Return the configuration that a checkpoint's options describe, or None and the problems.

    arguments: options of the checkpoint.
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    """

    def make(values: Mapping[str, Any]) -> ModelConfig:
        encoder, decoder = (
            StackConfig(
                **convolution_fields(values, side), normalize_before=values[f"{side}_normalize_before"]
            )
            for side in SIDES
        )
        whole = model_fields(values, source_vocab, target_vocab)
        return ModelConfig(architecture="dynamicconv", encoder=encoder, decoder=decoder, **whole)

    return make_config(options(arguments), make)


def model_weights(state: Mapping[str, Tensor], config: ModelConfig) -> tuple[Weights, list[str]]:
    """Return a state dictionary under our names, and the problems of its weights."""
    return read_weights(state, config, LIGHTCONV_NAMES, tied_embeddings(config))


LIGHTCONV: Final = Family(LIGHTCONV_OPTIONS, options, model_config, model_weights)
