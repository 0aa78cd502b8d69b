"""Convert options and variables of averaged attention networks in their authors' code
(bzhangGo/transformer-aan, based on THUMT) to ours.

Variables are arrays by the names of TensorFlow's `tf.train.load_checkpoint`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.errors import CheckpointError, ConfigError
from engine.models import build, weight_shapes

AAN_SIZES: Final = ("hidden_size", "filter_size", "num_heads", "num_encoder_layers", "num_decoder_layers")
# unsupported options that change the arithmetic, with the values that have no effect
AAN_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "position_info_type": (None, "timing"),
    "multiply_embedding_mode": (None, "sqrt_depth"),
    "attention_key_channels": (None, 0),
    "attention_value_channels": (None, 0),
}
NORM_EPS: Final = 1e-6
# variables of training: Adam's moments and powers, the number of the step
TRAINING: Final = re.compile(r"(^|/)(Adam(_\d+)?|beta[12]_power|global_step|loss_scale.*)$")
AAN_ROOT: Final = "transformer/"


def config(options: Mapping[str, Any], vocabularies: tuple[int, int], unk: int | None = 2) -> ModelConfig:
    """Return the configuration of a model with these hyper-parameters.

    options: hyper-parameters by name; `pad_id` and `eos_id` are 0 and 1 if absent.
    vocabularies: number of source and of target tokens.
    unk: id of the unknown symbol; None: there is none.

    Raises CheckpointError that names every unsupported option.
    """
    problems = [
        f"{name} = {options.get(name)!r} is not a valid size"
        for name in AAN_SIZES
        if not _is_size(options.get(name))
    ]
    problems += [
        f"{name} = {options[name]!r} is not supported"
        for name, harmless in AAN_NEUTRAL.items()
        if name in options and options[name] not in harmless
    ]
    norms = options.get("layer_preprocess", "none"), options.get("layer_postprocess", "layer_norm")
    if norms not in (("none", "layer_norm"), ("layer_norm", "none")):
        problems.append(
            "layer_preprocess or layer_postprocess must be 'layer_norm', and the other one 'none'"
        )
    if problems:
        raise CheckpointError("can't be imported: " + "; ".join(problems))
    tied = bool(options.get("shared_embedding_and_softmax_weights", False))
    try:
        return ModelConfig(
            architecture="aan",
            source_vocab=vocabularies[0],
            target_vocab=vocabularies[1],
            encoder=_stack(options, "encoder", norms[0] == "layer_norm"),
            decoder=_stack(options, "decoder", norms[0] == "layer_norm"),
            share_embeddings=bool(options.get("shared_source_target_embedding", False)),
            share_output=tied,
            first_position=0,
            source_bias=True,
            zero_start=True,
            bos=None,
            pad=options.get("pad_id", 0),
            eos=options.get("eos_id", 1),
            unk=unk,
        )
    except ConfigError as error:
        raise CheckpointError(str(error)) from error


def weights(variables: Mapping[str, NDArray[Any]], config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Return the model's weights by our names.

    Raises CheckpointError that lists every variable that is missing, left over, misshapen or not finite.
    """
    with torch.device("meta"):
        shapes = weight_shapes(build(config))
    arrays, used = rename_weights(variables, config)
    problems = [f"{name} is missing" for name in sorted(used - set(variables))]
    model_variables = {name for name in variables if not TRAINING.search(name)}
    problems += [f"{name} is not part of the model" for name in sorted(model_variables - used)]
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            problems.append(f"{name} has shape {array.shape}, not {shapes[name]}")
        elif not np.isfinite(array).all():
            problems.append(f"{name} holds values that are not finite")
    if problems:
        raise CheckpointError("the variables do not fit the options: " + "; ".join(problems))
    assert set(arrays) == set(shapes), (
        "export/importers/tensorflow/aan.py names all weights of the architecture"
    )
    return arrays


