"""Convert hyperparameters and variables of tensor2tensor's SliceNet to ours.

Names and shapes of the variables are those of tensor2tensor/models/slicenet.py. Functions never
guess: they return their result and a list of all problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.bundle.config import ModelConfig
from engine.bundle.presets import SLICE_DILATIONS, SLICE_KERNELS
from engine.bundle.stacks import SLICE_ATTENTION, SliceStack
from engine.errors import ConfigError
from engine.models import build
from engine.models.layers import Attention
from engine.models.separable import Block, ConvStep, SuperSeparable

Array = NDArray[np.float32]
SLICENET_ROOT: Final = "slice_net"
BODY: Final = f"{SLICENET_ROOT}/body/slicenet"
PROJECTIONS: Final = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "output_transform"}
WHOLE: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_heads",
    "large_kernel_size",
    "separability",
    "target_space_id",
    "vocab_in",
    "vocab_out",
)
# hyperparameters that change the arithmetic, and their only supported values
FIXED: Final[dict[str, Any]] = {"kernel_height": 3, "kernel_width": 1, "norm_type": "layer"}


def model_config(hyperparameters: Mapping[str, Any]) -> tuple[ModelConfig | None, list[str]]:
    """Return the configuration that t2t's hyperparameters describe, or None and the problems.

    Vocabularies of different sizes disable the sharing of embeddings, as in t2t.

    hyperparameters: hyperparameters by name, with the sizes of the vocabularies (`vocab_in`, `vocab_out`)
        and the `target_space_id`.
    """
    problems = [
        f"{name} must be a whole number, not {hyperparameters.get(name)!r}"
        for name in WHOLE
        if not _whole(hyperparameters, name)
    ]
    problems += [
        f"{k} = {hyperparameters[k]!r} is not supported"
        for k, v in FIXED.items()
        if hyperparameters.get(k, v) != v
    ]
    attention = hyperparameters.get("attention_type", "transformer")
    if attention not in SLICE_ATTENTION:
        problems.append(f"attention_type {attention!r} is none of {', '.join(SLICE_ATTENTION)}")
    if problems:
        return None, problems
    dim, layers = hyperparameters["hidden_size"], hyperparameters["num_hidden_layers"]
    kernel_sizes, dilations = layer_scheme(hyperparameters)
    shape = {
        "embed_dim": dim,
        "kernel_sizes": kernel_sizes,
        "dilations": dilations,
        "separability": hyperparameters["separability"],
        "norm_eps": hyperparameters.get("norm_epsilon", 1e-6),
    }
    reads = attention != "none"
    vocab_in, vocab_out = hyperparameters["vocab_in"], hyperparameters["vocab_out"]
    shared = bool(hyperparameters.get("shared_embedding_and_softmax_weights")) and vocab_in == vocab_out
    try:
        config = ModelConfig(
            architecture="slicenet",
            source_vocab=vocab_in if reads else vocab_out,
            target_vocab=vocab_out,
            encoder=SliceStack(layers=layers * 3 // 2, **shape) if reads else None,
            decoder=SliceStack(
                layers=layers,
                attention=attention,
                heads=hyperparameters["num_heads"] if attention == "transformer" else 1,
                target_space=hyperparameters["target_space_id"],
                **shape,
            ),
            share_embeddings=shared and reads,
            share_output=shared,
            scale_embeddings=hyperparameters.get("multiply_embedding_mode", "sqrt_depth") == "sqrt_depth",
            bos=None,
            pad=0,
            eos=1,
            unk=None,
        )
    except ConfigError as error:
        return None, [str(error)]
    return config, []


def layer_scheme(hyperparameters: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the kernel widths and dilations of a layer.

    The longer scheme is cut to the length of the shorter. Unknown names mean two kernels of width 3 and two
    of `large_kernel_size`, the last with dilation 4.
    """
    kernels = SLICE_KERNELS.get(hyperparameters.get("kernel_scheme", ""))
    dilations = SLICE_DILATIONS.get(hyperparameters.get("dilation_scheme", ""))
    if kernels is None or dilations is None:
        large = hyperparameters["large_kernel_size"]
        return (3, 3, large, large), (1, 1, 1, 4)
    length = min(len(kernels), len(dilations))
    return kernels[:length], dilations[:length]


def weights(variables: Mapping[str, NDArray[Any]], config: ModelConfig) -> tuple[dict[str, Array], list[str]]:
    """Return t2t's variables by our names, and a problem for each that is missing, left over or misshapen.

    The encoder's variables are dropped if the decoder has no attention.
    """
    rest = dict(variables)
    if config.encoder is None:
        rest = {name: variable for name, variable in rest.items() if not _of_encoder(name)}
    problems: list[str] = []
    tensors: dict[str, Array] = {}
    with torch.device("meta"):
        model = build(config)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    for name, parts in _names(model, config):
        missing = set(parts) - set(rest)
        problems += [f"{part} is missing" for part in sorted(missing)]
        arrays = [np.asarray(rest.pop(part), np.float32) for part in parts if part not in missing]
        weight = None if missing else _assemble_weight(arrays, name)
        if weight is not None and weight.shape == shapes[name]:
            tensors[name] = weight
        elif not missing:
            sizes = ", ".join(str(a.shape) for a in arrays)
            problems.append(f"{parts[0]} has shape {sizes}, which does not fit {name} {shapes[name]}")
    return tensors, problems + [f"{name} is not part of the model" for name in sorted(rest)]


