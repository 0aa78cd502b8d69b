"""BART and its relatives: mBART-50, PEGASUS, M2M-100, NLLB-200, as `transformers` computes them.

One stack with other options: where norms stand, which table of positions, whether embeddings are scaled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import CheckpointError
from export.importers.hf_files import ModelFolder, size_problems
from export.importers.hf_model import ACTIVATIONS, SIDES, TextPart, share, token_problems, transformer
from export.importers.maps import Names, rename, tied_embeddings

SIZES: Final = (
    "d_model",
    "vocab_size",
    "max_position_embeddings",
    *(f"{side}_{size}" for side in SIDES for size in ("layers", "attention_heads", "ffn_dim")),
)
NAMES: Final = Names(
    renamed=(
        (re.compile(r"^model\."), ""),
        (re.compile(r"^(encoder\.layers\.\d+\.)self_attn_layer_norm\."), r"\1layer_norm1."),
        (re.compile(r"^(encoder\.layers\.\d+\.)final_layer_norm\."), r"\1layer_norm2."),
        (re.compile(r"^(decoder\.layers\.\d+\.)self_attn_layer_norm\."), r"\1conv_layer_norm."),
        (re.compile(r"^lm_head\.weight$"), "decoder.output_projection.weight"),
        (re.compile(r"^final_logits_bias$"), "decoder.output_bias"),
    ),
    dropped=re.compile(r"\.embed_positions\.weights$"),  # a constant, where it was stored at all
)


@dataclass(frozen=True, slots=True)
class Variant:
    """What tells a relative from BART.

    learned: positions.
    first: the row of the first position; None: after padding's.
    paper: frequencies of the sines as in Vaswani et al.
    """

    pre_norm: bool
    embedding_norm: bool
    learned: bool
    first: int | None = None
    paper: bool = False


VARIANTS: Final = {
    "bart": Variant(pre_norm=False, embedding_norm=True, learned=True, first=2),
    "mbart": Variant(pre_norm=True, embedding_norm=True, learned=True, first=2),
    "pegasus": Variant(pre_norm=True, embedding_norm=False, learned=False, first=0, paper=True),
    "m2m_100": Variant(pre_norm=True, embedding_norm=False, learned=False),
}


def check(folder: ModelFolder) -> None:
    """Raise CheckpointError with everything in config.json that is not served."""
    config = folder.config
    problems = size_problems(config, SIZES)
    if config.get("activation_function") not in ACTIVATIONS:
        problems.append(f"activation_function {config.get('activation_function')!r} is not known")
    problems += token_problems(config)
    if config.get("model_type") != "mbart" and config.get("normalize_before"):
        problems.append("normalize_before is not of this family")
    if problems:
        raise CheckpointError(f"{folder.path}: can't be imported: {'; '.join(problems)}")


def _model_config(folder: ModelFolder, text: TextPart, *, output_bias: bool) -> ModelConfig:
    """Our configuration of a checked folder. Raises CheckpointError on impossible values."""
    config, rules = folder.config, folder.rules
    variant = VARIANTS[config["model_type"]]
    start, bos = rules.get("decoder_start_token_id"), config.get("bos_token_id")
    others = (config["pad_token_id"], config["eos_token_id"], text.unk)

    def own() -> dict[str, Any]:
        return {
            "encoder": stack(config, "encoder", variant),
            "decoder": stack(config, "decoder", variant),
            "output_bias": output_bias,
            "scale_embeddings": bool(config.get("scale_embedding", False)),
            "first_position": variant.first,
            "paper_sinusoids": variant.paper,
            "start": config["eos_token_id"] if start is None else start,
            "max_source": config["max_position_embeddings"],
            "max_target": config["max_position_embeddings"],
            "bos": bos if type(bos) is int and bos not in others else None,
            "unk": text.unk,
        }

    return transformer(folder.path, config, own)


def model_weights(
    folder: ModelFolder, tensors: Mapping[str, Tensor], text: TextPart
) -> tuple[ModelConfig, dict[str, Tensor], list[str]]:
    """Return the configuration that weights fit, these under our names, and what is wrong with them."""
    named, problems = rename(tensors, NAMES)
    share(named, problems)
    bias = named.pop("decoder.output_bias", None)
    if bias is not None and bool(bias.any()):
        named["decoder.output_bias"] = bias.reshape(-1)
    config = _model_config(folder, text, output_bias="decoder.output_bias" in named)
    for side, part in (("encoder", config.encoder), ("decoder", config.decoder)):
        if isinstance(part, StackConfig) and not part.learned_positions:
            named.pop(f"{side}.embed_positions.weight", None)
    for copy, _ in tied_embeddings(config):
        named.pop(copy, None)
    return config, named, problems


def stack(config: Mapping[str, Any], side: str, variant: Variant) -> StackConfig:
    """Make our configuration of a side. Raises ConfigError on impossible values."""
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
        activation=ACTIVATIONS[config["activation_function"]],
    )
