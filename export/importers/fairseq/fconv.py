"""Convert options and weights of fairseq's `fconv` (ConvS2S) to ours (docs/reference.md 4 and 8).

Layers are written as Python expressions, "[(512, 3)] * 9 + [(1024, 3, 2)]", which are parsed and never run.
Weight normalisation is folded into plain weights.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from engine.bundle.config import SIDES, ModelConfig
from engine.bundle.stacks import ConvStack
from export.importers.fairseq.options import (
    UNUSUAL,
    Family,
    Options,
    defaults,
    make_config,
    read_options,
    separate_positions,
)
from export.importers.weights import (
    LARGEST_SIZE,
    MOST_LAYERS,
    Names,
    Tensor,
    Weights,
    fit_weights,
    rename,
    same,
)


def _defaults(name: str) -> dict[str, Any]:
    """Return the options of a preset, with layers as fairseq writes them."""
    dims = {f"{side}_embed_dim": f"{side}.embed_dim" for side in SIDES}
    values = defaults(name, {**dims, "decoder_out_embed_dim": "decoder.feature_dim"})
    for side in SIDES:
        parts = defaults(name, {"widths": f"{side}.widths", "kernels": f"{side}.kernel_sizes"})
        values[f"{side}_layers"] = str(list(zip(parts["widths"], parts["kernels"], strict=True)))
    return values


FCONV_BASE: Final[dict[str, Any]] = {
    "decoder_attention": "True",
    "share_input_output_embed": False,
    "max_source_positions": 1024,
    "max_target_positions": 1024,
}
FCONV_ARCHITECTURES: Final = {
    name: _defaults(name)
    for name in ("fconv", "fconv_iwslt_de_en", "fconv_wmt_en_ro", "fconv_wmt_en_de", "fconv_wmt_en_fr")
}
FCONV_OPTIONS: Final = Options(FCONV_BASE, {}, FCONV_ARCHITECTURES, UNUSUAL)
FCONV_NAMES: Final = Names(
    renamed=(),
    dropped=re.compile(r"^(encoder|decoder)\.version$|\._linearized_weight$"),
)
CONVOLUTION: Final = re.compile(r"^(encoder|decoder)\.convolutions\.(\d+)\.weight$")
MAX_EXPRESSION_CHARACTERS: Final = 2_000
UNUSABLE: Final = 2  # rows of a position table that no token uses: those up to the row of pad


def options(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return all options of the model, and their problems.

    Absent options have their architecture's defaults.
    Layers are tuples as of `_layers`; `decoder_attention` is a boolean for each layer.
    """
    values, problems = read_options(separate_positions(arguments), FCONV_OPTIONS)
    for name, parse in (
        ("encoder_layers", _layers),
        ("decoder_layers", _layers),
        ("decoder_attention", _flags),
    ):
        if values[name] is None:
            continue
        try:
            values[name] = parse(_parse_expression(values[name]))
        except ValueError as error:
            problems.append(f"{name} = {values[name]!r} is not understood: {error}")
            values[name] = None
    layers, attention = values["decoder_layers"], values["decoder_attention"]
    if layers and type(attention) is bool:
        values["decoder_attention"] = (attention,) * len(layers)
    elif layers and attention is not None and len(attention) != len(layers):
        problems.append(f"decoder_attention has {len(attention)} values for {len(layers)} layers")
    return values, problems


def model_config(
    arguments: Mapping[str, Any], source_vocab: int, target_vocab: int
) -> tuple[ModelConfig | None, list[str]]:
    """Return the configuration that a checkpoint's options describe, or None and the problems.

    arguments: options of the checkpoint.
    source_vocab: number of source symbols.
    target_vocab: number of target symbols.
    """

    def make(values: Mapping[str, Any]) -> ModelConfig:
        return ModelConfig(
            architecture="convs2s",
            source_vocab=source_vocab,
            target_vocab=target_vocab,
            encoder=_stack(values, "encoder"),
            decoder=_stack(values, "decoder"),
            share_output=values["share_input_output_embed"],
            output_bias=True,
            scale_embeddings=False,
            max_source=values["max_source_positions"] - UNUSABLE,
            max_target=values["max_target_positions"] - UNUSABLE,
        )

    return make_config(options(arguments), make)


