"""T5 and its relatives (Flan-T5, mT5, ByT5, MADLAD-400), as `transformers` computes them.

Norms by the root mean square, no biases, a bias of attention by distance that all layers of a side share. T5
does not scale the logits of attention, and its tied output is scaled: both are folded into weights here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import CheckpointError
from export.importers.buckets import buckets
from export.importers.hf_files import ModelFolder, size_problems
from export.importers.hf_model import ACTIVATIONS, TextPart, token_problems, transformer
from export.importers.maps import Names, rename, tied_embeddings

LIMIT: Final = 1024  # positions; the arithmetic knows none
SIZES: Final = ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
BUCKETS, SPAN = "relative_attention_num_buckets", "relative_attention_max_distance"
BIAS: Final = "relative_attention_bias.weight"
OWN, ACROSS, FED = r"^(%s\.)block\.(\d+)\.layer\.0\.", r"^(%s\.)block\.(\d+)\.layer\.1\.", "DenseReluDense."


def _names() -> Names:
    """T5 numbers a block's sub-blocks: attention 0, over the source 1 (in the decoder), then feed-forward."""
    table = []
    for side, norms in (("encoder", ("layer_norm1", "layer_norm2")), ("decoder", ("conv_layer_norm", ""))):
        last = 1 if side == "encoder" else 2
        fed = rf"^({side}\.)block\.(\d+)\.layer\.{last}\."
        norm = norms[1] or "final_layer_norm"
        table += [
            (OWN % side + r"SelfAttention\.o\.", r"\1layers.\2.self_attn.out_proj."),
            (OWN % side + r"SelfAttention\.([qkv])\.", r"\1layers.\2.self_attn.\3_proj."),
            (OWN % side + r"SelfAttention\.relative_attention_bias\.", r"\1layers.\2.self_attn.relative."),
            (OWN % side + r"layer_norm\.", rf"\1layers.\2.{norms[0]}."),
            (fed + r"DenseReluDense\.wi_0\.", r"\1layers.\2.ffn_gate."),
            (fed + r"DenseReluDense\.wi(_1)?\.", r"\1layers.\2.fc1."),
            (fed + r"DenseReluDense\.wo\.", r"\1layers.\2.fc2."),
            (fed + r"layer_norm\.", rf"\1layers.\2.{norm}."),
            (rf"^({side}\.)final_layer_norm\.", r"\1layer_norm."),
        ]
    table += [
        (ACROSS % "decoder" + r"EncDecAttention\.o\.", r"\1layers.\2.encoder_attn.out_proj."),
        (ACROSS % "decoder" + r"EncDecAttention\.([qkv])\.", r"\1layers.\2.encoder_attn.\3_proj."),
        (ACROSS % "decoder" + r"layer_norm\.", r"\1layers.\2.encoder_attn_layer_norm."),
        (r"^lm_head\.weight$", "decoder.output_projection.weight"),
        (r"^shared\.weight$", "encoder.embed_tokens.weight"),
    ]
    renamed = tuple((re.compile(pattern), new) for pattern, new in table)
    # copies of the shared table, and the bias over the source that the first releases stored and never used
    dropped = r"^(en|de)coder\.embed_tokens\.weight$|EncDecAttention\.relative_attention_bias\."
    return Names(renamed, re.compile(dropped))


NAMES: Final = _names()


def check(folder: ModelFolder) -> None:
    """Raise CheckpointError with everything in config.json that is not served."""
    config = folder.config
    problems = size_problems(config, SIZES)
    if _feed_forward(config)[1] not in ACTIVATIONS:
        problems.append(f"feed_forward_proj {config.get('feed_forward_proj')!r} is not known")
    for name in (BUCKETS, SPAN):
        if not (type(config.get(name, 32)) is int and 4 <= config.get(name, 32) <= 4096):
            problems.append(f"{name} = {config[name]!r} is no number of distances")
    problems += token_problems(config)
    if problems:
        raise CheckpointError(f"{folder.path}: can't be imported: {'; '.join(problems)}")


def _model_config(folder: ModelFolder, text: TextPart) -> ModelConfig:
    config, start = folder.config, folder.rules.get("decoder_start_token_id")

    def own() -> dict[str, Any]:
        return {
            "encoder": _stack(config, config["num_layers"]),
            "decoder": _stack(config, config.get("num_decoder_layers") or config["num_layers"]),
            "token_positions": False,
            "scale_embeddings": False,
            "start": config["pad_token_id"] if start is None else start,
            "max_source": LIMIT,
            "max_target": LIMIT,
            "unk": text.unk,
        }

    return transformer(folder.path, config, own)


def model_weights(
    folder: ModelFolder, tensors: Mapping[str, Tensor], text: TextPart
) -> tuple[ModelConfig, dict[str, Tensor], list[str]]:
    """Return the configuration that weights fit, these under our names, and what is wrong with them."""
    config = _model_config(folder, text)
    named, problems = rename(tensors, NAMES)
    for copy, original in tied_embeddings(config):
        if original in named:
            named.pop(copy, None)
    width = folder.config["d_kv"]
    for name, weight in named.items():
        if name.endswith(".q_proj.weight"):
            named[name] = weight.float() * width**0.5
        elif name.endswith(".self_attn.relative.weight"):
            if weight.shape != (folder.config.get(BUCKETS, 32), folder.config["num_heads"]):
                problems.append(f"{name} has the shape {tuple(weight.shape)}")
                continue
            count, span = folder.config.get(BUCKETS, 32), folder.config.get(SPAN, 128)
            named[name] = weight[torch.from_numpy(buckets(count, span, causal=name.startswith("decoder.")))]
    if config.share_output and "decoder.layer_norm.weight" in named:
        scale = folder.config["d_model"] ** -0.5
        named["decoder.layer_norm.weight"] = named["decoder.layer_norm.weight"].float() * scale
    return config, named, problems


def _feed_forward(config: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether there is a gate, and the activation, of "relu" or "gated-gelu"."""
    kind = str(config.get("feed_forward_proj", "relu"))
    gated, name = kind.startswith("gated-"), kind.removeprefix("gated-")
    return gated, "gelu_new" if kind == "gated-gelu" else name


def _stack(config: Mapping[str, Any], layers: int) -> StackConfig:
    gated, act = _feed_forward(config)
    width = config["num_heads"] * config["d_kv"]
    return StackConfig(
        embed_dim=config["d_model"],
        conv_dim=config["d_model"],
        ffn_dim=config["d_ff"],
        heads=config["num_heads"],
        kernel_sizes=(0,) * layers,
        mixer="attention",
        glu=False,
        normalize_before=True,
        attention_dim=None if width == config["d_model"] else width,
        relative_span=config.get(SPAN, 128),
        biases=False,
        ffn_gate=gated,
        activation=ACTIVATIONS[act],
        rms_norm=True,
        norm_eps=config.get("layer_norm_epsilon", 1e-6),
    )
