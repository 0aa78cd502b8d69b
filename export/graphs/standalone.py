"""Graphs with their weights beside them, as other runtimes read them: NAME.onnx and NAME.onnx.data."""

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

ALIGNMENT: Final = 4096  # of each weight in the file, so that it can be mapped into memory


def graph_of(config: ModelConfig, part: str, precision: str) -> bytes:
    """Make one graph without weights; TensorRT takes it too.

    config: of the model.
    part: "encoder" or "step".
    precision: any.
    """
    maker = {"encoder": encoder_graph, "step": step_graph}[part]
    graph = maker(config, "int8" if precision == "int8" else "fp32", "tensorrt")
    return narrow_graph(graph, precision, config) if precision in NARROW else graph


def write(bundle: Bundle, precision: str, folder: Path) -> list[Path]:
    """Write a bundle's graphs with their weights into a new folder.

    bundle: whose graphs are written.
    precision: of the graphs.
    folder: must not exist.

    Raises BundleError when it does.
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
    """Make the files of a graph that needs nothing else, by name; the same input gives the same bytes.

    graph: serialised, without weights.
    weights: of its bundle, by name.
    name: of the files, without ending.

    Raises BundleError when the weights are not those of the graph.
    """
    model = onnx.load_from_string(graph)
    properties = {p.key: p.value for p in model.metadata_props}
    recipes, data = json.loads(properties[METADATA]), bytearray()
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        raw = initializer(recipes[tensor.name], weights).tobytes()
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
    """Make an input of a graph a constant, for runtimes that must know it (k, in TensorRT).

    graph: serialised.
    name: of an input int64 [1].
    value: of the constant.
    """
    model = onnx.load_from_string(graph)
    inputs = [i for i in model.graph.input if i.name != name]
    assert len(inputs) == len(model.graph.input) - 1
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), name))
    return bytes(model.SerializeToString(deterministic=True))