def model_weights(state: Mapping[str, Tensor], config: ModelConfig) -> tuple[Weights, list[str]]:
    """Return a state dictionary under our names, without weight normalisation, and its problems.

    Before version 2 the decoder's convolutions were normalised along another axis.
    """
    version = state.get("decoder.version")  # a tensor of one number
    named, problems = rename(state, FCONV_NAMES)
    named, unfolded = _fold_weight_norm(named, old=version is None or bool((version < 2).any()))
    copy, original = "decoder.fc3.weight", "decoder.embed_tokens.weight"
    if config.share_output and original in named and copy in named:
        equal = same(named.pop(copy), named[original])
        if not equal:
            problems.append(f"{copy} differs from {original}, although the options say they are shared")
    misplaced = [_axes_problem(name, weight, config) for name, weight in named.items()]
    problems += [*unfolded, *(problem for problem in misplaced if problem)]
    return fit_weights({n: _flatten_kernel(n, w) for n, w in named.items()}, config, problems)


def _stack(values: Mapping[str, Any], side: str) -> ConvStack:
    """Return the configuration of a side."""
    layers, embed = values[f"{side}_layers"], values[f"{side}_embed_dim"]
    output = values["decoder_out_embed_dim"] if side == "decoder" else embed
    flags = values["decoder_attention"] if side == "decoder" else ()
    return ConvStack(
        embed_dim=embed,
        widths=tuple(width for width, _, _ in layers),
        kernel_sizes=tuple(kernel for _, kernel, _ in layers),
        residuals=tuple(residual for _, _, residual in layers),
        attention=tuple(i for i, attends in enumerate(flags) if attends),
        output_dim=output if output != embed else None,
    )


def _fold_weight_norm(named: Mapping[str, Tensor], *, old: bool) -> tuple[dict[str, Tensor], list[str]]:
    """Replace each pair `weight_g`, `weight_v` (Salimans and Kingma 2016) by the weight g v / |v|."""
    plain = {n: w for n, w in named.items() if not n.endswith((".weight_g", ".weight_v"))}
    problems = []
    for base in sorted({name[:-2] for name in named if name not in plain}):
        gains, directions = named.get(f"{base}_g"), named.get(f"{base}_v")
        if gains is None or directions is None:
            problems.append(f"{base}_{'g' if gains is None else 'v'} is missing")
        elif base in plain:
            problems.append(f"{base} occurs with and without weight normalisation")
        else:
            weight = _fold_pair(base, gains, directions, old=old)
            if isinstance(weight, str):
                problems.append(weight)
            else:
                plain[base] = weight
    return plain, problems


def _fold_pair(base: str, gains: Tensor, directions: Tensor, *, old: bool) -> Tensor | str:
    """Return the weight g v / |v| of a pair, or the problem of its shapes.

    base: name of the weight.
    gains: g.
    directions: v.
    old: whether the decoder's convolutions are normalised along axis 0.
    """
    convolution = CONVOLUTION.search(base)
    gain_axis = 2 if convolution and not (old and convolution[1] == "decoder") else 0
    rank = 3 if convolution else 2
    if directions.ndim != rank:
        return f"{base}_v has shape {tuple(directions.shape)}, not {rank} axes"
    shape = tuple(directions.shape[axis] if axis == gain_axis else 1 for axis in range(rank))
    if tuple(gains.shape) != shape:
        return f"{base}_g has shape {tuple(gains.shape)}, not {shape}"
    v = directions.astype(np.float32)
    axes = tuple(axis for axis in range(rank) if axis != gain_axis)
    norm = np.sqrt(np.square(v).sum(axis=axes, keepdims=True))  # in float32, as fairseq
    with np.errstate(divide="ignore", invalid="ignore"):  # weights that are not finite are refused later
        weight: Tensor = v * (gains.astype(np.float32) / norm)
    return weight


