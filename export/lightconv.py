"""The map of fairseq's `lightconv` family (LightConv and DynamicConv) to ours: options and weights.

Names and defaults: REFERENCE.md 2.3 and 8. Every problem of a checkpoint is reported in one error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import ModelConfig, StackConfig
from engine.errors import ConfigError
from engine.models import build, weight_shapes

BASE: Final[dict[str, Any]] = {
    "encoder_embed_dim": 512,
    "encoder_ffn_embed_dim": 2048,
    "encoder_layers": 7,
    "encoder_attention_heads": 8,
    "encoder_kernel_size_list": [3, 7, 15, 31, 31, 31, 31],
    "decoder_layers": 6,
    "decoder_attention_heads": 8,
    "decoder_kernel_size_list": [3, 7, 15, 31, 31, 31],
    "weight_softmax": True,
    "share_decoder_input_output_embed": False,
    "share_all_embeddings": False,
    "no_token_positional_embeddings": False,
    "max_source_positions": 1024,
    "max_target_positions": 1024,
    **{f"{side}_glu": True for side in ("encoder", "decoder")},
    **{f"{side}_conv_type": "dynamic" for side in ("encoder", "decoder")},
    **{f"{side}_normalize_before": False for side in ("encoder", "decoder")},
    **{f"{side}_learned_pos": False for side in ("encoder", "decoder")},
}
INHERITED: Final = {  # an option that is absent takes the value of another
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "encoder_conv_dim": "encoder_embed_dim",
    "decoder_conv_dim": "decoder_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}
BIG: Final = {
    "encoder_embed_dim": 1024,
    "encoder_ffn_embed_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
}
ARCHITECTURES: Final[dict[str, dict[str, Any]]] = {
    "lightconv": {},
    "lightconv_iwslt_de_en": {
        "encoder_ffn_embed_dim": 1024,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_glu": False,
        "decoder_glu": False,
    },
    "lightconv_wmt_en_de": {},
    "lightconv_wmt_en_de_big": BIG,
    "lightconv_wmt_en_fr_big": BIG,
    "lightconv_wmt_zh_en_big": BIG,
}
# options that change the arithmetic and that this importer does not carry over, with their harmless values
NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "task": (None, "translation"),
    "activation_fn": (None, "relu"),
    "adaptive_softmax_cutoff": (None,),
    **dict.fromkeys(
        (
            "adaptive_input",
            "character_embeddings",
            "cross_self_attention",
            "layernorm_embedding",
            "no_cross_attention",
            "no_scale_embedding",
            "renorm_padding",
            "tie_adaptive_proj",
            "tie_adaptive_weights",
        ),
        (None, False),
    ),
}
LONGEST: Final = 65_536  # positions; a table of them is made for every model
RENAMED: Final = (
    (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.0\."), r"\1layer_norm1."),
    (re.compile(r"^(encoder\.layers\.\d+\.)layer_norms\.1\."), r"\1layer_norm2."),
    (re.compile(r"^decoder\.embed_out$"), "decoder.output_projection.weight"),
)
# conv_bias is unused and never initialised; the others are markers of versions and of generated tables
DROPPED: Final = re.compile(
    r"^(encoder|decoder)\.version$|\.embed_positions\.(_float_tensor|weights)$|\.conv\.conv_bias$"
)
JOINT: Final = re.compile(r"\.in_proj_(weight|bias)$")


def options(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """All options of the model, absent ones by its architecture's defaults, and what is wrong with them."""
    arch = given.get("arch")
    if arch not in ARCHITECTURES:
        return {}, [f"architecture {arch!r} is not supported; supported are {', '.join(ARCHITECTURES)}"]
    problems = [
        f"{name} = {given[name]!r} is not supported"
        for name, harmless in NEUTRAL.items()
        if name in given and given[name] not in harmless
    ]
    defaults = {**BASE, **ARCHITECTURES[arch]}
    values: dict[str, Any] = {}
    for name, default in defaults.items():
        found = given.get(name)
        values[name] = default if found is None else _like(default, found)
    for name, other in INHERITED.items():
        found = given.get(name)
        values[name] = values[other] if found is None else _like(values[other], found)
    problems += [f"{name} = {given[name]!r} is not understood" for name, v in values.items() if v is None]
    for name in ("max_source_positions", "max_target_positions"):
        if values[name] and values[name] > LONGEST:
            problems.append(f"{name} = {values[name]} is beyond {LONGEST}")
    for side in ("encoder", "decoder"):
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


def model_weights(
    state: Mapping[str, Tensor], config: ModelConfig
) -> tuple[dict[str, NDArray[np.float32]], list[str]]:
    """The state dictionary under our names, of either era, and every weight that is missing, left over, of
    another shape, not finite, or said to be shared but different."""
    named, problems = _renamed(state)
    table = "decoder.embed_tokens.weight"
    ties = [("decoder.output_projection.weight", table)] if config.share_output else []
    ties += [(table, "encoder.embed_tokens.weight")] if config.share_embeddings else []
    for copy, original in ties:
        # release-era files leave the copy out; main keeps both
        if copy in named and original in named and not torch.equal(named[copy], named[original]):
            problems.append(f"{copy} differs from {original}, although the options say they are shared")
    for copy, original in ties:
        if original in named:
            named.pop(copy, None)
    with torch.device("meta"):
        wanted = weight_shapes(build(config))
    problems += [f"{name} is missing" for name in sorted(set(wanted) - set(named))]
    problems += [f"{name} is not part of the model" for name in sorted(set(named) - set(wanted))]
    for name, shape in wanted.items():
        if name in named and tuple(named[name].shape) != shape:
            problems.append(f"{name} has shape {tuple(named[name].shape)}, not {shape}")
    problems += [f"{n} holds values that are not finite" for n, w in named.items() if not w.isfinite().all()]
    return {name: weight.detach().to(torch.float32).numpy() for name, weight in named.items()}, problems


def _renamed(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    named: dict[str, Tensor] = {}
    problems = []
    for old, weight in state.items():
        if DROPPED.search(old):
            continue
        for name, part in _split(_rename(old), weight):
            if name in named:
                problems.append(f"{name} occurs under two names")
            named[name] = part
    return named, problems


def _rename(name: str) -> str:
    for pattern, replacement in RENAMED:
        name = pattern.sub(replacement, name)
    return name


def _split(name: str, weight: Tensor) -> list[tuple[str, Tensor]]:
    """Before fairseq 0.9 the projections of attention were one weight, rows q | k | v."""
    found = JOINT.search(name)
    if not found or not weight.dim() or weight.shape[0] % 3:
        return [(name, weight)]
    base = name[: found.start()]
    parts = zip("qkv", weight.chunk(3), strict=True)
    return [(f"{base}.{letter}_proj.{found[1]}", part.contiguous()) for letter, part in parts]


def _stack(values: Mapping[str, Any], side: str) -> StackConfig:
    embed = values[f"{side}_embed_dim"]
    decoder = side == "decoder"
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
        input_dim=values["decoder_input_dim"] if decoder and values["decoder_input_dim"] != embed else None,
        output_dim=values["decoder_output_dim"]
        if decoder and values["decoder_output_dim"] != embed
        else None,
    )


def _like(example: Any, value: Any) -> Any:
    """The value when it is of the example's type (old files hold booleans as strings too), else None."""
    if isinstance(example, bool):
        return {"True": True, "False": False}.get(str(value))
    if isinstance(example, list):
        fine = isinstance(value, list) and value and all(type(v) is int for v in value)
        return value if fine else None
    return value if type(value) is type(example) else None
