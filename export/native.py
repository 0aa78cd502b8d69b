"""What torch functions become in graphs for our own operators (`engine/native`): fewer nodes, fused ones.

A table like that of `export.ops`, of which it replaces entries. What each operator computes is what the entry
that it replaces is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch.nn.functional as F

from engine.kernels.reference import attend, dynamic_conv, dynamic_conv_step
from engine.models.select import Rules, select
from export import ops
from export.symbols import Symbol, Weight, broadcast

DOMAIN: Final = "convoy"
EPILOGUES: Final = {"none": 0, "relu": 1, "glu": 2}


def _linear(x: Symbol, weight: Weight, bias: Weight | None = None) -> Symbol:
    if x.graph.precision != "int8":
        return ops.OPS[F.linear](x, weight, bias)  # type: ignore[no-any-return]
    g = x.graph
    operands = [x.name, g.weight(weight, "packed"), g.weight(weight, "scales")]
    operands += [] if bias is None else [bias.name]
    name = g.emit("Int8Linear", *operands, domain=DOMAIN, epilogue=EPILOGUES["none"])
    return x.like(name, (*x.shape[:-1], weight.shape[0]))


def _after_linear(epilogue: str, otherwise: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """The function as the epilogue of the product that it is applied to, if it is applied to one."""

    def apply(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        node = x.graph.made_by(x.name, "Int8Linear")
        if node is None:
            return otherwise(x, *args, **kwargs)
        # the product alone stays behind unused, and ONNX Runtime drops it
        name = x.graph.emit("Int8Linear", *node.input, domain=DOMAIN, epilogue=EPILOGUES[epilogue])
        last = x.size(-1) // 2 if epilogue == "glu" else x.shape[-1]
        return x.like(name, (*x.shape[:-1], last))

    return apply


def _layer_norm(x: Symbol, shape: Any, weight: Weight, bias: Weight, eps: float = 1e-5) -> Symbol:
    terms = x.graph.sums.get(x.name)
    if terms is None or terms[0].shape != terms[1].shape:
        return ops.OPS[F.layer_norm](x, shape, weight, bias, eps)  # type: ignore[no-any-return]
    operands = *(term.name for term in terms), weight.name, bias.name
    return x.like(x.graph.emit("AddNorm", *operands, domain=DOMAIN, epsilon=eps))


def _taps(taps: Symbol) -> tuple[str, int]:
    """Kernels before their softmax, where they have one, and whether they have."""
    node = taps.graph.made_by(taps.name, "Softmax")
    return (taps.name, 0) if node is None else (node.input[0], 1)


def _dynamic_conv(x: Symbol, taps: Symbol, left: int) -> Symbol:
    kernels, softmax = _taps(taps)
    return x.like(x.graph.emit("DynamicConv", x.name, kernels, domain=DOMAIN, left=left, softmax=softmax))


def _dynamic_conv_step(x: Symbol, taps: Symbol, ring: Symbol | None, index: Symbol | None) -> Symbol:
    kernels, softmax = _taps(taps)
    past = [] if ring is None or index is None else [ring.name, index.name]
    return x.like(x.graph.emit("DynamicConvStep", x.name, kernels, *past, domain=DOMAIN, softmax=softmax))


def _attend(
    q: Symbol, keys: Symbol, values: Symbol, mask: Symbol, dropout: float = 0.0
) -> tuple[Symbol, Symbol]:
    operands = (q.name, keys.name, values.name, mask.name)
    name = q.graph.emit("Attend", *operands, outputs=2, domain=DOMAIN)
    shape = (*broadcast(q.shape[:1], mask.shape[:1]), q.shape[1], mask.shape[1])
    return q.like(name), q.like(f"{name}.1", shape)


def _select(scores: Symbol, rules: Any, unk: int | None, eos: int, k: Symbol) -> tuple[Symbol, Symbol]:
    asked = Rules(*rules)
    node = scores.graph.made_by(scores.name, "LogSoftmax")
    logits = scores.name if node is None else node.input[0]
    operands = logits, *(getattr(part, "name", "") for part in asked), k.name
    name = scores.graph.emit(
        "Select", *operands, outputs=2, domain=DOMAIN, unk=-1 if unk is None else unk, eos=eos
    )
    shape = (*scores.shape[:-1], "K")
    return scores.like(name, shape), scores.like(f"{name}.1", shape, "int")


OPS: Final[dict[Callable[..., Any], Callable[..., Any]]] = ops.OPS | {
    F.linear: _linear,
    F.relu: _after_linear("relu", ops.OPS[F.relu]),
    F.glu: _after_linear("glu", ops.OPS[F.glu]),
    F.layer_norm: _layer_norm,
    dynamic_conv: _dynamic_conv,
    dynamic_conv_step: _dynamic_conv_step,
    attend: _attend,
    select: _select,
}