def _of_encoder(name: str) -> bool:
    return name.startswith(f"{BODY}/encoder/") or name.endswith("/input_emb/weights_0")


def _assemble_weight(arrays: Sequence[Array], name: str) -> Array | None:
    """Return a weight made of its variable, or of one variable for each group; None if a rank is wrong."""
    if name.endswith(".depthwise"):  # [K, 1, C / g, 1] each
        if any(a.ndim != 4 or a.shape[1] != 1 or a.shape[3] != 1 for a in arrays):
            return None
        return np.concatenate([a[:, 0, :, 0] for a in arrays], axis=1)
    (array,) = arrays
    if array.ndim == 4:  # [K, 1, in, out]
        return np.ascontiguousarray(array.reshape(-1, array.shape[3]).T) if array.shape[1] == 1 else None
    transposed = array.ndim == 2 and name.rpartition(".")[0].endswith("_proj")
    return np.ascontiguousarray(array.T if transposed else array)


def _names(model: nn.Module, config: ModelConfig) -> Iterator[tuple[str, list[str]]]:
    """Yield each of our weights with the names of its variables."""
    yield from _tables(config)
    for path, module in model.named_modules():
        if isinstance(module, Block):
            for i, step in enumerate(module.steps):
                assert isinstance(step, ConvStep)
                yield from _step(f"{path}.steps.{i}", step, f"{BODY}/{_scope(path)}", i)
        elif isinstance(module, Attention):
            kind = "self_attention" if path.endswith("self_attn") else "encdec_attention"
            at = f"{BODY}/{_scope(path.rpartition('.')[0])}{kind}"
            yield from ((f"{path}.{p}.weight", [f"{at}/{q}/kernel"]) for p, q in PROJECTIONS.items())


def _tables(config: ModelConfig) -> Iterator[tuple[str, list[str]]]:
    """Yield embeddings and output projection with the names of their variables."""
    decoder = config.decoder
    assert decoder is not None
    yield "decoder.target_space.weight", [f"{BODY}/target_space_embedding/kernel"]

    def table(vocab: int, kind: str) -> list[str]:
        return [f"{SLICENET_ROOT}/symbol_modality_{vocab}_{decoder.embed_dim}/{kind}/weights_0"]

    if config.share_output:
        side = "encoder" if config.encoder is not None else "decoder"
        yield f"{side}.embed_tokens.weight", table(config.target_vocab, "shared")
        return
    if config.encoder is not None:
        yield "encoder.embed_tokens.weight", table(config.source_vocab, "input_emb")
    yield "decoder.embed_tokens.weight", table(config.target_vocab, "target_emb")
    yield "decoder.output_projection.weight", table(config.target_vocab, "softmax")


def _scope(path: str) -> str:
    """Return t2t's scope of a module of ours, with a final slash; `decoder.attentions.0` is in the middle."""
    side, *rest = path.split(".")
    if rest[0] == "merge":
        return "targets_merge/"
    number, part = int(rest[1]), "".join(f"{name}/" for name in rest[2:])
    if rest[0] == "attentions":
        return part if number == 0 else f"{side}/layer_{number - 1}/{part}"
    return f"{side}/layer_{number}/{part}"


def _step(path: str, step: ConvStep, scope: str, i: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the weights of one convolution step with the names of their variables."""
    norm = f"{scope}conv_block_norm_{i}/layer_norm/layer_norm"
    yield f"{path}.norm.weight", [f"{norm}_scale"]
    yield f"{path}.norm.bias", [f"{norm}_bias"]
    groups = max(1, abs(step.kernel.separability))
    parts = [f"{scope}part_{j}/" for j in range(groups)] if step.kernel.separability else [scope]
    convolutions = [f"{part}conv_block_{i}_single" for part in parts]
    if isinstance(step.conv, SuperSeparable):
        yield f"{path}.conv.depthwise", [f"{at}/depthwise_kernel" for at in convolutions]
        each = "pointwise", "pointwise_kernel"
    else:
        each = "parts", "kernel"
        if groups > 1:
            mix = f"{scope}conv2d_{i}" if i else f"{scope}conv2d"
            yield f"{path}.conv.mix.weight", [f"{mix}/kernel"]
            yield f"{path}.conv.mix.bias", [f"{mix}/bias"]
    for j, at in enumerate(convolutions):
        yield f"{path}.conv.{each[0]}.{j}.weight", [f"{at}/{each[1]}"]


def _whole(hyperparameters: Mapping[str, Any], name: str) -> bool:
    return type(hyperparameters.get(name)) is int
