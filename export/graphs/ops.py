"""Map each torch function of the models to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto

from engine.kernels.reference import (
    add_norm,
    add_norm_plainly,
    attend,
    attend_cached,
    attend_cached_plainly,
    attend_plainly,
    attend_whole,
    attend_whole_plainly,
    attend_window,
    attend_window_plainly,
    dynamic_conv,
    dynamic_conv_step,
    project_among,
    project_among_plainly,
    ssru_step,
    ssru_step_plainly,
)
from engine.models.select import select, select_plainly
from export.graphs.symbols import Dim, Symbol, Weight, broadcast, operand


def _linear(x: Symbol, weight: Weight, bias: Weight | None = None) -> Symbol:
    """Emit x @ weight.T + bias, in fp32 or with int8 weights."""
    g = x.graph
    if g.precision == "int8":
        product = _int8_product(x, weight)
    else:
        product = g.emit("MatMul", x.name, g.weight(weight, "transposed"))
    out = x.like(product, (*x.shape[:-1], weight.shape[0]))
    return out if bias is None else out + bias


def _int8_product(x: Symbol, weight: Weight) -> str:
    """Emit x @ weight.T with int8 weights and activations quantised row by row, or by the file's alphas.

    A scale for each row, or a fixed one, makes a row's result independent of the rest of the batch; the
    integer sums are exact.
    """
    g = x.graph
    static = g.quantization == "alphas"
    key = x.name, g.weight(weight, "alpha") if static else ""
    if key not in g.quantized:
        g.quantized[key] = _static_bytes(x, key[1]) if static else _bytes(x)
    rows, scale = g.quantized[key]
    packed = g.weight(weight, "quantized")
    zero = g.constant(128, np.uint8)
    product = g.emit("Cast", g.emit("MatMulInteger", rows, packed, zero), to=TensorProto.FLOAT)
    if static:
        return g.emit("Mul", product, g.weight(weight, "static_scales"))
    return g.emit("Mul", g.emit("Mul", product, g.weight(weight, "scales")), scale)


def _bytes(x: Symbol) -> tuple[str, str]:
    """Emit x as bytes (128 means 0); return the names of the bytes and of the scales of their rows."""
    g = x.graph
    largest = g.emit("ReduceMax", g.emit("Abs", x.name), g.ints(-1), keepdims=1)
    scale = g.emit("Mul", largest, g.constant(1 / 127, np.float32))
    scale = g.emit("Max", scale, g.constant(1e-30, np.float32))  # a row of zeros stays zero
    whole = g.emit("Round", g.emit("Div", x.name, scale))
    shifted = g.emit("Add", whole, g.constant(128.0, np.float32))
    return g.emit("Cast", shifted, to=TensorProto.UINT8), scale


def _static_bytes(x: Symbol, alpha: str) -> tuple[str, str]:
    """Emit x * alpha as bytes (128 means 0), clipped; return the names of the bytes and of the alpha."""
    g = x.graph
    whole = g.emit("Round", g.emit("Mul", x.name, alpha))
    clipped = g.emit("Clip", whole, g.constant(-127.0, np.float32), g.constant(127.0, np.float32))
    shifted = g.emit("Add", clipped, g.constant(128.0, np.float32))
    return g.emit("Cast", shifted, to=TensorProto.UINT8), alpha


def _embedding(index: Symbol, weight: Weight, **_: Any) -> Symbol:
    """Emit the rows of a table at the ids `index`, dequantised if the table is int8."""
    g = index.graph
    is_token_table = str(getattr(weight, "recipe", {}).get("tensor", "")).endswith("embed_tokens.weight")
    if g.precision == "int8" and g.quantization != "none" and is_token_table:
        rows = g.emit("Gather", g.weight(weight, "rows"), index.name)  # the file's bytes, exact
        scales = g.emit("Gather", g.weight(weight, "scales"), index.name)
        column = g.emit("Unsqueeze", scales, g.ints(-1))
        name = g.emit("Mul", g.emit("Cast", rows, to=TensorProto.FLOAT), column)
    else:
        name = g.emit("Gather", weight.name, index.name)
    return index.like(name, (*index.shape, weight.shape[1]), "float")


def _glu(x: Symbol, dim: int = -1) -> Symbol:
    value = x.graph.emit("Split", x.name, outputs=2, axis=-1, num_outputs=2)
    gate = x.graph.emit("Sigmoid", f"{value}.1")
    return x.like(x.graph.emit("Mul", value, gate), (*x.shape[:-1], x.size(-1) // 2))


def _conv1d(x: Symbol, weight: Symbol, *, padding: int, dilation: int, groups: int) -> Symbol:
    options: dict[str, Any] = {"pads": [padding] * 2, "dilations": [dilation], "group": groups}
    name = x.graph.emit("Conv", x.name, weight.name, **options)
    return x.like(name, (x.shape[0], weight.shape[0], "?" if padding else x.shape[2]))


def _softmax(x: Symbol, dim: int = -1, **_: Any) -> Symbol:
    return x.like(x.graph.emit("Softmax", x.name, axis=dim))


def _log_softmax(x: Symbol, dim: int = -1, **_: Any) -> Symbol:
    return x.like(x.graph.emit("LogSoftmax", x.name, axis=dim))


def _layer_norm(x: Symbol, shape: Any, weight: Weight, bias: Weight, eps: float = 1e-5) -> Symbol:
    name = x.graph.emit("LayerNormalization", x.name, weight.name, bias.name, axis=-1, epsilon=eps)
    return x.like(name)


def _rms_norm(x: Symbol, shape: Any, weight: Weight, eps: float) -> Symbol:
    g = x.graph
    mean = g.emit("ReduceMean", (x * x).name, g.ints(-1), keepdims=1)
    root = g.emit("Sqrt", g.emit("Add", mean, g.constant(eps, np.float32)))
    return x.like(g.emit("Mul", g.emit("Div", x.name, root), weight.name))


def _matmul(a: Symbol, b: Symbol) -> Symbol:
    shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return a.like(a.graph.emit("MatMul", a.name, b.name), shape)


def _topk(x: Symbol, k: Symbol, dim: int = -1) -> tuple[Symbol, Symbol]:
    name = x.graph.emit("TopK", x.name, k.name, outputs=2, axis=dim, largest=1, sorted=1)
    shape = (*x.shape[:-1], "K")
    return x.like(name, shape), x.like(f"{name}.1", shape, "int")


def _where(condition: Symbol, a: Any, b: Any) -> Symbol:
    """Emit Where; the result has the element type of a symbol among `a` and `b`."""
    shape = condition.shape
    for value in (a, b):
        shape = broadcast(shape, value.shape) if isinstance(value, Symbol) else shape
    numbers = condition.like(condition.name, kind="float")
    typed = next((v for v in (a, b) if isinstance(v, Symbol)), numbers)
    name = typed.graph.emit("Where", condition.name, operand(typed, a), operand(typed, b))
    return typed.like(name, shape)


def _cat(parts: Sequence[Symbol], dim: int = 0) -> Symbol:
    """Emit Concat; the size of its axis is "+" if a part's size is known only at run time."""
    first = parts[0]
    axis = dim % first.dim()
    sizes = [part.shape[axis] for part in parts]
    total: Dim = (
        sum(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else "+"
    )
    name = first.graph.emit("Concat", *(part.name for part in parts), axis=axis)
    return first.like(name, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _stack(parts: Sequence[Symbol], dim: int = 0) -> Symbol:
    return _cat([part.unsqueeze(dim) for part in parts], dim)


def _logsumexp(x: Symbol, dim: int) -> Symbol:
    name = x.graph.emit("ReduceLogSumExp", x.name, x.graph.ints(dim), keepdims=0)
    axis = dim % x.dim()
    return x.like(name, x.shape[:axis] + x.shape[axis + 1 :])


def _silu(x: Symbol, inplace: bool = False) -> Symbol:
    return x * x.like(x.graph.emit("Sigmoid", x.name))


def _full_like(x: Symbol, value: int) -> Symbol:
    return x.like(x.graph.emit("Expand", operand(x, value), x.graph.emit("Shape", x.name)))


def _dynamic_conv(x: Symbol, taps: Symbol, left: int) -> Symbol:
    """Emit the band matrix of `engine.kernels.reference.dynamic_conv` for a time known only at run time."""
    g = x.graph
    heads, width, channels = taps.size(-2), taps.size(-1), x.size(2)
    time = g.emit("Slice", g.emit("Shape", x.name), g.ints(1), g.ints(2))  # int64 [1]
    if taps.dim() == 2:  # one kernel for every step: [heads, time, K]
        shape = g.emit("Concat", g.ints(heads), time, g.ints(width), axis=0)
        rows = g.emit("Expand", taps.unsqueeze(1).name, shape)
        lead = [0]
    else:
        rows, lead = taps.transpose(1, 2).name, [0, 0]
    rank = len(lead) + 2
    # rows of K + time numbers, read again as rows of K + time - 1, shift each kernel by one more position
    padded = g.emit("Pad", rows, g.emit("Concat", g.ints(*[0] * (2 * rank - 1)), time, axis=0))
    flat = g.emit("Reshape", padded, g.ints(*lead, -1))
    row = g.emit("Add", time, g.ints(width - 1))
    trimmed = g.emit("Slice", flat, g.ints(0), g.emit("Mul", time, row), g.ints(len(lead)))
    band = g.emit("Reshape", trimmed, g.emit("Concat", g.ints(*lead, -1), row, axis=0))
    band = g.emit("Slice", band, g.ints(left), g.emit("Add", time, g.ints(left)), g.ints(rank - 1))
    of_x = x.unflatten(2, (heads, channels // heads)).transpose(1, 2)
    y = of_x.like(g.emit("MatMul", band, of_x.name))
    return y.transpose(1, 2).flatten(2)


def _dynamic_conv_step(x: Symbol, taps: Symbol, ring: Symbol | None, index: Symbol | None) -> Symbol:
    """Emit one step of a dynamic convolution; without a ring there are no earlier inputs."""
    g = x.graph
    heads, width, channels = taps.size(-2), taps.size(-1), x.size(2)
    newest = x.unflatten(2, (heads, channels // heads))
    y = taps[..., width - 1 :] * newest
    if ring is not None and index is not None:
        rows = g.emit("Reshape", ring.name, g.ints(-1, channels))
        past = x.like(g.emit("Gather", rows, index.name), (*index.shape, channels))
        past = past.unflatten(3, (heads, channels // heads)).permute(
            0, 1, 3, 2, 4
        )  # [slots, beams, heads, K - 1, R]
        y = _matmul(taps[..., : width - 1].unsqueeze(taps.dim() - 1), past).squeeze(3) + y
    return x.like(y.name, newest.shape).flatten(2)


STANDARD_OPS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    F.linear: _linear,
    F.embedding: _embedding,
    F.glu: _glu,
    F.conv1d: _conv1d,
    F.gelu: lambda x, approximate="none": x.like(x.graph.emit("Gelu", x.name, approximate=approximate)),
    F.silu: _silu,
    torch.tanh: lambda x: x.like(x.graph.emit("Tanh", x.name)),
    torch.sigmoid: lambda x: x.like(x.graph.emit("Sigmoid", x.name)),
    F.relu: lambda x, inplace=False: x.like(x.graph.emit("Relu", x.name)),
    F.softmax: _softmax,
    F.log_softmax: _log_softmax,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    torch.matmul: _matmul,
    torch.sqrt: lambda x: x.like(x.graph.emit("Sqrt", x.name)),
    torch.cat: _cat,
    torch.stack: _stack,
    torch.logsumexp: _logsumexp,
    torch.zeros_like: lambda x: _full_like(x, 0),
    torch.topk: _topk,
    torch.where: _where,
    torch.isnan: lambda x: x.like(x.graph.emit("IsNaN", x.name), kind="bool"),
    torch.full_like: _full_like,
    add_norm: add_norm_plainly,
    attend: attend_plainly,
    attend_cached: attend_cached_plainly,
    attend_whole: attend_whole_plainly,
    attend_window: attend_window_plainly,
    select: select_plainly,
    project_among: project_among_plainly,
    dynamic_conv: _dynamic_conv,
    dynamic_conv_step: _dynamic_conv_step,
    ssru_step: ssru_step_plainly,
}
