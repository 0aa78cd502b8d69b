"""Convert T5 and its relatives (Flan-T5, mT5, UMT5, ByT5, MADLAD-400) to our configuration and weights.

They have RMS norms, no biases, and a relative attention bias that all layers of a side share (in UMT5 each
layer has its own). T5 does not scale the logits of attention, but scales its tied output: both differences
are folded into weights here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import CheckpointError
from export.importers.buckets import buckets
from export.importers.huggingface.family import (
    HF_ACTIVATIONS,
    Ids,
    TextPart,
    newer_writer,
    share,
    token_problems,
    transformer,
)
from export.importers.huggingface.files import ModelFolder, size_problems
from export.importers.weights import MOST_LAYERS, Names, Tensor, rename, same, tied_embeddings, untie

MAX_POSITIONS: Final = 1024  # T5 itself has no limit
T5_SIZES: Final = ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
BUCKETS, SPAN = "relative_attention_num_buckets", "relative_attention_max_distance"
SCALED: Final = "scale_decoder_outputs"  # since transformers 5; older ones scale if tied
SELF_ATTENTION: Final = r"^(%s\.)block\.(\d+)\.layer\.0\."
CROSS_ATTENTION: Final = r"^(%s\.)block\.(\d+)\.layer\.1\."


def _names() -> Names:
    """Return T5's names. Sub-blocks are numbered: self-attention, cross-attention (decoder), feed-forward."""
    table = []
    for side, norms in (("encoder", ("layer_norm1", "layer_norm2")), ("decoder", ("conv_layer_norm", ""))):
        last = 1 if side == "encoder" else 2
        fed = rf"^({side}\.)block\.(\d+)\.layer\.{last}\."
        norm = norms[1] or "final_layer_norm"
        table += [
            (SELF_ATTENTION % side + r"SelfAttention\.o\.", r"\1layers.\2.self_attn.out_proj."),
            (SELF_ATTENTION % side + r"SelfAttention\.([qkv])\.", r"\1layers.\2.self_attn.\3_proj."),
            (
                SELF_ATTENTION % side + r"SelfAttention\.relative_attention_bias\.",
                r"\1layers.\2.self_attn.relative.",
            ),
            (SELF_ATTENTION % side + r"layer_norm\.", rf"\1layers.\2.{norms[0]}."),
            (fed + r"DenseReluDense\.wi_0\.", r"\1layers.\2.ffn_gate."),
            (fed + r"DenseReluDense\.wi(_1)?\.", r"\1layers.\2.fc1."),
            (fed + r"DenseReluDense\.wo\.", r"\1layers.\2.fc2."),
            (fed + r"layer_norm\.", rf"\1layers.\2.{norm}."),
            (rf"^({side}\.)final_layer_norm\.", r"\1layer_norm."),
        ]
    table += [
        (CROSS_ATTENTION % "decoder" + r"EncDecAttention\.o\.", r"\1layers.\2.encoder_attn.out_proj."),
        (CROSS_ATTENTION % "decoder" + r"EncDecAttention\.([qkv])\.", r"\1layers.\2.encoder_attn.\3_proj."),
        (CROSS_ATTENTION % "decoder" + r"layer_norm\.", r"\1layers.\2.encoder_attn_layer_norm."),
        (r"^lm_head\.weight$", "decoder.output_projection.weight"),
    ]
    renamed = tuple((re.compile(pattern), new) for pattern, new in table)
    # the first releases stored an unused bias of cross-attention
    return Names(renamed, re.compile(r"EncDecAttention\.relative_attention_bias\."))


T5_NAMES: Final = _names()


