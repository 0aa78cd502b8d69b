"""Convert CTranslate2's variables to our weights, and its attributes to our configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.stacks import StackConfig
from engine.bundle.weights import QuantizedWeight
from engine.errors import CheckpointError
from export.importers.buckets import buckets
from export.importers.ctranslate2.variables import Variables
from export.importers.weights import MOST_LAYERS, Array

CT2_ACTIVATIONS: Final = ("relu", "gelu_tanh", "swish", "gelu", "gelu_sigmoid", "tanh", "sigmoid")
MAX_POSITIONS: Final = 1024  # CTranslate2's limit; sinusoidal positions themselves have none
MAX_SPAN: Final = 4096  # distances of a relative bias
HEADS: Final = {"TransformerBig": 16}  # old files store no number of heads; the others have 8
# unsupported parts of variables' names, unless the variable is 0
REFUSED: Final = {
    "rotary_dim": "rotary positions",
    "num_heads_kv": "fewer heads of keys and values than of queries",
    "sliding_window": "a sliding window",
    "alibi": "ALiBi",
    "layer_scalar": "a factor of each layer",
    "final_logit_softcapping": "soft-capped logits",
    "merged_encoder_attention": "merged attention",
    "input_layer_norm": "norms before and after sub-blocks",
    "project_in": "projections around the decoder",
    "q_norm": "norms of queries and keys",
    "memory_kv": "merged attention",
    "layer_norm_use_residual": "norms whose factors are one more than stored",
    "multi_query_attention": "fewer heads of keys and values than of queries",
}
ATTRIBUTES: Final = (
    "alignment_layer",
    "alignment_heads",
    "alibi_use_positive_positions",
    "scale_alibi",
    "embeddings_merge",
    "scale_embeddings",
    "multiply_by_sqrt_depth",
    "unk_token",
    "bos_token",
    "eos_token",
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
    "with_relative_position",
    *("num_heads", "pre_norm", "activation", "layernorm_embedding"),
    "relative_attention_max_distance",
    "head_dim",
    "weight_zero",
)


@dataclass(frozen=True, slots=True)
class ReadSide:
    """An encoder or decoder.

    weights: weights by names without "encoder." or "decoder.".
    table: name of the embeddings' variable.
    scale: factor of the embeddings.
    computed_positions: whether the model adds sinusoidal positions.
    """

    stack: StackConfig
    weights: dict[str, Array]
    table: str
    embedding: Array
    scale: float
    computed_positions: bool


@dataclass(slots=True)
class Layers:
    """Reads the layers of one side into `weights`, by our names."""

    variables: Variables
    side: str
    weights: dict[str, Array] = field(default_factory=dict)

    def linear(self, theirs: str, *ours: str, factors: tuple[float, ...] = ()) -> None:
        """Add a projection, or several whose rows are stored in one variable.

        theirs: name of the variable, without the side.
        ours: names of the projections.
        factors: factor of each projection; empty: 1.
        """
        name = f"{self.side}/{theirs}"
        weight = self.variables.weight(f"{name}/weight")
        if len(weight.shape) != 2 or weight.shape[0] % len(ours):
            raise CheckpointError(f"{name}/weight has the shape {weight.shape}")
        rows = weight.shape[0] // len(ours)
        bias = np.zeros(weight.shape[0], np.float32)
        if f"{name}/bias" in self.variables:
            bias = self.variables.array(f"{name}/bias").astype(np.float32)
        if bias.shape != weight.shape[:1]:
            raise CheckpointError(f"{name}/bias has the shape {bias.shape}")
        for i, our in enumerate(ours):
            part, factor = slice(i * rows, (i + 1) * rows), factors[i] if factors else 1.0
            self.weights[f"{our}.weight"] = scale_weight(rows_of(weight, part), factor)
            self.weights[f"{our}.bias"] = bias[part] * np.float32(factor)

    @property
    def rms(self) -> bool:
        """Whether the side has RMS norms, which have no beta."""
        return f"{self.side}/layer_0/ffn/layer_norm/beta" not in self.variables

    def norm(self, theirs: str, ours: str) -> None:
        """Add a layer norm, or an RMS norm without a bias."""
        name, rms = f"{self.side}/{theirs}", self.rms
        if rms and f"{name}/beta" in self.variables:
            raise CheckpointError(f"{name} has a beta, other norms of the {self.side} have none")
        for part, our in (("gamma", "weight"), ("beta", "bias"))[: 1 if rms else 2]:
            self.weights[f"{ours}.{our}"] = self.variables.array(f"{name}/{part}").astype(np.float32)

    def query_factor(self, theirs: str, width: int) -> float:
        """Return the factor of queries in addition to the usual width ** -0.5.

        theirs: name of the attention, without the side.
        width: width of a head.
        """
        usual = float(np.float32(width) ** np.float32(-0.5))
        scale = self.variables.number(f"{self.side}/{theirs}/queries_scale", usual)
        return 1.0 if scale == usual else scale * width**0.5


def rows_of(weight: Array, rows: Any) -> Array:
    """Return some rows of a weight."""
    if isinstance(weight, QuantizedWeight):
        return QuantizedWeight(weight.values[rows], weight.scale[rows])
    return np.asarray(weight[rows])


def scale_weight(weight: Array, factor: float) -> Array:
    """Multiply a weight by a number."""
    if factor == 1:
        return weight
    if isinstance(weight, QuantizedWeight):
        return replace(weight, scale=weight.scale * np.float32(factor))
    return weight * np.float32(factor)


def read_side(variables: Variables, side: str, settings: Mapping[str, Any]) -> ReadSide:
    """Read the encoder or the decoder.

    variables: variables of the file.
    side: "encoder" or "decoder".
    settings: "epsilon" of norms, None for the default, and "window", the number of positions that a decoder
        with relative position vectors attends to.

    Raises CheckpointError that names a missing or unsupported part.
    """
    layers = Layers(variables, side)
    count = count_layers(variables, side)
    table = _embeddings_name(variables, side)
    embedding = variables.weight(table)
    dim = embedding.shape[1]
    heads = _attribute(variables, side, "num_heads", HEADS.get(variables.specification, 8))
    inner = _attention_width(variables, side, heads)
    for i in range(count):
        _layer(layers, i, inner // heads)
    # largest distances of relative position vectors and of the relative bias; 0: the side has none
    reach, (span, each) = _relative_vectors(layers, count), _relative_bias(layers, count, heads)
    encodings = f"{side}/position_encodings/encodings"
    stored = encodings in variables
    if stored:
        layers.weights["embed_positions.weight"] = _positions(variables, encodings, dim)
    kind = _attribute(variables, side, "activation", 0)
    if not 0 <= kind < len(CT2_ACTIVATIONS):
        raise CheckpointError(f"{side}/activation = {kind} is unknown")
    first = layers.weights["layers.0.fc1.weight"]
    stack = StackConfig(
        embed_dim=dim,
        conv_dim=dim,
        ffn_dim=first.shape[0],
        heads=heads,
        kernel_sizes=(settings["window"] if reach and side == "decoder" else 0,) * count,
        mixer="attention",
        glu=False,
        learned_positions=stored,
        activation=CT2_ACTIVATIONS[kind],
        norm_eps=settings["epsilon"] or (1e-6 if layers.rms else 1e-5),
        attention_dim=None if inner == dim else inner,
        relative_span=span,
        relative_each=each,
        ffn_gate="layers.0.ffn_gate.weight" in layers.weights,
        relative_positions=reach,
        **_read_norms(layers),
    )
    if side == "decoder":
        stack = replace(stack, **_alignment_fields(variables, heads, count))
    scale = _embedding_scale(variables, side, dim)
    computed = not (stored or reach or span)
    return ReadSide(stack, layers.weights, table, embedding, scale, computed_positions=computed)


def _read_norms(layers: Layers) -> dict[str, Any]:
    """Add the weights of the norms outside of layers, and return the fields of `StackConfig` about norms."""
    side, variables = layers.side, layers.variables
    pre = bool(_attribute(variables, side, "pre_norm", 1))
    final = f"{side}/layer_norm/gamma" in variables
    if final and not pre:
        raise CheckpointError(f"{side} has a last norm although its norms are after sub-blocks")
    if final:
        layers.norm("layer_norm", "layer_norm")
    embedding = f"{side}/layernorm_embedding/gamma" in variables
    if embedding and layers.rms:
        raise CheckpointError(f"{side}/layernorm_embedding by the root mean square is not supported")
    if embedding:
        layers.norm("layernorm_embedding", "layernorm_embedding")
    return {
        "normalize_before": pre,
        "rms_norm": layers.rms,
        "embedding_norm": embedding,
        "final_norm": final or not pre,
    }


def unsupported_parts(variables: Variables) -> Iterator[str]:
    """Yield a problem for each unsupported part, and mark known names as used (`Variables.unused_names`)."""
    for name in sorted({*variables.arrays, *variables.aliases}):
        parts = name.split("/")
        for part in REFUSED:
            if part not in parts:
                continue
            array = variables.arrays[variables.origin(name)]
            is_absent = array.size <= 1 and not array.any()  # a part that is off is a single zero
            if not is_absent:
                yield f"{name}: {REFUSED[part]} are not supported"
            variables.used.add(name)
        if parts[-1] in ATTRIBUTES:
            variables.used.add(name)


def count_layers(variables: Variables, side: str) -> int:
    """Count the layers of a side."""
    names = {*variables.arrays, *variables.aliases}
    # "encoder/layer_" and "decoder/layer_" have 14 characters; a number follows
    numbers = {
        name.split("/")[1][6:]
        for name in names
        if name.startswith(f"{side}/layer_") and name[14:15].isdecimal()
    }
    count = len(numbers)
    if numbers != {str(i) for i in range(count)} or not 0 < count <= MOST_LAYERS:
        raise CheckpointError(f"{side} has no layers, or some are missing")
    return count


def _attribute(variables: Variables, side: str, name: str, usual: int) -> int:
    """Return an attribute of a side, `usual` if it is missing; old files store one for both sides."""
    return int(variables.number(f"{side}/{name}", variables.number(name, usual)))


def _embeddings_name(variables: Variables, side: str) -> str:
    """Return the name of the variable of a side's embeddings."""
    if f"{side}/embeddings_1/weight" in variables:
        raise CheckpointError("several features of each source token are not supported")
    names = (f"{side}/embeddings_0/weight", f"{side}/embeddings/weight")
    name = next((name for name in names if name in variables), names[1])
    shape = variables.array(name).shape
    if len(shape) != 2 or min(shape) < 2:
        raise CheckpointError(f"{name} has the shape {shape}")
    return name