def _axes_problem(name: str, weight: Tensor, config: ModelConfig) -> str | None:
    """Return the problem of a convolution kernel's axes; must run before `_flatten_kernel` merges them."""
    convolution = CONVOLUTION.search(name)
    stack = config.decoder if name.startswith("decoder") else config.encoder
    if not convolution or weight.ndim != 3 or not isinstance(stack, ConvStack):
        return None
    layer = int(convolution[2][:9])
    if layer >= stack.layers:
        return None  # `fit_weights` reports it as a weight that is not part of the model
    shape = stack.kernel_sizes[layer], stack.inputs[layer]
    return (
        None
        if tuple(weight.shape[:2]) == shape
        else f"{name} has shape {tuple(weight.shape)}, not {(*shape, 2 * stack.widths[layer])}"
    )


def _flatten_kernel(name: str, weight: Tensor) -> Tensor:
    """Return a convolution's kernel [K, dim, 2 * width] as our projection [2 * width, K * dim]."""
    if not CONVOLUTION.search(name) or weight.ndim != 3:
        return weight
    return weight.transpose(2, 0, 1).reshape(weight.shape[2], -1)


def _layers(value: Any) -> list[tuple[int, int, int]]:
    """Return the layers of an option's parsed value: (channels, kernel width, residual) of each.

    The residual is the number of layers back to the start of the residual connection: 1 (the default) is the
    layer's own input, 0 means none.

    Raises ValueError if the value is not a list of (channels, kernel width[, residual]).
    """
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError("it must be a list of layers")
    layers = []
    for layer in value:
        numbers = isinstance(layer, (list, tuple)) and all(type(number) is int for number in layer)
        if not numbers or len(layer) not in (2, 3):
            raise ValueError(f"a layer is (channels, kernel width) or with a residual, not {layer!r}")
        if max(layer) > LARGEST_SIZE:
            raise ValueError(f"{max(layer)} exceeds {LARGEST_SIZE}")
        layers.append((*layer, 1)[:3])  # a layer of two numbers has the residual 1
    return layers


def _flags(value: Any) -> bool | tuple[bool, ...]:
    """Return one boolean for all layers, or one for each. Raises ValueError for other values."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (list, tuple)) or not all(type(flag) in (bool, int) for flag in value):
        raise ValueError("it must be True, False or a list of these")
    return tuple(bool(flag) for flag in value)


def _parse_expression(text: str) -> Any:
    """Return the value of an expression of numbers, booleans, lists, tuples, `+` and `*`; runs nothing."""
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_EXPRESSION_CHARACTERS} characters")
    try:
        return _value_of_node(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("it is not an expression") from None


def _value_of_node(node: ast.expr) -> Any:
    """Return the value of a parsed expression. Raises ValueError for anything but lists and numbers."""
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_value_of_node(item) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        return _apply_operator(
            _value_of_node(node.left), _value_of_node(node.right), add=isinstance(node.op, ast.Add)
        )
    raise ValueError("it may hold whole numbers, lists, tuples, + and * only")


def _apply_operator(left: Any, right: Any, *, add: bool) -> Any:
    """Return left + right or left * right, of numbers or lists. Raises ValueError if it is too large."""
    numbers = type(left) is int, type(right) is int
    same: bool = type(left) is type(right)
    if all(numbers):
        result = left + right if add else left * right
        if abs(result) > LARGEST_SIZE:
            raise ValueError(f"{result} exceeds {LARGEST_SIZE}")
        return result
    # `_within_limit` comes first: it raises before a long list is built
    if add and same and isinstance(left, (list, tuple)):
        return _within_limit(len(left) + len(right)) and left + right
    if not add and any(numbers):
        count, part = (left, right) if numbers[0] else (right, left)
        if isinstance(part, (list, tuple)):
            return _within_limit(len(part) * count) and part * count
    raise ValueError("+ joins two lists and * repeats one")


def _within_limit(length: int) -> bool:
    """Return True. Raises ValueError for more than MOST_LAYERS layers."""
    if length > MOST_LAYERS:
        raise ValueError(f"{length} layers are more than {MOST_LAYERS}")
    return True


FCONV: Final = Family(FCONV_OPTIONS, options, model_config, model_weights)
