"""Map torch functions to our own fused operators (`engine/native`).

The table replaces entries of `export.graphs.ops`. Each operator computes the same as the entry's nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import onnx
import torch.nn.functional as F
from onnx import helper

from engine.kernels.reference import (
    attend,
    attend_cached,
    attend_window,
    dynamic_conv,
    dynamic_conv_step,
    project_among,
    ssru_step,
)
from engine.models.select import SelectionRules, select
from export.graphs import ops
from export.graphs.symbols import Symbol, Weight, broadcast

DOMAIN: Final = "convoy"
PRODUCTS: Final = {"Int8Linear": 4, "Linear": 3}  # operator to its number of operands, with a bias
ALPHA: Final = 7  # index of a product's alpha among its operands
EPILOGUES: Final = {"none": 0, "relu": 1, "glu": 2, "norm": 3}


def _linear(x: Symbol, weight: Weight, bias: Weight | None = None, epilogue: str = "none") -> Symbol:
    """Emit x @ weight.T + bias in fp32 or with int8 weights.

    x: input [..., K].
    weight: matrix [N, K].
    bias: bias [N], or None.
    epilogue: operation of EPILOGUES that the operator applies to its result.
    """
    g, columns = x.graph, weight.size(0)
    gated = epilogue == "glu"
    options: dict[str, Any] = {"domain": DOMAIN, "epilogue": EPILOGUES[epilogue]}
    after = [] if bias is None else [bias.name]
    if g.precision == "int8":
        packed, (scales, *alpha) = g.weight(weight, "gated" if gated else "panels"), _scales(weight)
        operands = [x.name, packed, scales, *after]
        # empty names mean absent operands: the alpha must have the index ALPHA
        operands += [""] * (ALPHA - len(operands)) + alpha if alpha else []
        name = g.emit("Int8Linear", *operands, **options)
    else:
        operands = [x.name, g.weight(weight, "gated32" if gated else "panels32"), *after]
        name = g.emit("Linear", *operands, columns=columns, **options)
    product = x.like(name, (*x.shape[:-1], columns // 2 if gated else columns))
    if epilogue == "none":
        g.products[name] = x, weight, bias
    return product


def _scales(weight: Weight) -> list[str]:
    """Return the scales of integer sums, and the alpha if the file has scales of activations."""
    g = weight.graph
    forms = ["static_scales", "alpha"] if g.quantization == "alphas" else ["scales"]
    return [g.weight(weight, form) for form in forms]


def _as_epilogue(epilogue: str, otherwise: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """Return a function that emits an operation, fused into the product that makes its argument if any does.

    epilogue: operation of EPILOGUES.
    otherwise: function that emits the operation for any other argument.
    """

    def apply(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        product = x.graph.products.get(x.name)
        # `Graph.finish` drops the product that the fused one replaces
        return otherwise(x, *args, **kwargs) if product is None else _linear(*product, epilogue)

    return apply


def _layer_norm(x: Symbol, shape: Any, weight: Weight, bias: Weight, eps: float = 1e-5) -> Symbol:
    """Emit the norm of a sum as one AddNorm; other norms in standard operators."""
    terms = x.graph.sums.get(x.name)
    if terms is None or terms[0].shape != terms[1].shape:
        return ops.STANDARD_OPS[F.layer_norm](x, shape, weight, bias, eps)  # type: ignore[no-any-return]
    operands = *(term.name for term in terms), weight.name, bias.name
    return x.like(x.graph.emit("AddNorm", *operands, domain=DOMAIN, epsilon=eps))


def _unnormalised(taps: Symbol) -> tuple[str, int]:
    """Return the name of the kernels (taps) before their softmax, and 1; without a softmax `taps`, and 0."""
    node = taps.graph.producer(taps.name, "Softmax")
    return (taps.name, 0) if node is None else (node.input[0], 1)


def _dynamic_conv(x: Symbol, taps: Symbol, left: int) -> Symbol:
    kernels, softmax = _unnormalised(taps)
    return x.like(x.graph.emit("DynamicConv", x.name, kernels, domain=DOMAIN, left=left, softmax=softmax))


def _dynamic_conv_step(x: Symbol, taps: Symbol, ring: Symbol | None, index: Symbol | None) -> Symbol:
    kernels, softmax = _unnormalised(taps)
    past = [] if ring is None or index is None else [ring.name, index.name]
    return x.like(x.graph.emit("DynamicConvStep", x.name, kernels, *past, domain=DOMAIN, softmax=softmax))


def _attend(
    q: Symbol, keys: Symbol, values: Symbol, mask: Symbol, dropout: float = 0.0, shown: int = 0
) -> tuple[Symbol, Symbol]:
    """Emit Attend, and return its outputs and attention weights.

    The operator scales the queries itself: it reads them before a multiplication, if there is one.
    """
    query, scale = q.graph.scaled.get(q.name, (q, 1.0))
    operands = (query.name, keys.name, values.name, mask.name)
    options = {"shown": shown} if shown else {}
    name = q.graph.emit("Attend", *operands, outputs=2, domain=DOMAIN, scale=scale, **options)
    shape = (*broadcast(q.shape[:1], mask.shape[:1]), q.shape[1], mask.shape[1])
    return q.like(name), q.like(f"{name}.1", shape)


def _attend_cached(
    own: tuple[Symbol, Symbol, Symbol],
    past: tuple[Symbol, Symbol],
    lineage: Symbol,
    bias: tuple[Symbol, Symbol] | None = None,
) -> Symbol:
    q, key, value = own
    # the operator scales the queries itself
    query, scale = q.graph.scaled.get(q.name, (q, 1.0))
    operands = (part.name for part in (query, key, value, *past, lineage, *(bias or ())))
    return q.like(q.graph.emit("AttendCached", *operands, domain=DOMAIN, scale=scale))


def _attend_window(
    own: tuple[Symbol, Symbol, Symbol],
    past: tuple[Symbol, Symbol],
    index: Symbol,
    mask: Symbol,
    heads: int,
) -> Symbol:
    q, key, value = own
    # the operator scales the queries itself
    query, scale = q.graph.scaled.get(q.name, (q, 1.0))
    operands = (part.name for part in (query, key, value, *past, index, mask))
    return q.like(q.graph.emit("AttendWindow", *operands, domain=DOMAIN, scale=scale, heads=heads))


def _ssru_step(candidate: Symbol, gate: Symbol, ring: Symbol, index: Symbol) -> tuple[Symbol, Symbol]:
    operands = (candidate.name, gate.name, ring.name, index.name)
    name = candidate.graph.emit("SsruStep", *operands, outputs=2, domain=DOMAIN, epsilon=1.0)
    return candidate.like(name), candidate.like(f"{name}.1")


def _project_among(x: Symbol, output: tuple[Weight, Weight | None], among: Symbol, eos: int) -> Symbol:
    """Return logits [slots, beams, W] of the tokens in each slot's shortlist `among`, int [slots, W].

    `_select`, which needs the list to return token ids, finds it in `Graph.lists`.
    """
    g, (weight, bias) = x.graph, output
    shape, added = (*x.shape[:-1], among.shape[1]), [] if bias is None else [bias.name]
    if g.precision == "int8":
        rows, (scales, *alpha) = g.weight(weight, "rows"), _scales(weight)
        after = [*(added or [""]), *alpha] if alpha else added
        operands = [x.name, rows, scales, among.name, *after]
        logits = x.like(g.emit("Int8Among", *operands, domain=DOMAIN), shape)
    else:
        logits = x.like(g.emit("Among", x.name, weight.name, among.name, *added, domain=DOMAIN), shape)
    g.lists[logits.name] = among
    return logits


def _select(scores: Symbol, rules: Any, unk: int | None, eos: int, k: Symbol) -> tuple[Symbol, Symbol]:
    """Emit Select on the logits before a log-softmax: the operator normalises them itself."""
    inputs = SelectionRules(*rules)
    node = scores.graph.producer(scores.name, "LogSoftmax")
    logits = scores.name if node is None else node.input[0]
    operands = [logits, *(getattr(part, "name", "") for part in inputs), k.name]
    division = scores.graph.producer(logits, "Div")  # by the temperature
    among = scores.graph.lists.get(logits if division is None else division.input[0])
    if among is not None:
        operands.append(among.name)
    name = scores.graph.emit(
        "Select", *operands, outputs=2, domain=DOMAIN, unk=-1 if unk is None else unk, eos=eos
    )
    shape = (*scores.shape[:-1], "K")
    return scores.like(name, shape), scores.like(f"{name}.1", shape, "int")


def fuse_norms(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Fuse the norm of a sum into the product that is one of its terms, if no other node reads the product.

    Unread attention weights and copies to the graph's outputs are dropped too.
    """
    nodes = _drop_identities(nodes)
    readers = Counter(name for node in nodes for name in node.input)
    makers = {node.output[0]: node for node in nodes}
    norms = [node for node in nodes if node.op_type == "AddNorm"]
    dropped = {norm.name for norm in norms if _fuse_into_ssru_step(norm, nodes, readers)}
    for node in nodes:
        _drop_unread_weights(node, readers)
    for norm in norms:
        product = None if norm.name in dropped else _fusable_product(norm, makers, readers)
        if product is not None:
            _fuse_norm(norm, product)
            dropped.add(product.name)
    return [node for node in nodes if node.name not in dropped]