def _embedding_scale(variables: Variables, side: str, dim: int) -> float:
    """Return the factor of the embeddings. An int8 variable is a flag: true means the root of the width."""
    names = (
        f"{side}/scale_embeddings",
        f"{side}/embeddings_0/multiply_by_sqrt_depth",
        f"{side}/embeddings/multiply_by_sqrt_depth",
    )
    name = next((name for name in names if name in variables), None)
    if name is None:
        return float(dim**0.5)
    value = variables.number(name, 1)
    if variables.array(name).dtype == np.int8:
        return float(dim**0.5) if value else 1.0
    return value


def _positions(variables: Variables, name: str, dim: int) -> NDArray[np.float32]:
    """Return the table of positions, at most MAX_POSITIONS rows."""
    table = variables.array(name)
    if table.ndim != 2 or table.shape[1] != dim or len(table) < 2:
        raise CheckpointError(f"{name} has the shape {table.shape}")
    return table[:MAX_POSITIONS].astype(np.float32)


def _relative_vectors(layers: Layers, count: int) -> int:
    """Add the relative position vectors, and return their largest distance, 0 without any.

    layers: layers of the side.
    count: number of layers; each has tables with a row for each distance from -largest to largest.
    """
    at = f"{layers.side}/layer_{{}}/self_attention/relative_position_"
    if f"{at.format(0)}keys" not in layers.variables:
        return 0
    sizes = set()
    for i in range(count):
        for part in ("keys", "values"):
            table = layers.variables.array(f"{at.format(i)}{part}").astype(np.float32)
            sizes.add(table.shape[0])
            layers.weights[f"layers.{i}.self_attn.relative_{part}"] = table
    (rows,) = sizes if len(sizes) == 1 else (0,)
    if rows < 3 or not rows % 2:
        raise CheckpointError(f"{layers.side}: relative positions of {sorted(sizes)} vectors")
    return rows // 2


