"""Graphs and engines for TensorRT, as far as a machine without TensorRT can tell.

docs/tensorrt.md says what has been run for real."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine.bundle import graph_parts
from engine.executors.onnx import OnnxExecutor, open_sessions
from export.onnx import encoder_graph, step_graph
from export.plugins import DOMAIN
from tests.models import CONFIGS, weights
from tests.test_executors import inputs, join, started

MAKERS = {"encoder": encoder_graph, "step": step_graph}


def plugin_nodes(graph: bytes) -> list[onnx.NodeProto]:
    return [node for node in onnx.load_from_string(graph).graph.node if node.domain == DOMAIN]


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_graphs_for_tensorrt_run_in_onnx_runtime_and_equal_torch(name):
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


@pytest.mark.parametrize("name", ["glu", "light"])
def test_each_convolution_is_one_node_with_all_that_the_parser_asks_for(name):
    config = CONFIGS[name]
    kind = {"glu": "DynamicConv", "light": "LightConv"}[name]
    encoder, step = (plugin_nodes(MAKERS[part](config, "fp32", "tensorrt")) for part in ("encoder", "step"))
    assert [n.op_type for n in encoder] == [kind] * config.encoder.layers
    assert [n.op_type for n in step] == [f"{kind}Step"] * config.decoder.layers
    for node, width in zip(encoder, config.encoder.kernel_sizes, strict=True):
        assert attributes(node) == {"aot": 1, "left": width // 2, "plugin_namespace": b"convoy"}
    for node in step:
        assert attributes(node) == {"aot": 1, "plugin_namespace": b"convoy"}


def test_kernels_without_a_softmax_are_left_to_standard_operators():
    assert not plugin_nodes(step_graph(CONFIGS["raw kernels"], "fp32", "tensorrt"))
    assert not plugin_nodes(step_graph(CONFIGS["cnn"], "fp32", "tensorrt"))