def _drop_unread_weights(node: onnx.NodeProto, readers: Mapping[str, int]) -> None:
    """Remove the attention weights from the outputs of an Attend that no node reads."""
    if node.op_type == "Attend" and node.output[1] == f"{node.name}.1" and not readers[node.output[1]]:
        node.output[1] = ""


def _fusable_product(
    norm: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], readers: Mapping[str, int]
) -> onnx.NodeProto | None:
    """Return the product that is a term of a norm's sum, if no other node reads it."""
    products = [name for name in norm.input[:2] if readers[name] == 1 and _is_plain_product(makers.get(name))]
    return makers[products[-1]] if products else None


def _fuse_norm(node: onnx.NodeProto, product: onnx.NodeProto) -> None:
    """Replace the node of a norm by the product, with the norm and the sum's other term as its epilogue."""
    residual = node.input[1 - list(node.input).index(product.output[0])]
    count = PRODUCTS[product.op_type]
    own, alpha = list(product.input[:count]), product.input[ALPHA:]
    operands = [*own, *[""] * (count - len(own)), residual]
    options = {a.name: helper.get_attribute_value(a) for part in (product, node) for a in part.attribute}
    options |= {"domain": DOMAIN, "epilogue": EPILOGUES["norm"]}
    names = [*operands, *node.input[2:], *alpha], [node.output[0]]
    node.CopyFrom(helper.make_node(product.op_type, *names, node.name, **options))


