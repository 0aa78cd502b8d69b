"""Rewrite bf16 graphs for runtimes without bf16: results are computed in fp32, then rounded to bf16.

A GPU's matrix unit also adds in fp32 and rounds; only the order of its sums differs.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from engine.bundle.recipes import METADATA

WIDE: Final = TensorProto.FLOAT
BF16: Final = TensorProto.BFLOAT16


def round_graph(graph: bytes) -> bytes:
    """Return a bf16 graph of `precision.narrow_graph` as an fp32 graph.

    A round trip through bf16 follows each weight and each node whose result was bf16.
    """
    model = onnx.load_from_string(graph)
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    values = (*inferred.value_info, *inferred.output)
    narrow = {v.name for v in values if v.type.tensor_type.elem_type == BF16}
    nodes = _widen_weights(model.graph)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == BF16:
                attribute.i = WIDE
        results = [name for name in node.output if name in narrow]
        node.output[:] = [f"{name}:raw" if name in narrow else name for name in node.output]
        nodes.append(node)
        for name in results:
            nodes += _round_trip(f"{name}:raw", name)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == BF16:
            value.type.tensor_type.elem_type = WIDE
    _use_fp32_recipes(model)
    return bytes(model.SerializeToString(deterministic=True))


def _widen_weights(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Make weights fp32, and return the nodes that round the external ones, which other nodes now read."""
    nodes: list[onnx.NodeProto] = []
    for tensor in graph.initializer:
        if tensor.data_type != BF16:
            continue
        if tensor.data_location == TensorProto.EXTERNAL:
            _rename_input(graph, tensor.name, f"{tensor.name}:rounded")
            nodes += _round_trip(tensor.name, f"{tensor.name}:rounded")
        else:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        tensor.data_type = WIDE
    return nodes


def _round_trip(name: str, out: str) -> list[onnx.NodeProto]:
    """Return the nodes that round the fp32 value `name` to bf16 and back, as `out`."""
    return [
        helper.make_node("Cast", [name], [f"{out}:bf16"], to=BF16),
        helper.make_node("Cast", [f"{out}:bf16"], [out], to=WIDE),
    ]


def _rename_input(graph: onnx.GraphProto, name: str, other: str) -> None:
    """Replace the input `name` of every node by `other`."""
    for node in graph.node:
        node.input[:] = [other if operand == name else operand for operand in node.input]


def _use_fp32_recipes(model: onnx.ModelProto) -> None:
    """Change the recipes to fp32 weights, which nodes of the graph round."""
    properties = {p.key: p.value for p in model.metadata_props}
    recipes = json.loads(properties[METADATA])
    for recipe in recipes.values():
        recipe.pop("type", None)
    helper.set_model_props(model, properties | {METADATA: json.dumps(recipes, sort_keys=True)})