def _alignment_fields(variables: Variables, heads: int, count: int) -> dict[str, Any]:
    """Return the fields of the alignment: a layer, and the number of its first heads (0: all)."""
    heads_shown = int(variables.number("decoder/alignment_heads", 1))
    layer = int(variables.number("decoder/alignment_layer", -1))
    if not 0 <= heads_shown <= heads or not -count <= layer < count:
        raise CheckpointError(
            f"decoder/alignment_heads = {heads_shown} of alignment_layer {layer} are not there"
        )
    # all heads become 0; a negative layer counts from the end; None is the last
    return {"alignment_heads": heads_shown % heads, "alignment_layer": None if layer == -1 else layer % count}


def _attention_width(variables: Variables, side: str, heads: int) -> int:
    """Return the width of all heads together, the input width of the output projection."""
    name = f"{side}/layer_0/self_attention"
    shape = variables.array(f"{name}/linear_1/weight").shape
    inner = shape[1] if len(shape) == 2 else 0
    if not 0 < heads <= inner or inner % heads:
        raise CheckpointError(f"{side}/num_heads = {heads} does not divide the width {inner}")
    width = int(variables.number(f"{name}/head_dim", inner // heads))
    if width != inner // heads:
        raise CheckpointError(f"{name}/head_dim = {width}, but {heads} heads are {inner} wide")
    return inner


def _relative_bias(layers: Layers, count: int, heads: int) -> tuple[int, bool]:
    """Add T5's relative biases, a row for each distance.

    layers: layers of the side.
    count: number of layers.
    heads: number of heads.

    Returns the largest distance, 0 without a bias, and whether each layer has its own bias (UMT5).
    """
    variables, at = layers.variables, f"{layers.side}/layer_{{}}/self_attention/relative_attention_"
    name = f"{at.format(0)}bias"
    if name not in variables:
        return 0, False
    tables = [variables.array(name).astype(np.float32)]
    span = int(variables.number(f"{at.format(0)}max_distance", 128))
    if tables[0].ndim != 2 or tables[0].shape[1] != heads or not 4 <= len(tables[0]) <= span <= MAX_SPAN:
        raise CheckpointError(f"{name} has the shape {tables[0].shape}, for distances up to {span}")
    for i in range(1, count):
        other, reach = f"{at.format(i)}bias", f"{at.format(i)}max_distance"
        table = variables.array(other).astype(np.float32) if other in variables else tables[0]
        if table.shape != tables[0].shape or int(variables.number(reach, span)) != span:
            raise CheckpointError(f"{other} has another shape or distance than the first layer's")
        tables.append(table)
    each = any(not np.array_equal(table, tables[0]) for table in tables)
    # the file has a row for each bucket of distances, our table one for each distance
    rows = buckets(len(tables[0]), span, causal=layers.side == "decoder")
    for i, table in enumerate(tables if each else tables[:1]):
        layers.weights[f"layers.{i}.self_attn.relative.weight"] = table[rows]
    return span, each


def _layer(layers: Layers, i: int, width: int) -> None:
    """Add the weights of layer `i`; `width` is the width of a head."""
    theirs, ours = f"layer_{i}", f"layers.{i}"
    decoder = layers.side == "decoder"
    factor = layers.query_factor(f"{theirs}/self_attention", width)
    names = [f"{ours}.self_attn.{letter}_proj" for letter in "qkv"]
    layers.linear(f"{theirs}/self_attention/linear_0", *names, factors=(factor, 1.0, 1.0))
    layers.linear(f"{theirs}/self_attention/linear_1", f"{ours}.self_attn.out_proj")
    layers.norm(
        f"{theirs}/self_attention/layer_norm", f"{ours}.{'conv_layer_norm' if decoder else 'layer_norm1'}"
    )
    if decoder:
        factor = layers.query_factor(f"{theirs}/attention", width)
        at = f"{ours}.encoder_attn"
        layers.linear(f"{theirs}/attention/linear_0", f"{at}.q_proj", factors=(factor,))
        layers.linear(f"{theirs}/attention/linear_1", f"{at}.k_proj", f"{at}.v_proj")
        layers.linear(f"{theirs}/attention/linear_2", f"{at}.out_proj")
        layers.norm(f"{theirs}/attention/layer_norm", f"{at}_layer_norm")
    gated = f"{layers.side}/{theirs}/ffn/linear_0_noact/weight" in layers.variables
    layers.linear(f"{theirs}/ffn/linear_0", f"{ours}.ffn_gate" if gated else f"{ours}.fc1")
    if gated:
        layers.linear(f"{theirs}/ffn/linear_0_noact", f"{ours}.fc1")
    layers.linear(f"{theirs}/ffn/linear_1", f"{ours}.fc2")
    layers.norm(f"{theirs}/ffn/layer_norm", f"{ours}.{'final_layer_norm' if decoder else 'layer_norm2'}")
