"""Rewrite fp32 graphs of any architecture in fp16 or bf16, by one table of operators.

Narrow are matrix products, convolutions, norms (their statistics are fp32 by definition), and operators that
only move or add numbers. fp32 are softmax, reductions, divisions, the selection of tokens and all outputs
that the search reads. Casts connect the two. Memory and state are narrow, except running sums (averaged
attention), in which a narrow type would lose small terms.

bf16 has 8 bits of mantissa, too few for logits and for sums of layers: in bf16 graphs norms, additions to
their results, and products that make logits are fp32; their weights stay bf16 and are cast.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine.bundle.config import ModelConfig
from engine.bundle.graph_io import COLUMN, STATE, STATEFUL, kind_of
from engine.bundle.recipes import METADATA
from export.graphs.symbols import without_external

NARROW: Final = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
DTYPES: Final[dict[int, np.dtype[Any]]] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
FLOAT: Final = TensorProto.FLOAT
OTHER: Final = TensorProto.UNDEFINED  # integers and booleans, which are not rewritten
# operators that are always fp32
WIDE_OPS: Final = frozenset(
    {
        "Softmax",
        "LogSoftmax",
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceLogSumExp",
        "CumSum",
        "TopK",
        "IsNaN",
        "Exp",
        "Log",
        "Sqrt",
        "Div",
    }
)
# operators that are always narrow
NARROW_OPS: Final = frozenset(
    {"MatMul", "Conv", "LayerNormalization", "DynamicConv", "DynamicConvStep", "LightConv", "LightConvStep"}
)
# operators that may stand between the product of logits and the log-softmax
PASSING: Final = frozenset({"Add", "Concat", "Cast", "Div"})
# operators whose results are integers or booleans
UNTYPED: Final = frozenset(
    {"Shape", "IsNaN", "Equal", "Greater", "GreaterOrEqual", "Less", "And", "Or", "Not", "Size"}
)
RESULTS: Final = frozenset({"scores", "attention"})  # outputs in fp32


def narrow_graph(graph: bytes, precision: str, config: ModelConfig) -> bytes:
    """Return a graph in a narrower type; equal arguments give equal bytes.

    graph: fp32 graph of `export.graphs.onnx`, without weights.
    precision: "fp16" or "bf16".
    config: configuration of the model.
    """
    model = onnx.load_from_string(graph)
    recipes = json.loads(model.metadata_props[0].value)
    narrow_recipes = {label: recipe | {"type": precision} for label, recipe in recipes.items()}
    helper.set_model_props(model, {METADATA: json.dumps(narrow_recipes, sort_keys=True)})
    return _Rewrite(model, NARROW[precision], _keeps_sums(config)).apply()


def _keeps_sums(config: ModelConfig) -> bool:
    """Return whether a decoder's state holds running sums or slowly decaying averages, which stay fp32."""
    return any(getattr(part.decoder, "keeps_sums", False) for part in config.stack_configs)