def check(folder: ModelFolder) -> None:
    """Raise CheckpointError with every unsupported setting of config.json."""
    config = folder.config
    problems = size_problems(config, T5_SIZES)
    if _feed_forward(config)[1] not in HF_ACTIVATIONS:
        problems.append(f"feed_forward_proj {config.get('feed_forward_proj')!r} is not known")
    for name in (BUCKETS, SPAN):
        if not (type(config.get(name, 32)) is int and 4 <= config.get(name, 32) <= 4096):
            problems.append(f"{name} = {config[name]!r} is not a valid number of distances")
    problems += token_problems(config)
    layers = config.get("num_decoder_layers")
    if layers is not None and (type(layers) is not int or not 0 < layers <= MOST_LAYERS):
        problems.append(f"num_decoder_layers = {layers!r} is not a valid size")
    epsilon = config.get("layer_norm_epsilon", 1e-6)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        problems.append(f"layer_norm_epsilon = {epsilon!r} is not a number between 0 and 1")
    if folder.rules.get("forced_bos_token_id") is not None:
        problems.append("forced_bos_token_id has no counterpart in this family")
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
    named, problems = rename(tensors, T5_NAMES)
    share(named, problems)
    own = folder.config

    def fields() -> dict[str, Any]:
        return {
            "encoder": _stack(own, own["num_layers"]),
            "decoder": _stack(own, own.get("num_decoder_layers") or own["num_layers"]),
            "bos": _begin(own, text),
            "token_positions": False,
            "scale_embeddings": False,
            "share_output": _is_tied(folder, named),
        }

    start = folder.rules.get("decoder_start_token_id")
    config = transformer(
        folder.path,
        own,
        Ids(own["pad_token_id"] if start is None else start, text.unk),
        MAX_POSITIONS,
        fields,
    )
    problems += untie(named, tied_embeddings(config))
    width = folder.config["d_kv"]
    for name, weight in named.items():
        if name.endswith(".q_proj.weight"):
            named[name] = weight.astype(np.float32) * np.float32(width**0.5)
        elif name.endswith(".self_attn.relative.weight"):
            if weight.shape != (folder.config.get(BUCKETS, 32), folder.config["num_heads"]):
                problems.append(f"{name} has the shape {tuple(weight.shape)}")
                continue
            count, span = folder.config.get(BUCKETS, 32), folder.config.get(SPAN, 128)
            named[name] = weight[buckets(count, span, causal=name.startswith("decoder."))]
    if _scales_output(folder) and "decoder.layer_norm.weight" in named:
        scale = folder.config["d_model"] ** -0.5
        norm = named["decoder.layer_norm.weight"]
        named["decoder.layer_norm.weight"] = norm.astype(np.float32) * np.float32(scale)
    return config, named, problems


def _begin(config: Mapping[str, Any], text: TextPart) -> int | None:
    """Return the symbol before the sources of CodeT5, which its answers repeat; None in all others."""
    bos, others = config.get("bos_token_id"), (config["pad_token_id"], config["eos_token_id"], text.unk)
    return bos if text.settings["kind"] == "byte-bpe" and type(bos) is int and bos not in others else None


def _scales_output(folder: ModelFolder) -> bool:
    """Return whether the decoder's output is scaled: if tied, except mT5 by `transformers` 5."""
    tied = bool(folder.config.get("tie_word_embeddings", True))
    newer = folder.config.get("model_type") == "mt5" and newer_writer(folder.config)
    return bool(folder.config.get(SCALED, tied and not newer))


def _is_tied(folder: ModelFolder, named: Mapping[str, Tensor]) -> bool:
    """Return whether the output is the shared table; `transformers` 5 calls every T5 tied, right or wrong."""
    head, table = named.get("decoder.output_projection.weight"), named.get("decoder.embed_tokens.weight")
    if newer_writer(folder.config) or SCALED in folder.config:
        return head is None or table is None or same(head, table)
    return bool(folder.config.get("tie_word_embeddings", True))


def _feed_forward(config: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether there is a gate, and the activation, from a setting such as "gated-gelu"."""
    kind = str(config.get("feed_forward_proj", "relu"))
    gated, name = kind.startswith("gated-"), kind.removeprefix("gated-")
    return gated, "gelu_new" if kind == "gated-gelu" else name


def _stack(config: Mapping[str, Any], layers: int) -> StackConfig:
    """Return the configuration of a side."""
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
        relative_each=config["model_type"] == "umt5",
        biases=False,
        ffn_gate=gated,
        activation=HF_ACTIVATIONS[act],
        rms_norm=True,
        norm_eps=config.get("layer_norm_epsilon", 1e-6),
    )
