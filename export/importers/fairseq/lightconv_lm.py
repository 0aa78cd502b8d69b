"""Convert options and weights of fairseq's `lightconv_lm` to ours (docs/reference.md 3 and 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.bundle.adaptive import AdaptiveConfig, Bands
from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from export.importers.fairseq.options import (
    UNUSUAL,
    Family,
    Options,
    convolution_fields,
    defaults,
    equal_kernels,
    make_config,
    read_options,
)
from export.importers.weights import Names, Tensor, Weights, read_weights, tied_embeddings

LIGHTCONV_LM_BASE: Final[dict[str, Any]] = {
    "share_decoder_input_output_embed": False,
    "no_token_positional_embeddings": False,  # nosec B105 # an option of fairseq
    "adaptive_input": False,
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
}
LIGHTCONV_LM_FIELDS: Final = {
    "decoder_embed_dim": "decoder.embed_dim",
    "decoder_ffn_embed_dim": "decoder.ffn_dim",
    "decoder_layers": "decoder.layers",
    "decoder_attention_heads": "decoder.heads",
    "decoder_kernel_size_list": "decoder.kernel_sizes",
    "decoder_glu": "decoder.glu",
    "decoder_conv_type": "decoder.mixer",
    "decoder_learned_pos": "decoder.learned_positions",
    "weight_softmax": "decoder.weight_softmax",
    "max_target_positions": "max_target",
}
LIGHTCONV_LM_INHERITED: Final = {
    f"decoder_{part}_dim": "decoder_embed_dim" for part in ("conv", "input", "output")
}
LIGHTCONV_LM_ARCHITECTURES: Final = {
    name: defaults(name, LIGHTCONV_LM_FIELDS) for name in ("lightconv_lm", "lightconv_lm_gbw")
}
SUPPORTED: Final = ("adaptive_input", "adaptive_softmax_cutoff", "tie_adaptive_proj", "tie_adaptive_weights")
LIGHTCONV_LM_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    **{name: harmless for name, harmless in UNUSUAL.items() if name not in SUPPORTED},
    "task": (None, "language_modeling"),
    "activation_fn": (None, "relu"),
    "output_dictionary_size": (None, -1),
    **dict.fromkeys(
        (
            "add_bos_token",
            "layernorm_embedding",
            "no_scale_embedding",
            "past_target",
            "renorm_padding",
            "self_target",
        ),
        (None, False),
    ),
}
LIGHTCONV_LM_OPTIONS: Final = Options(
    LIGHTCONV_LM_BASE, LIGHTCONV_LM_INHERITED, LIGHTCONV_LM_ARCHITECTURES, LIGHTCONV_LM_NEUTRAL
)
EMBEDDINGS: Final = "decoder.embed_tokens.embeddings"
SOFTMAX: Final = "decoder.adaptive_softmax"
VERSION: Final = f"{SOFTMAX}.version"  # files without it have tails of another layout
LIGHTCONV_LM_NAMES: Final = Names(
    renamed=((re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),),
    dropped=re.compile(
        rf"^decoder\.version$|^{re.escape(VERSION)}$|\._float_tensor$|\.embed_positions\.weights$"
        r"|\.conv\.conv_bias$"
    ),
)


def options(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return all options of the model, and their problems.

    Absent options have their architecture's defaults. The result has two further options, `adaptive_softmax`
    and `adaptive_inputs`: their bands, or None.
    """
    if arguments.get("max_target_positions") is None:
        arguments = {**arguments, "max_target_positions": arguments.get("tokens_per_sample")}
    values, problems = read_options(arguments, LIGHTCONV_LM_OPTIONS)
    problems += equal_kernels(values, ("decoder",))
    for side, name, adaptive in (
        ("softmax", "softmax", arguments.get("adaptive_softmax_cutoff") is not None),
        ("input", "inputs", values["adaptive_input"]),
    ):
        values[f"adaptive_{name}"], finding = _bands(arguments, side) if adaptive else (None, None)
        problems += [finding] if finding else []
    return values, problems