def _fuse_into_ssru_step(
    norm: onnx.NodeProto, nodes: list[onnx.NodeProto], readers: Mapping[str, int]
) -> bool:
    """Fuse a norm into the SSRU step before it, if no other node reads the step's output."""
    for cells in nodes:
        if (
            cells.op_type == "SsruStep"
            and cells.output[1] in norm.input[:2]
            and readers[cells.output[1]] == 1
        ):
            residual = norm.input[1 - list(norm.input).index(cells.output[1])]
            cells.input.extend([residual, *norm.input[2:]])
            cells.output[1] = norm.output[0]
            (epsilon,) = (a for a in norm.attribute if a.name == "epsilon")
            next(a for a in cells.attribute if a.name == "epsilon").CopyFrom(epsilon)
            return True
    return False


def _is_plain_product(node: onnx.NodeProto | None) -> bool:
    """Return whether a node is a product without an epilogue, and no output of the graph."""
    # `_drop_identities` gives the outputs of the graph other names than their nodes'
    if node is None or node.op_type not in PRODUCTS or node.output[0] != node.name:
        return False
    return any(a.name == "epilogue" and a.i == EPILOGUES["none"] for a in node.attribute)


def _drop_identities(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Remove Identity nodes before outputs of the graph; the results themselves get the outputs' names."""
    outputs = {name for node in nodes for name in node.output}
    names: dict[str, str] = {}
    originals = []
    for node in nodes:
        source = node.input[0] if node.op_type == "Identity" else ""
        if source in outputs and source not in names:
            names[source] = node.output[0]
        else:
            originals.append(node)
    for node in originals:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return originals


NATIVE_OPS: Final[dict[Callable[..., Any], Callable[..., Any]]] = ops.STANDARD_OPS | {
    F.linear: _linear,
    F.relu: _as_epilogue("relu", ops.STANDARD_OPS[F.relu]),
    F.glu: _as_epilogue("glu", ops.STANDARD_OPS[F.glu]),
    F.layer_norm: _layer_norm,
    dynamic_conv: _dynamic_conv,
    dynamic_conv_step: _dynamic_conv_step,
    attend: _attend,
    attend_cached: _attend_cached,
    attend_window: _attend_window,
    select: _select,
    project_among: _project_among,
    ssru_step: _ssru_step,
}