def _logit_products(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the products that a log-softmax reads."""
    makers = {name: node for node in graph.node for name in node.output}
    waiting = [name for node in graph.node if node.op_type == "LogSoftmax" for name in node.input]
    logits: set[str] = set()
    while waiting:
        maker = makers.get(name := waiting.pop())
        if maker is not None and maker.op_type == "MatMul":
            logits.add(name)
        elif maker is not None and maker.op_type in PASSING:
            waiting += maker.input
    return logits


class _Rewrite:
    """Rewrites a graph of fp32 in a narrow type."""

    def __init__(self, model: onnx.ModelProto, narrow: int, sums: bool) -> None:
        self.model, self.graph, self.narrow, self.sums = model, model.graph, narrow, sums
        self.types: dict[str, int] = {}
        self.casts: dict[tuple[str, int], str] = {}
        self.constants = {
            i.name: i for i in self.graph.initializer if i.data_type == FLOAT and not self._is_external(i)
        }
        self.weights = {
            i.name for i in self.graph.initializer if i.data_type == FLOAT and self._is_external(i)
        }
        self.nodes: list[onnx.NodeProto] = []
        self.logits = _logit_products(self.graph)

    def apply(self) -> bytes:
        """Rewrite inputs, weights, outputs and nodes; returns the serialised graph."""
        for value in self.graph.input:
            tensor = value.type.tensor_type
            if tensor.elem_type == FLOAT and kind_of(value.name) in STATEFUL and not self._is_sum(value.name):
                tensor.elem_type = self.narrow
            self.types[value.name] = tensor.elem_type if tensor.elem_type in (FLOAT, self.narrow) else OTHER
        for initializer in self.graph.initializer:
            if initializer.name in self.weights:
                initializer.data_type = self.types[initializer.name] = self.narrow
        for value in self.graph.output:
            tensor = value.type.tensor_type
            if tensor.elem_type == FLOAT and value.name not in RESULTS and not self._is_sum(value.name):
                tensor.elem_type = self.narrow
        results = {value.name: value.type.tensor_type.elem_type for value in self.graph.output}
        for node in list(self.graph.node):
            self._rewrite_node(node, results)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        self._drop_unread()
        onnx.checker.check_model(without_external(self.model))
        return bytes(self.model.SerializeToString(deterministic=True))

    def _rewrite_node(self, node: onnx.NodeProto, results: dict[str, int]) -> None:
        """Append a node, with casts of its float inputs to the type in which it computes."""
        numbers = [n for n in node.input if n in self.constants or self.types.get(n, OTHER) != OTHER]
        if node.output[0] in results and numbers:
            target = results[node.output[0]]
        else:
            target = self._type_of(node, numbers) if numbers else OTHER
        for i, name in enumerate(node.input):
            if name in numbers:
                node.input[i] = self._cast(name, target)
        self._record_types(node, target)
        self.nodes.append(node)

    def _record_types(self, node: onnx.NodeProto, target: int) -> None:
        """Store the type of each output of a node."""
        for name in node.output:
            self.types[name] = OTHER if node.op_type in UNTYPED else target
        if node.op_type == "TopK":
            self.types[node.output[1]] = OTHER
        if node.op_type == "Cast":
            to = next(a.i for a in node.attribute if a.name == "to")
            self.types[node.output[0]] = FLOAT if to == FLOAT else OTHER

    def _type_of(self, node: onnx.NodeProto, numbers: Sequence[str]) -> int:
        """Return the float type in which a node computes.

        node: the node.
        numbers: names of its float inputs.
        """
        if node.op_type in WIDE_OPS:
            return FLOAT
        coarse = node.op_type == "LayerNormalization" or node.output[0] in self.logits
        if coarse and self.narrow == TensorProto.BFLOAT16:
            return FLOAT
        if node.op_type in NARROW_OPS:
            return self.narrow
        # other operators are narrow only if all their inputs are; constants are cast
        types = {self.types[name] for name in numbers if name not in self.constants}
        return self.narrow if types == {self.narrow} else FLOAT

    def _cast(self, name: str, target: int) -> str:
        """Return the name of a value in a type; append a Cast node if needed."""
        if name in self.constants:
            return name if target == FLOAT else self._narrow_constant(name)
        if self.types[name] == target:
            return name
        key = name, target
        if key not in self.casts:
            self.casts[key] = f"{name}:{TensorProto.DataType.Name(target).lower()}"
            cast = helper.make_node("Cast", [name], [self.casts[key]], name=self.casts[key], to=target)
            self.nodes.append(cast)
            self.types[self.casts[key]] = target
        return self.casts[key]

    def _narrow_constant(self, name: str) -> str:
        """Return the name of a constant in the narrow type; add it at its first use."""
        narrow_name = f"{name}:narrow"
        if (name, self.narrow) not in self.casts:
            self.casts[name, self.narrow] = narrow_name
            value = numpy_helper.to_array(self.constants[name]).astype(DTYPES[self.narrow])
            self.graph.initializer.append(
                helper.make_tensor(narrow_name, self.narrow, value.shape, value.tobytes(), raw=True)
            )
            self.types[narrow_name] = self.narrow
        return narrow_name

    def _drop_unread(self) -> None:
        """Drop constants of which only the narrow form is read."""
        names = {name for node in self.graph.node for name in node.input}
        initializers = [i for i in self.graph.initializer if i.name in names]
        del self.graph.initializer[:]
        self.graph.initializer.extend(initializers)

    def _is_sum(self, name: str) -> bool:
        """Return whether a name is a running sum, which stays fp32."""
        return self.sums and kind_of(name) in (STATE, COLUMN)

    @staticmethod
    def _is_external(initializer: onnx.TensorProto) -> bool:
        return bool(initializer.data_location == TensorProto.EXTERNAL)
