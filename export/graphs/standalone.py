"""Write graphs for other runtimes, with their weights in a second file: NAME.onnx and NAME.onnx.data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from engine.bundle.bundle import Bundle, graph_parts
from engine.bundle.config import ModelConfig
from engine.bundle.folder import replacing, write_file
from engine.bundle.recipes import METADATA, initializer
from engine.errors import BundleError
from export.graphs.onnx import encoder_graph, step_graph
from export.graphs.precision import NARROW, narrow_graph

ALIGNMENT: Final = 4096  # bytes; runtimes can map aligned weights into memory


def graph_of(config: ModelConfig, part: str, precision: str) -> bytes:
    """Return one graph without weights, which TensorRT reads too.

    config: configuration of the model.
    part: "encoder" or "step".
    precision: "fp32", "fp16", "bf16" or "int8".
    """
    maker = {"encoder": encoder_graph, "step": step_graph}[part]
    if precision == "int8":
        return unsign_weights(maker(config, "int8", "tensorrt"))
    graph = maker(config, "fp32", "tensorrt")
    return narrow_graph(graph, precision, config) if precision in NARROW else graph


def unsign_weights(graph: bytes) -> bytes:
    """Give each int8 product unsigned weights around a zero point of 128.

    A product of unsigned and signed bytes saturates in ONNX Runtime on x86-64 processors without VNNI, unless
    a session has the entry "session.x64quantprecision". A product of unsigned bytes is exact everywhere.

    graph: serialised, without weights.
    """
    model = onnx.load_from_string(graph)
    properties = {p.key: p.value for p in model.metadata_props}
    recipes = json.loads(properties[METADATA])
    products = [node for node in model.graph.node if node.op_type == "MatMulInteger"]
    weights = {node.input[1] for node in products}
    for node in products:
        # inputs: rows, weights, zero point of the rows; the fourth is the zero point of the weights
        node.input.append(node.input[2])  # the zero point of the rows, 128 too
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.data_type = TensorProto.UINT8
            recipes[tensor.name]["form"] = "unsigned"
    helper.set_model_props(model, properties | {METADATA: json.dumps(recipes, sort_keys=True)})
    return bytes(model.SerializeToString(deterministic=True))


def write(bundle: Bundle, precision: str, folder: Path) -> list[Path]:
    """Write a bundle's graphs with their weights into a new folder.

    bundle: the model.
    precision: precision of the graphs.
    folder: folder to create.

    Returns the paths of the files. Raises BundleError if the folder exists.
    """
    if folder.exists():
        raise BundleError(f"{folder}: already exists; name another folder")
    weights, names = bundle.weights(), []
    with replacing(folder) as fresh:
        for part in graph_parts(bundle.config):
            graph = graph_of(bundle.config, part, precision)
            for name, data in with_weights(graph, weights, part).items():
                write_file(fresh / name, data)
                names.append(name)
    return [folder / name for name in names]


def with_weights(graph: bytes, weights: Mapping[str, NDArray[np.float32]], name: str) -> dict[str, bytes]:
    """Return the files of a self-contained graph by name; equal arguments give equal bytes.

    graph: serialised graph, without weights.
    weights: weights of its bundle, by name.
    name: name of the files, without ending.

    Raises BundleError if the weights are not those of the graph.
    """
    model = onnx.load_from_string(graph)
    properties = {p.key: p.value for p in model.metadata_props}
    recipes, data = json.loads(properties[METADATA]), bytearray()
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        raw = initializer(recipes[tensor.name], weights).tobytes()
        # zeros up to the next multiple
        data.extend(b"\0" * (-len(data) % ALIGNMENT))
        del tensor.external_data[:]
        for key, value in {"location": f"{name}.onnx.data", "offset": len(data), "length": len(raw)}.items():
            tensor.external_data.add(key=key, value=str(value))
        data.extend(raw)
    helper.set_model_props(model, {})
    return {
        f"{name}.onnx": bytes(model.SerializeToString(deterministic=True)),
        f"{name}.onnx.data": bytes(data),
    }


def fix_input(graph: bytes, name: str, value: int) -> bytes:
    """Return a graph with one input replaced by a constant, such as k for TensorRT.

    graph: serialised graph.
    name: name of an input int64 [1].
    value: value of the constant.
    """
    model = onnx.load_from_string(graph)
    inputs = [i for i in model.graph.input if i.name != name]
    assert len(inputs) == len(model.graph.input) - 1  # the graph has this input
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
    return bytes(model.SerializeToString(deterministic=True))
