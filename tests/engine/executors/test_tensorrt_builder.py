"""What only a real builder of TensorRT can answer, a test for each point that its documentation leaves open;
and real engines within captured steps.

`bash loadtest/gpu.sh right` runs them where a GPU and TensorRT are, and says by name which does not hold.
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

from engine.bundle.bundle import Description, graph_parts, write_bundle
from engine.executors.cuda.streams import CudaWork
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.calls import Kernels
from engine.types import Result
from export.graphs.onnx import graphs
from tests.engine.executors.test_cuda_graph import assert_same, random_jobs, run
from tests.support.lanes import lane_of
from tests.support.models import CONFIGS, model, weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or importlib.util.find_spec("tensorrt") is None,
        reason="needs a GPU and TensorRT with its builder",
    ),
]
BEAMS, SLOTS = 3, 4


def toy(folder: Path, name: str) -> Any:
    about = Description("toy", "translate", "de", "en", CONFIGS[name], {"kind": "sentencepiece"})
    return write_bundle(folder / "toy", about, weights(name), graphs(CONFIGS[name]), half=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The step's network as it was parsed, and the names of its convolutions."""

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


def test_the_parser_takes_each_convolution_as_a_plugin_and_not_as_the_function(step: Step) -> None:
    assert len(step.plugins()) == len(step.convolutions)


def test_taps_keep_their_static_heads_and_width_through_the_parser(step: Step) -> None:
    for plugin in step.plugins():
        assert min(tuple(plugin.get_input(1).shape)[-2:]) > 0


def test_a_plugin_may_have_an_input_of_int64(step: Step) -> None:
    import tensorrt as trt

    for plugin in step.plugins():
        assert plugin.get_input(3).dtype == trt.int64


def test_the_inspector_names_plugins_as_their_nodes(tmp_path: Path) -> None:
    """Else each export is thrown away, as if the parser had taken the function."""
    from export.graphs.tensorrt import LaneShape, build

    build(toy(tmp_path, "glu"), LaneShape("fp16", beams=BEAMS, slots=SLOTS), tmp_path / "timings")


def test_a_run_with_user_managed_memory_is_captured_and_replayed(tmp_path: Path) -> None:
    """The encoder's engine, alone: what was captured computes anew from what lies at its inputs."""
    from engine.executors.tensorrt.engine_runs import EngineRuns
    from engine.executors.tensorrt.executor import open_engines
    from export.graphs.tensorrt import LaneShape, build

    made = build(toy(tmp_path, "glu"), LaneShape("fp32", beams=BEAMS, slots=SLOTS), tmp_path / "timings")
    engines, work = open_engines(made, ("fp32", BEAMS, SLOTS), "cuda"), CudaWork("cuda")
    runs = EngineRuns(engines.encoder, engines.about.slots, torch.device("cuda"))
    fed = {
        "tokens": torch.arange(4, 4 + 32, device="cuda")[None],
        "positions": torch.arange(32, device="cuda"),
        "real": torch.ones(1, 32, device="cuda"),
    }
    with work.decoding():
        first = {name: value.clone() for name, value in runs(1, {}, fed).items()}
        replay = work.capture(lambda: runs(1, {}, fed) and None)
        fed["tokens"].copy_(fed["tokens"].flip(1))
        replay()
        flipped = {name: value.clone() for name, value in runs(1, {}, fed).items()}
        replay()
        for name, value in runs(1, {}, fed).items():
            assert torch.equal(value, flipped[name])
            assert not torch.equal(value, first[name])
    assert len(runs) == 1


class Refusing(CudaWork):
    def capture(self, step: Any) -> Any:
        raise RuntimeError("no captures here")


@pytest.mark.parametrize(
    ("name", "precision"), [("glu", "fp16"), ("glu", "bf16"), ("transformer", "fp32"), ("aan", "fp16")]
)
def test_captured_steps_answer_as_launched_ones_and_as_torch(
    tmp_path: Path, name: str, precision: str
) -> None:
    """Requests of every option in flight, while slots leave, sources grow and bans change."""
    from engine.executors.tensorrt.executor import TensorRTExecutor, open_engines
    from engine.kernels.launch import device_of
    from export.graphs.tensorrt import LaneShape, build

    made = build(toy(tmp_path, name), LaneShape(precision, beams=BEAMS, slots=SLOTS), tmp_path / "timings")
    assert set(graph_parts(made.config)) == {"encoder", "step"}
    engines, device = open_engines(made, (precision, BEAMS, SLOTS), "cuda"), device_of("cuda")
    kernels, jobs = Kernels(device, device.processors), random_jobs(name, 5, 24)
    captured, launched = (
        run(lane_of(TensorRTExecutor(engines, work, kernels)), jobs, 1)
        for work in (CudaWork("cuda"), Refusing("cuda"))
    )
    assert_same(captured, launched, 1e-4)
    wanted = run(lane_of(TorchExecutor(model(name), BEAMS, SLOTS)), jobs, 1)
    equal = [
        a.hypotheses[0].tokens == b.hypotheses[0].tokens
        for a, b in zip(captured, wanted, strict=True)
        if isinstance(a, Result) and isinstance(b, Result)
    ]
    assert np.mean(equal) >= {"fp32": 0.9, "fp16": 0.6, "bf16": 0.3}[precision]  # fp32 may be TF32