def model_config(
    arguments: Mapping[str, Any], source_vocab: int, target_vocab: int
) -> tuple[ModelConfig | None, list[str]]:
    """Return the configuration that a checkpoint's options describe, or None and the problems.

    The model reads no source: `max_source` equals `max_target` and has no effect.

    arguments: options of the checkpoint.
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    """

    def make(values: Mapping[str, Any]) -> ModelConfig:
        longest = values["max_target_positions"]
        # fairseq ignores the file's option and normalises before each block
        stack = StackConfig(**convolution_fields(values, "decoder"), normalize_before=True, final_norm=False)
        return ModelConfig(
            architecture="lightconv_lm",
            source_vocab=source_vocab,
            target_vocab=target_vocab,
            encoder=None,
            decoder=stack,
            share_output=values["share_decoder_input_output_embed"] and not values["adaptive_softmax"],
            token_positions=not values["no_token_positional_embeddings"],
            max_source=longest,
            max_target=longest,
            adaptive=_adaptive(values, target_vocab),
        )

    return make_config(options(arguments), make)


def model_weights(state: Mapping[str, Tensor], config: ModelConfig) -> tuple[Weights, list[str]]:
    """Return a state dictionary under our names, and the problems of its weights."""
    adaptive, ties = config.adaptive, tied_embeddings(config)
    if adaptive and adaptive.softmax and adaptive.tie_weights:
        ties.append((f"{SOFTMAX}.head.word_proj.weight", f"{EMBEDDINGS}.0.0.weight"))
        for tail in range(len(adaptive.softmax.cutoffs)):
            ties.append((f"{SOFTMAX}.tail.{tail}.2.weight", f"{EMBEDDINGS}.{tail + 1}.0.weight"))
            if adaptive.tie_projections:
                ties.append((f"{SOFTMAX}.tail.{tail}.0.weight", f"{EMBEDDINGS}.{tail + 1}.1.weight"))
    weights, problems = read_weights(state, config, LIGHTCONV_LM_NAMES, ties)
    if adaptive and adaptive.softmax and VERSION not in state:
        problems.append(f"{VERSION} is missing: the adaptive softmax is of a fairseq before 0.6")
    return weights, problems


def _adaptive(values: Mapping[str, Any], vocab: int) -> AdaptiveConfig | None:
    """Return the configuration of adaptive softmax and inputs; None without both."""
    softmax, inputs = (
        _within_vocabulary(values[name], vocab) for name in ("adaptive_softmax", "adaptive_inputs")
    )
    if softmax is inputs is None:
        return None
    tied = bool(values["tie_adaptive_weights"])
    # without tied weights fairseq leaves the projections alone
    return AdaptiveConfig(softmax, inputs, tied, tied and bool(values["tie_adaptive_proj"]))


def _within_vocabulary(bands: Bands | None, vocab: int) -> Bands | None:
    """Return the bands without a last cutoff that equals the size of the vocabulary: that band is empty."""
    if bands is None or bands.cutoffs[-1] != vocab:
        return bands
    return Bands(bands.cutoffs[:-1], bands.factor)


def _bands(arguments: Mapping[str, Any], side: str) -> tuple[Bands | None, str | None]:
    """Return the bands of token ids of an adaptive softmax or input, or the problem of the options.

    arguments: options of the checkpoint; cutoffs are a list, or text such as "[40, 80]".
    side: "softmax" or "input".
    """
    cutoffs, factor = arguments.get(f"adaptive_{side}_cutoff"), arguments.get(f"adaptive_{side}_factor")
    bounds = cutoffs
    if isinstance(cutoffs, str):
        parts = [part.strip() for part in cutoffs.strip("[]() ").rstrip(",").split(",")]
        bounds = [int(part) for part in parts] if all(part.isdecimal() for part in parts) else None
    if not isinstance(bounds, (list, tuple)) or not bounds or not all(type(c) is int for c in bounds):
        return None, f"adaptive_{side}_cutoff = {cutoffs!r} is not understood"
    factor = 4 if factor is None else factor
    if type(factor) not in (int, float):
        return None, f"adaptive_{side}_factor = {factor!r} is not understood"
    return Bands(tuple(bounds), float(factor)), None


LIGHTCONV_LM: Final = Family(LIGHTCONV_LM_OPTIONS, options, model_config, model_weights)
