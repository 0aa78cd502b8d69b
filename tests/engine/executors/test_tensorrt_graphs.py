"""Graphs for TensorRT, run by ONNX Runtime: plugins as nodes, and narrow types."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from engine.bundle.bundle import graph_parts
from engine.executors.onnx.executor import OnnxExecutor
from engine.executors.onnx.sessions import open_sessions
from engine.search.executor import TopK
from export.graphs.onnx import encoder_graph, step_graph
from export.graphs.plugins import DOMAIN
from export.graphs.precision import narrow_graph
from export.graphs.rounded import round_graph
from export.graphs.standalone import with_weights
from tests.engine.executors.test_executors import inputs, join, started
from tests.support.models import CONFIGS, some_models, weights

MAKERS = {"encoder": encoder_graph, "step": step_graph}


def plugin_nodes(graph: bytes) -> list[onnx.NodeProto]:
    return [node for node in onnx.load_from_string(graph).graph.node if node.domain == DOMAIN]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_tensorrt_graphs_in_onnx_runtime_equal_torch(name):
    config = CONFIGS[name]
    made = {part: MAKERS[part](config, "fp32", "tensorrt") for part in graph_parts(config)}
    lane = OnnxExecutor(open_sessions(config, made, weights(name), 1), beams=2, slots=3)
    torch_lane, slots = started("torch", name)
    again: list = []
    join(lane, again, [slot.source for slot in slots])
    rng = np.random.default_rng(3)
    for _ in range(5):
        parents = rng.integers(0, 2, (3, 2))
        for a in (slots, again):
            for slot, order in zip(a, parents, strict=True):
                slot.prefixes = [slot.prefixes[p] for p in order]
        want = torch_lane.step(3, inputs(torch_lane, slots, parents))
        got = lane.step(3, inputs(lane, again, parents))
        np.testing.assert_allclose(got.scores, want.scores.numpy(), rtol=1e-5, atol=3e-5)
        for a, b in zip(slots, again, strict=True):
            a.prefixes = [[*p, int(t)] for p, t in zip(a.prefixes, rng.integers(4, 47, 2), strict=True)]
            b.prefixes = [list(p) for p in a.prefixes]


@pytest.mark.parametrize("name", some_models(4))
def test_fp16_graphs_stay_close_to_torch_in_fp32(name):
    config = CONFIGS[name]
    made = {
        part: narrow_graph(MAKERS[part](config, "fp32", "tensorrt"), "fp16", config)
        for part in graph_parts(config)
    }
    lane = OnnxExecutor(open_sessions(config, made, weights(name), 1, device="cpu"), beams=2, slots=3)
    torch_lane, slots = started("torch", name)
    join(lane, [], [slot.source for slot in slots])
    parents = np.zeros((3, 2), np.int64)
    for step in range(4):
        want = torch_lane.step(3, inputs(torch_lane, slots, parents, k=46))
        got = as_numpy(lane.step(3, inputs(torch_lane, slots, parents, k=46)))
        full, narrow = (
            np.take_along_axis(s, np.argsort(i, 2), 2)
            for s, i in ((want.scores.numpy(), want.ids.numpy()), (got.scores, got.ids))
        )
        possible = np.isfinite(full)
        # logits of magnitude 2^e are rounded to 2^(e - 11): models without a last norm have large ones
        allowed = 0.03 + 0.005 * np.abs(full[possible]).max()
        assert np.abs(full - narrow)[possible].max() < allowed
        for slot in slots:
            slot.prefixes = [[*p, 5 + step] for p in slot.prefixes]


def as_numpy(top: TopK) -> TopK:
    return TopK(*(None if v is None else np.asarray(v) for v in top))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["glu", "transformer", "aan"])
def test_narrow_graphs_have_narrow_memory_and_state_but_wide_sums_and_results(name, precision):
    kind = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}[precision]
    config = CONFIGS[name]
    made = narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config)
    graph = onnx.load_from_string(made).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    for value, found in types.items():
        place = value.split(".")[0]
        if place == "memory" or (place in ("state", "cache", "column") and name != "aan"):
            assert found == kind, value
        elif place in ("state", "column", "scores", "attention", "mask", "temperature", "lineage"):
            assert found == onnx.TensorProto.FLOAT, value
    assert made == narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config)
    assert all(i.data_type == kind for i in graph.initializer if i.data_location == onnx.TensorProto.EXTERNAL)


@pytest.mark.parametrize("name", ["glu", "light", "transformer", "aan", "convs2s", "slicenet"])
def test_bf16_graphs_stay_close_to_fp32_when_every_narrow_result_is_rounded(name):
    """ONNX Runtime has no bf16 on the CPU, so each node runs in fp32 and its result is rounded to bf16."""
    config = CONFIGS[name]
    feeds = step_feeds(name)
    graph = step_graph(config, "fp32")
    scores = [
        run_standalone(round_graph(g) if g is not graph else g, weights(name), feeds)
        for g in (graph, narrow_graph(graph, "bf16", config))
    ]
    possible = np.isfinite(scores[0])
    assert (possible == np.isfinite(scores[1])).all()
    assert np.abs(scores[0] - scores[1])[possible].max() < 0.25 + 0.03 * np.abs(scores[0][possible]).max()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_products_that_make_logits_are_fp32_in_bf16_graphs_and_narrow_in_fp16(name):
    """In bf16 graphs, no value between such a product and its log-softmax is narrow, only stored weights."""
    config = CONFIGS[name]
    for precision, kind in (("bf16", onnx.TensorProto.BFLOAT16), ("fp16", onnx.TensorProto.FLOAT16)):
        graph = onnx.load_from_string(narrow_graph(step_graph(config, "fp32", "tensorrt"), precision, config))
        inferred = onnx.shape_inference.infer_shapes(graph, strict_mode=True).graph
        types = {v.name: v.type.tensor_type.elem_type for v in inferred.value_info}
        stored = {i.name: i.data_type for i in graph.graph.initializer}
        makers = {o: node for node in graph.graph.node for o in node.output}
        waiting = [node.input[0] for node in graph.graph.node if node.op_type == "LogSoftmax"]
        products = []
        while waiting:
            node = makers.get(waiting.pop())
            if node is not None and node.op_type == "MatMul":
                products.append(node)
            elif node is not None:
                waiting += node.input
        assert products
        for node in products:
            assert types[node.output[0]] == (onnx.TensorProto.FLOAT if precision == "bf16" else kind)
            weight = node.input[1]
            while weight not in stored:
                weight = makers[weight].input[0]
            assert stored[weight] == kind


def step_feeds(name: str) -> dict[str, np.ndarray]:
    """Return random inputs of a step graph, by name."""
    g = np.random.default_rng(1)
    sizes = {"slots": 2, "beams": 2, "bans": 1, "source": 32, "columns": 32, "entries": 64}
    feeds = {}
    for value in onnx.load_from_string(step_graph(CONFIGS[name], "fp32")).graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            index = value.name.startswith("index")  # into the rows of any ring
            feeds[value.name] = g.integers(*((0, 4) if index else (4, 40)), shape)
        else:
            feeds[value.name] = g.normal(size=shape).astype(np.float32)
    feeds["positions"][:] = 3
    feeds["forced"][:] = -1
    feeds["k"][:] = 46
    for wide in ("mask", "lineage"):
        if wide in feeds:
            feeds[wide][:] = 0
    feeds["temperature"][:] = 1
    return feeds


def run_standalone(graph: bytes, model_weights: dict, feeds: dict) -> np.ndarray:
    """Return the scores of all tokens, in the order of their ids."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        for name, data in with_weights(graph, model_weights, "step").items():
            (Path(folder) / name).write_bytes(data)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(
            Path(folder) / "step.onnx", options, providers=["CPUExecutionProvider"]
        )
        scores, ids = session.run(["scores", "ids"], feeds)
    return np.take_along_axis(scores, np.argsort(ids, 2), 2)


@pytest.mark.parametrize("name", ["glu", "light"])
def test_each_convolution_is_one_plugin_node_with_the_required_attributes(name):
    config = CONFIGS[name]
    kind = {"glu": "DynamicConv", "light": "LightConv"}[name]
    encoder, step = (plugin_nodes(MAKERS[part](config, "fp32", "tensorrt")) for part in ("encoder", "step"))
    assert [n.op_type for n in encoder] == [kind] * config.encoder.layers
    assert [n.op_type for n in step] == [f"{kind}Step"] * config.decoder.layers
    for node, width in zip(encoder, config.encoder.kernel_sizes, strict=True):
        assert attributes(node) == {"aot": 1, "left": width // 2, "plugin_namespace": b"convoy"}
    for node in step:
        assert attributes(node) == {"aot": 1, "plugin_namespace": b"convoy"}


def test_convolutions_without_a_softmax_use_standard_operators():
    assert not plugin_nodes(step_graph(CONFIGS["raw kernels"], "fp32", "tensorrt"))
    assert not plugin_nodes(step_graph(CONFIGS["cnn"], "fp32", "tensorrt"))
