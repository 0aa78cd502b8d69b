"""Symbols: values that emit ONNX nodes when torch code runs on them instead of tensors.

torch passes every function with a `Symbol` among its arguments to `__torch_function__`; the graph's table of
operators (`export/graphs/ops.py`) emits the nodes. Weights become initialisers with data outside the graph.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from engine.errors import ConfigError
from engine.native import PANEL

OPSET: Final = 21
Dim = int | str  # a name means a size known only at run time
# forms of weights whose last panel is padded, and the number of parts of a panel
PANEL_PARTS: Final = {"panels32": 1, "gated32": 2}
ONNX_TYPES: Final = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "bool": TensorProto.BOOL}


class Graph:
    """An ONNX graph under construction."""

    def __init__(
        self,
        precision: str,
        ops: Mapping[Callable[..., Any], Callable[..., Any]],
        fused: Callable[[list[onnx.NodeProto]], list[onnx.NodeProto]] = list,
    ) -> None:
        """Start an empty graph.

        precision: "fp32" or "int8".
        ops: function of torch to the function that emits its nodes.
        fused: rewrites the list of all nodes at the end.
        """
        self.precision, self.ops, self.fused = precision, ops, fused
        self.quantization = "none"  # the model's kind of quantization (`engine.bundle.config`)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple[Any, ...], str] = {}
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.recipes: dict[str, dict[str, Any]] = {}
        self.functions: dict[str, onnx.FunctionProto] = {}  # bodies of operators that are not standard
        self.quantized: dict[tuple[str, str], tuple[str, str]] = {}  # (result, alpha) to its bytes and scale
        self.lists: dict[str, Symbol] = {}  # logits in the order of a shortlist to the list
        self.sums: dict[str, tuple[Symbol, Symbol]] = {}  # sum to its two terms
        self.scaled: dict[str, tuple[Symbol, float]] = {}  # product with a number to its two factors
        self.products: dict[str, tuple[Symbol, Weight, Weight | None]] = {}  # product to x, weight and bias

    def input(self, name: str, shape: Sequence[Dim], kind: str) -> Symbol:
        self.inputs.append(helper.make_tensor_value_info(name, ONNX_TYPES[kind], list(shape)))
        return Symbol(self, name, tuple(shape), kind)

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node, and return its first output. Names are numbered: equal models give equal bytes."""
        name = f"{op}_{len(self.nodes)}"
        out = [name] + [f"{name}.{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), out, name=name, **attributes))
        return name

    def producer(self, name: str, op: str) -> onnx.NodeProto | None:
        """Return the node whose first output has this name if it has this operator, otherwise None."""
        number = name.rpartition("_")[2]
        node = self.nodes[int(number)] if name.startswith(f"{op}_") and number.isdecimal() else None
        return node if node is not None and node.op_type == op else None

    def constant(self, value: Any, dtype: type) -> str:
        """Return the name of a constant; equal constants are stored once."""
        array: NDArray[Any] = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = f"const_{len(self.constants)}"
            self.initializers.append(numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, weight: Weight, form: str) -> str:
        """Return the name of a weight's initialiser in a form of `engine.bundle.recipes`; add a new one."""
        shape = tuple(weight.size(axis) for axis in range(weight.dim()))
        if form in ("transposed", "quantized", "panels", "gated"):
            shape = shape[::-1]
        elif form in PANEL_PARTS:
            parts = PANEL_PARTS[form]
            # -(a // -b) rounds a / b up: the last panel is padded
            shape = shape[1], -(shape[0] // parts // -(PANEL // parts)) * PANEL
        elif form in ("scales", "static_scales"):
            shape = shape[:1]
        elif form == "alpha":
            shape = (1,)
        label = weight.label if form == "plain" else f"{weight.label}:{form}"
        if label not in self.recipes:
            self.recipes[label] = {**weight.recipe, "form": form}
            kind = TensorProto.INT8 if form in ("quantized", "panels", "gated", "rows") else TensorProto.FLOAT
            proto = onnx.TensorProto(name=label, data_type=kind, dims=shape)
            proto.data_location = TensorProto.EXTERNAL
            proto.external_data.add(key="location", value="model.safetensors")
            self.initializers.append(proto)
        return label

    def finish(self, outputs: dict[str, Symbol], name: str) -> bytes:
        """Return the serialised model with these outputs, without unused nodes and weights."""
        for label, symbol in outputs.items():
            self.nodes.append(helper.make_node("Identity", [symbol.name], [label], name=f"output_{label}"))
        infos = [
            helper.make_tensor_value_info(k, ONNX_TYPES[s.kind], list(s.shape)) for k, s in outputs.items()
        ]
        nodes, initializers = self._prune(set(outputs))
        graph = helper.make_graph(nodes, name, self.inputs, infos, initializers)
        domains = {node.domain for node in nodes} - {""}
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
        bodies = [body for _, body in sorted(self.functions.items())]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=bodies)
        model.producer_name = "convoy"
        names = {proto.name for proto in initializers}
        recipes = {label: recipe for label, recipe in self.recipes.items() if label in names}
        helper.set_model_props(model, {"convoy.initializers": json.dumps(recipes, sort_keys=True)})
        onnx.checker.check_model(without_external(model))
        return bytes(model.SerializeToString(deterministic=True))

    def _prune(self, names: set[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """Return the nodes and initialisers that these outputs need: ONNX Runtime would run unused nodes."""
        nodes = []
        # from the last node to the first: nodes that read a result come after the node that makes it
        for node in reversed(self.nodes):
            if not names.isdisjoint(node.output):
                nodes.append(node)
                names.update(node.input)
        return self.fused(nodes[::-1]), [proto for proto in self.initializers if proto.name in names]


class Symbol:
    """A tensor of the graph: its name, shape (names stand for dynamic sizes) and kind of elements."""

    def __init__(self, graph: Graph, name: str, shape: tuple[Dim, ...], kind: str = "float") -> None:
        self.graph, self.name, self.shape, self.kind = graph, name, shape, kind
        self.device = torch.device("cpu")

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Emit the nodes of a torch function. Raises ConfigError if the table of operators lacks it."""
        flat = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        graph = next(a.graph for a in flat if isinstance(a, Symbol))
        if func not in graph.ops:
            raise ConfigError(f"{func} has no ONNX form; add one to the table in export/graphs/ops.py")
        return graph.ops[func](*args, **(kwargs or {}))

    def like(self, name: str, shape: tuple[Dim, ...] | None = None, kind: str | None = None) -> Symbol:
        return Symbol(self.graph, name, self.shape if shape is None else shape, kind or self.kind)

    def size(self, axis: int) -> int:
        """Return the size of an axis, which must be static."""
        size = self.shape[axis]
        assert isinstance(size, int), f"axis {axis} of {self.name} is only known at run time"
        return size

    def dim(self) -> int:
        return len(self.shape)

    def _binary(self, op: str, other: Any, kind: str | None = None, *, swap: bool = False) -> Symbol:
        """Emit a node of two operands; `swap` exchanges them, `kind` is the kind of its result."""
        operands = [self.name, operand(self, other)]
        if swap:
            operands.reverse()
        has_shape = isinstance(other, (Symbol, torch.Tensor))
        shape = broadcast(self.shape, tuple(other.shape)) if has_shape else self.shape
        return self.like(self.graph.emit(op, *operands), shape, kind)

    def __add__(self, other: Any) -> Symbol:
        total = self._binary("Add", other)
        if isinstance(other, Symbol):
            self.graph.sums[total.name] = self, other
        return total

    def __sub__(self, other: Any) -> Symbol:
        return self._binary("Sub", other)

    def __radd__(self, other: Any) -> Symbol:
        return self._binary("Add", other, swap=True)

    def __rsub__(self, other: Any) -> Symbol:
        return self._binary("Sub", other, swap=True)

    def __mul__(self, other: Any) -> Symbol:
        product = self._binary("Mul", other)
        if isinstance(other, float):
            self.graph.scaled[product.name] = self, other
        return product

    def __rmul__(self, other: Any) -> Symbol:
        return self._binary("Mul", other, swap=True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._binary("Div", other)

    def __ge__(self, other: Any) -> Symbol:
        return self._binary("GreaterOrEqual", other, "bool")

    def __gt__(self, other: Any) -> Symbol:
        return self._binary("Greater", other, "bool")

    def __lt__(self, other: Any) -> Symbol:
        return self._binary("Less", other, "bool")

    def __and__(self, other: Any) -> Symbol:
        return self._binary("And", other, "bool")

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return self._binary("Equal", other, "bool")

    __hash__ = object.__hash__

    def unflatten(self, axis: int, sizes: Sequence[int]) -> Symbol:
        axis %= self.dim()
        return self._reshape(self.shape[:axis] + tuple(sizes) + self.shape[axis + 1 :])

    def flatten(self, start: int, end: int = -1) -> Symbol:
        """Merge the axes from `start` to `end`; a size known only at run time becomes "*"."""
        end %= self.dim()
        merged = self.shape[start : end + 1]
        static = all(isinstance(d, int) for d in merged)
        middle: Dim = math.prod(merged) if static else "*"
        return self._reshape((*self.shape[:start], middle, *self.shape[end + 1 :]))

    def _reshape(self, shape: tuple[Dim, ...]) -> Symbol:
        """Emit Reshape to a shape in which at most one new size is known only at run time."""
        # 0 copies the input's size of that axis, so that leading dynamic sizes need no arithmetic
        same = [d == mine for d, mine in zip(shape, self.shape, strict=False)] + [False] * len(shape)
        target = [
            d if isinstance(d, int) else (0 if equal else -1) for d, equal in zip(shape, same, strict=False)
        ]
        assert target.count(-1) < 2, f"{self.name}: two sizes of {shape} are only known at run time"
        return self.like(self.graph.emit("Reshape", self.name, self.graph.ints(*target)), shape)

    def permute(self, *axes: int) -> Symbol:
        name = self.graph.emit("Transpose", self.name, perm=list(axes))
        return self.like(name, tuple(self.shape[a] for a in axes))

    def transpose(self, a: int, b: int) -> Symbol:
        axes = list(range(self.dim()))
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(*axes)

    def squeeze(self, axis: int) -> Symbol:
        axis %= self.dim()
        name = self.graph.emit("Squeeze", self.name, self.graph.ints(axis))
        return self.like(name, self.shape[:axis] + self.shape[axis + 1 :])

    def unsqueeze(self, axis: int) -> Symbol:
        name = self.graph.emit("Unsqueeze", self.name, self.graph.ints(axis))
        return self.like(name, (*self.shape[:axis], 1, *self.shape[axis:]))

    def mean(self, axis: int) -> Symbol:
        return self._reduce("ReduceMean", axis)

    def sum(self, axis: int) -> Symbol:
        return self._reduce("ReduceSum", axis)

    def _reduce(self, op: str, axis: int) -> Symbol:
        axis %= self.dim()
        name = self.graph.emit(op, self.name, self.graph.ints(axis), keepdims=0)
        return self.like(name, self.shape[:axis] + self.shape[axis + 1 :])

    def abs(self) -> Symbol:
        return self.like(self.graph.emit("Abs", self.name))

    def to(self, dtype: torch.dtype) -> Symbol:
        kind = {torch.float32: "float", torch.int64: "int", torch.bool: "bool"}[dtype]
        return self.like(self.graph.emit("Cast", self.name, to=ONNX_TYPES[kind]), kind=kind)

    def split(self, sizes: Sequence[int], axis: int) -> list[Symbol]:
        """Split an axis into parts of these sizes."""
        axis %= self.dim()
        name = self.graph.emit("Split", self.name, self.graph.ints(*sizes), outputs=len(sizes), axis=axis)
        shapes = [(*self.shape[:axis], size, *self.shape[axis + 1 :]) for size in sizes]
        names = [name] + [f"{name}.{i}" for i in range(1, len(sizes))]
        return [self.like(part, shape) for part, shape in zip(names, shapes, strict=True)]

    def clamp(self, min: int) -> Symbol:  # noqa: A002  (torch's name)
        return self._binary("Max", min)

    def clamp_max(self, most: int) -> Symbol:
        return self._binary("Min", most)

    def cumsum(self, axis: int) -> Symbol:
        at = self.graph.constant(axis % self.dim(), np.int64)
        return self.like(self.graph.emit("CumSum", self.name, at))

    def gather(self, axis: int, index: Symbol) -> Symbol:
        return self.like(self.graph.emit("GatherElements", self.name, index.name, axis=axis), index.shape)

    def scatter(self, axis: int, index: Symbol, source: Any) -> Symbol:
        if not isinstance(source, Symbol):
            like = self.graph.emit("Shape", index.name)
            source = self.like(self.graph.emit("Expand", operand(self, source), like), index.shape)
        return self.like(self.graph.emit("ScatterElements", self.name, index.name, source.name, axis=axis))

    def __getitem__(self, items: Any) -> Symbol:
        """Emit slices and new axes, without integer indexes."""
        items = items if isinstance(items, tuple) else (items,)
        if Ellipsis in items:
            at = items.index(Ellipsis)
            # number of axes that "..." represents; None is a new axis
            hidden = self.dim() - sum(i is not None for i in items) + 1
            items = items[:at] + (slice(None),) * hidden + items[at + 1 :]
        result = self
        for axis, item in enumerate(items):
            if item is None:
                result = result.unsqueeze(axis)
            elif item != slice(None):
                result = result._slice(axis, item)
        return result

    def _slice(self, axis: int, item: slice) -> Symbol:
        """Emit a slice of one axis."""
        size, step = self.shape[axis], item.step or 1
        begin, end = item.start or 0, item.stop if item.stop is not None else 2**31
        # the length of a slice of a dynamic axis is unknown, except if it is counted from one end
        length: Dim = "?"
        if isinstance(size, int):
            begin, end, step = item.indices(size)
            length = len(range(begin, end, step))
        elif begin < 0 and item.stop is None and step == 1:
            length = -begin
        elif begin >= 0 and end < 2**31 and end >= 0:
            length = len(range(begin, end, step))
        ints = self.graph.ints
        bounds = [ints(begin), ints(end), ints(axis)] + ([ints(step)] if step != 1 else [])
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        return self.like(self.graph.emit("Slice", self.name, *bounds), shape)


class Weight(Symbol):
    """A parameter or constant table; `recipe` describes how its data are made (`engine.bundle.recipes`)."""

    def __init__(self, graph: Graph, label: str, shape: tuple[int, ...], recipe: dict[str, Any]) -> None:
        super().__init__(graph, "", shape)
        self.label, self.recipe = label, recipe

    def __getattribute__(self, key: str) -> Any:
        if key == "name":  # the first node that reads it adds the initialiser
            return self.graph.weight(self, "plain")
        return super().__getattribute__(key)


def operand(symbol: Symbol, other: Any) -> str:
    """Return the name of an operand: a symbol's, or that of a new constant of the symbol's element type."""
    if isinstance(other, Symbol):
        return other.name
    if isinstance(other, torch.Tensor):
        other = other.numpy()
    return symbol.graph.constant(other, np.float32 if symbol.kind == "float" else np.int64)


def broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shape of two operands after broadcasting; dynamic sizes are taken as equal."""
    width = max(len(a), len(b))
    a, b = (1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def without_external(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy for ONNX's checker in which external weights are inputs.

    The checker would search the external file, which does not exist: weights come from memory.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    initializers = []
    for proto in copy.graph.initializer:
        if proto.data_location == TensorProto.EXTERNAL:
            copy.graph.input.append(helper.make_tensor_value_info(proto.name, proto.data_type, proto.dims))
        else:
            initializers.append(proto)
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(initializers)
    return copy
