"""Undocumented behaviour of the real TensorRT builder, and real engines in captured steps.

`bash loadtest/gpu.sh right` runs these tests on a machine with a GPU and TensorRT, and names the failed ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.bundle.bundle import graph_parts
from engine.executors.cuda.streams import CudaStreams
from engine.executors.torch.executor import TorchExecutor
from engine.types import Result
from tests.support.captured import assert_same, random_jobs, run
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model, weights
from tests.support.toy import toy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("tensorrt") is None,
        reason="needs a GPU and TensorRT with its builder",
    ),
]
BEAMS, SLOTS = 3, 4


@dataclass(frozen=True, slots=True)
class Step:
    """The parsed network of a step, and the names of its convolutions."""

    made: Any
    path: Path
    convolutions: list[str]

    def plugins(self) -> list[Any]:
        import tensorrt as trt

        network = self.made.network
        layers = (network.get_layer(i) for i in range(network.num_layers))
        return [layer for layer in layers if layer.type == trt.LayerType.PLUGIN_V3]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Step]:
    import onnx

    from engine.kernels.nvrtc import Compiler, default_cache
    from engine.kernels.trt_plugin import register
    from export.graphs.plugins import DOMAIN
    from export.graphs.standalone import fix_input, graph_of, with_weights
    from export.graphs.tensorrt import parse_graph

    register(Compiler(default_cache()))
    folder = tmp_path_factory.mktemp("step")
    graph = fix_input(graph_of(CONFIGS["glu"], "step", "fp16"), "k", 8)
    for name, data in with_weights(graph, weights("glu"), "step").items():
        (folder / name).write_bytes(data)
    nodes = onnx.load_from_string(graph).graph.node
    yield Step(
        parse_graph(folder / "step.onnx"), folder / "step.onnx", [n.name for n in nodes if n.domain == DOMAIN]
    )


def test_parser_makes_a_plugin_of_each_convolution(step: Step) -> None:
    assert len(step.plugins()) == len(step.convolutions)


def test_taps_keep_their_static_heads_and_width_in_the_parser(step: Step) -> None:
    for plugin in step.plugins():
        assert min(tuple(plugin.get_input(1).shape)[-2:]) > 0


def test_plugin_accepts_an_int64_input(step: Step) -> None:
    import tensorrt as trt

    for plugin in step.plugins():
        assert plugin.get_input(3).dtype == trt.int64


def test_inspector_names_plugins_like_their_nodes(tmp_path: Path) -> None:
    """An export discards an engine if the inspector lists no plugin of a convolution's name."""
    from export.graphs.tensorrt import LaneShape, build

    build(toy(tmp_path, "glu"), LaneShape("fp16", beams=BEAMS, slots=SLOTS), tmp_path / "timings")


def test_run_with_user_managed_memory_is_captured_and_replayed(tmp_path: Path) -> None:
    """A replay of the encoder's engine reads the new contents of its inputs."""
    from engine.executors.tensorrt.engine_runs import EngineRuns
    from engine.executors.tensorrt.executor import open_engines
    from export.graphs.tensorrt import LaneShape, build

    made = build(toy(tmp_path, "glu"), LaneShape("fp32", beams=BEAMS, slots=SLOTS), tmp_path / "timings")
    engines, streams = open_engines(made, ("fp32", BEAMS, SLOTS), "cuda"), CudaStreams("cuda")
    runs = EngineRuns(engines.encoder, engines.about.slots, torch.device("cuda"))
    fed = {
        "tokens": torch.arange(4, 4 + 32, device="cuda")[None],
        "positions": torch.arange(32, device="cuda"),
        "real": torch.ones(1, 32, device="cuda"),
    }
    with streams.decoding():
        first = {name: value.clone() for name, value in runs(1, {}, fed).items()}
        replay = streams.capture(lambda: runs(1, {}, fed) and None)
        fed["tokens"].copy_(fed["tokens"].flip(1))
        replay()
        flipped = {name: value.clone() for name, value in runs(1, {}, fed).items()}
        replay()
        for name, value in runs(1, {}, fed).items():
            assert torch.equal(value, flipped[name])
            assert not torch.equal(value, first[name])
    assert len(runs) == 1


class Refusing(CudaStreams):
    def capture(self, step: Any) -> Any:
        raise RuntimeError("no captures here")


@pytest.mark.parametrize(
    ("name", "precision"), [("glu", "fp16"), ("glu", "bf16"), ("transformer", "fp32"), ("aan", "fp16")]
)
def test_captured_steps_answer_like_launched_steps_and_like_torch(
    tmp_path: Path, name: str, precision: str
) -> None:
    """Requests of every option in flight, while slots leave, sources grow and bans change."""
    from engine.executors.tensorrt.executor import TensorRTExecutor, open_engines
    from engine.kernels.launch import device_of
    from export.graphs.tensorrt import LaneShape, build

    made = build(toy(tmp_path, name), LaneShape(precision, beams=BEAMS, slots=SLOTS), tmp_path / "timings")
    assert set(graph_parts(made.config)) == {"encoder", "step"}
    engines, device = open_engines(made, (precision, BEAMS, SLOTS), "cuda"), device_of("cuda")
    kernels, jobs = device.kernels(), random_jobs(name, 5, 24)
    captured, launched = (
        run(lane_of(TensorRTExecutor(engines, streams, kernels)), jobs, 1)
        for streams in (CudaStreams("cuda"), Refusing("cuda"))
    )
    assert_same(captured, launched, 1e-4)
    wanted = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS)), jobs, 1)
    equal = [
        a.hypotheses[0].tokens == b.hypotheses[0].tokens
        for a, b in zip(captured, wanted, strict=True)
        if isinstance(a, Result) and isinstance(b, Result)
    ]
    assert np.mean(equal) >= {"fp32": 0.9, "fp16": 0.6, "bf16": 0.3}[precision]  # fp32 may be TF32