def rename_weights(
    variables: Mapping[str, NDArray[Any]], config: ModelConfig
) -> tuple[dict[str, NDArray[np.float32]], set[str]]:
    """Return the weights that `variables` holds by our names, and the names of all variables of the model."""
    arrays, used = {}, set()
    for ours, theirs, part, parts in _names(config):
        used.add(AAN_ROOT + theirs)
        if AAN_ROOT + theirs in variables:
            array = variables[AAN_ROOT + theirs]
            piece = np.array_split(array, parts, axis=-1)[part] if parts > 1 else array
            transposed = piece.T if theirs.endswith("/matrix") else piece
            arrays[ours] = np.ascontiguousarray(transposed, dtype=np.float32)
    return arrays, used


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _stack(options: Mapping[str, Any], side: str, normalize_before: bool) -> StackConfig:
    """Return the configuration of a side."""
    has_ffn = bool(options.get("use_ffn", False))
    return StackConfig(
        embed_dim=options["hidden_size"],
        conv_dim=options["hidden_size"],
        ffn_dim=options["filter_size"],
        heads=options["num_heads"],
        kernel_sizes=(0,) * options[f"num_{side}_layers"],
        mixer="attention" if side == "encoder" else "average",
        glu=False,
        normalize_before=normalize_before,
        norm_eps=NORM_EPS,
        average_ffn=options["filter_size"] if has_ffn and side == "decoder" else 0,
        average_norm=has_ffn or side == "encoder",
    )


def _names(config: ModelConfig) -> Iterator[tuple[str, str, int, int]]:
    """Yield our name, the variable's name, the part and the number of equal column parts of every weight."""
    shared = config.share_embeddings
    yield "encoder.bias", "bias", 0, 1
    yield "encoder.embed_tokens.weight", "weights" if shared else "source_embedding", 0, 1
    if not shared:
        yield "decoder.embed_tokens.weight", "target_embedding", 0, 1
    if not config.share_output:
        yield "decoder.output_projection.weight", "softmax", 0, 1
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        assert isinstance(stack, StackConfig)
        for layer in range(stack.layers):
            blocks = _encoder_layer() if side == "encoder" else _decoder_layer(stack)
            for ours, theirs, part, parts in blocks:
                yield f"{side}.layers.{layer}.{ours}", f"{side}/layer_{layer}/{theirs}", part, parts
        if stack.normalize_before:
            for ours, theirs, *whole in _norm("layer_norm", "layer_norm"):
                yield f"{side}.{ours}", f"{side}/{theirs}", whole[0], whole[1]


Names = Iterator[tuple[str, str, int, int]]


def _encoder_layer() -> Names:
    """Yield the names of an encoder layer, like `_names`."""
    attention = "self_attention/multihead_attention"
    for part, letter in enumerate("qkv"):
        yield from _linear(f"self_attn.{letter}_proj", f"{attention}/qkv_transform", part, 3)
    yield from _linear("self_attn.out_proj", f"{attention}/output_transform")
    yield from _norm("layer_norm1", "self_attention/layer_norm")
    yield from _feed_forward("fc1", "fc2", "feed_forward")
    yield from _norm("layer_norm2", "feed_forward/layer_norm")


def _decoder_layer(stack: StackConfig) -> Names:
    """Yield the names of a decoder layer, like `_names`."""
    if stack.average_ffn:
        yield from _feed_forward("average_hidden.0", "average_out", "position_forward")
    yield from _linear("gates", "position_forward/z_project")
    if stack.average_norm or not stack.normalize_before:
        yield from _norm("conv_layer_norm", "position_forward/layer_norm")
    attention = "encdec_attention/multihead_attention"
    yield from _linear("encoder_attn.q_proj", f"{attention}/q_transform")
    for part, letter in enumerate("kv"):
        yield from _linear(f"encoder_attn.{letter}_proj", f"{attention}/kv_transform", part, 2)
    yield from _linear("encoder_attn.out_proj", f"{attention}/output_transform")
    yield from _norm("encoder_attn_layer_norm", "encdec_attention/layer_norm")
    yield from _feed_forward("fc1", "fc2", "feed_forward")
    yield from _norm("final_layer_norm", "feed_forward/layer_norm")


def _linear(ours: str, theirs: str, part: int = 0, parts: int = 1) -> Names:
    yield f"{ours}.weight", f"{theirs}/matrix", part, parts
    yield f"{ours}.bias", f"{theirs}/bias", part, parts


def _norm(ours: str, theirs: str) -> Names:
    yield f"{ours}.weight", f"{theirs}/scale", 0, 1
    yield f"{ours}.bias", f"{theirs}/offset", 0, 1


def _feed_forward(hidden: str, out: str, theirs: str) -> Names:
    yield from _linear(hidden, f"{theirs}/ffn_layer/input_layer/linear")
    yield from _linear(out, f"{theirs}/ffn_layer/output_layer/linear")
