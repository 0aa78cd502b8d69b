"""Runs our TensorRT code against NVIDIA's real Python bindings, in a process of its own (test_tensorrt.py).

The libraries under the bindings are stand-ins without a builder, so `tests.support.trt_fakes` replaces it.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import tensorrt as trt
import torch

from engine.bundle.bundle import open_bundle
from engine.errors import ConvoyError
from engine.kernels.nvrtc import Compiler
from engine.kernels.trt_plugin import register
from export.graphs import tensorrt as ours
from tests.support.trt_fakes import WORK, Builder, Expression, Expressions, Stream, Streams


def plugins(order: dict) -> list[dict]:
    """Return the launch that each plugin requests, for the cases of shapes and types in `order`."""
    import tensorrt.plugin as trtp
    from tensorrt.plugin import _lib
    from tensorrt.plugin._tensor import Shape, ShapeExpr, ShapeExprs, SymIntExpr

    compiled: list[tuple[str, dict]] = []

    class Recorder(Compiler):
        def compile(self, file: str, defines: dict, target: str) -> bytes:
            compiled.append((file, dict(defines)))
            return super().compile(file, defines, target)

    kept = Path(order["compiled"])
    register(Recorder(kept))
    register(Recorder(kept))  # a second time changes nothing
    trt.IDimensionExpr, SymIntExpr._exprBuilder = Expression, Expressions()
    found = []
    for case in order["cases"]:
        dtype = getattr(trt, case["dtype"])
        descs = []
        for shape in (*case["shapes"], case["shapes"][0]):
            descs.append(trtp.TensorDesc(ShapeExprs.from_tuple(tuple(map(ShapeExpr, shape))), dtype))
        plugin = _lib.QDP_REGISTRY[f"convoy::{case['plugin']}"]
        attributes = [case["attributes"][name] for name in plugin.input_attrs]
        described = plugin.register_func(*descs[:-1], *attributes)
        for desc, shape in zip(descs, (*case["shapes"], case["shapes"][0]), strict=True):
            desc._shape = Shape(tuple(shape))  # known from here on
        # as TensorRT's own template calls it, with every attribute and with a tactic
        entry, ptx, launch, extra = plugin.aot_impl_func(*descs[:-1], *attributes, (descs[-1],), 0)
        kinds = plugin.autotune_func(*descs[:-1], *attributes, (descs[-1],))
        names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")
        assert isinstance(launch, trtp.KernelLaunchParams)
        assert all(isinstance(e, trtp.SymInt32) for e in extra)
        registered = trt.get_plugin_registry()
        found.append(
            {
                "entry": entry,
                "ptx": ptx.decode(),
                "source": compiled[-1],
                "launch": [getattr(launch, name)._expr.value for name in names],
                "extra": [e._expr.value for e in extra],
                "output": [e._expr.value for e in described.shape_expr],
                "kinds": [c.io_types for c in kinds],
                "aot": registered is not None and _created(registered, case, plugin),
            }
        )
    return found


def _created(registry: trt.IPluginRegistry, case: dict, plugin: object) -> bool:
    """Return whether the registry makes the plugin in its ahead-of-time form."""
    fields = [
        trt.PluginField(n, np.array([v]), trt.PluginFieldType.INT64) for n, v in case["attributes"].items()
    ]
    creator = registry.get_creator(case["plugin"], "1", "convoy")
    made = creator.create_plugin(
        case["plugin"],
        "convoy",
        trt.PluginFieldCollection(fields),
        trt.TensorRTPhase.BUILD,
        trt.QuickPluginCreationRequest.STRICT_AOT,
    )
    return "AOT" in type(made).__name__


def run(order: dict) -> dict:
    """Run steps and requests on an executor with fake engines and on torch, and compare the results."""
    from engine.executors.cuda import graphs
    from engine.executors.tensorrt.executor import TensorRTExecutor, open_engines
    from engine.executors.torch.executor import TorchExecutor
    from tests.support.captured import random_jobs
    from tests.support.captured import run as through
    from tests.support.lanes import lane_of
    from tests.support.models import model
    from tests.support.turns import furthest, scattered, turns

    trt.Runtime, name = Builder(lose=False).runtime, order["config"]
    torch.cuda.get_device_name = lambda device: order["gpu"]
    torch.cuda.current_stream = lambda device: Stream(0)
    devices: list[str] = []
    torch.cuda.device = lambda device: (devices.append(device), nullcontext())[1]
    open_engines(open_bundle(Path(order["bundle"])), tuple(order["target"]), "cuda:1")
    engines = open_engines(open_bundle(Path(order["bundle"])), tuple(order["target"]), "cpu")
    streams, warnings = Streams(refuse=order["refuse"]), []
    WORK[:] = [streams]
    graphs.logger.warning = lambda *told: warnings.append(told)
    lane, worst = TensorRTExecutor(engines, streams), 0.0
    with streams.decoding():
        for asked, (wanted, found) in turns(name, [lane]):
            assert not torch.isfinite(scattered(found).gather(2, asked.banned)).any()
            worst = max(worst, furthest(wanted, found))
    kind = str(next(iter(lane.memory.blocks.values())).dtype)
    jobs = random_jobs(name, 5, 10)
    plain = through(lane_of(TorchExecutor(model(name), lane.beams, lane.slots)), jobs, 1)
    found = through(lane_of(TensorRTExecutor(engines, streams)), jobs, 1)
    equal = [
        [h.tokens for h in a.hypotheses] == [h.tokens for h in b.hypotheses]
        for a, b in zip(plain, found, strict=True)
    ]
    counts = {"captured": streams.captures, "replayed": streams.replays, "warnings": len(warnings)}
    counts["devices"] = devices
    return {"worst": worst, "dtype": kind, "equal": sum(equal) / len(equal)} | counts


def build(order: dict) -> dict:
    """Export a bundle with a fake builder and GPU."""
    fake = Builder(lose=order["lose"])
    trt.Builder, trt.OnnxParser, trt.Runtime = fake.builder, fake.parser, fake.runtime
    torch.cuda.is_available, torch.cuda.get_device_name = (lambda: True), (lambda: order["gpu"])
    devices: list[str] = []
    torch.cuda.device = lambda device: (devices.append(device), nullcontext())[1]
    bundle = open_bundle(Path(order["bundle"]))
    try:
        ours.build(bundle, ours.LaneShape(**order["lane"]), Path(order["timings"]), "cuda:1")
    except ConvoyError as error:
        return {"error": str(error)}
    return {"version": trt.__version__, "timings": [len(data) for data in fake.timed], "devices": devices}


if __name__ == "__main__":
    run_task = {"plugins": plugins, "build": build, "run": run}[sys.argv[1]]
    print("RESULT", json.dumps([run_task(order) for order in json.loads(sys.argv[2])]))
