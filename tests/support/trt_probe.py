"""Runs our TensorRT code against NVIDIA's real Python bindings, in a process of its own (test_tensorrt.py).

The libraries under the bindings are stand-ins, so what would need a builder is faked here: each fake takes
the names, signatures and types of the real class from the bindings themselves, and refuses all else.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import tensorrt as trt
import torch

from engine.bundle.bundle import open_bundle
from engine.errors import ConvoyError
from engine.kernels.nvrtc import Compiler
from engine.kernels.trt_plugin import register
from export.graphs import tensorrt as ours
from tests.support.emulated import Emulation

BUILDER, PARSER, RUNTIME = trt.Builder, trt.OnnxParser, trt.Runtime


class Expression:
    """An IDimensionExpr whose value is known."""

    def __init__(self, value: int) -> None:
        self.value = value

    def is_constant(self) -> bool:
        return True

    def get_constant_value(self) -> int:
        return self.value


class Expressions:
    """An IExprBuilder."""

    def constant(self, value: int) -> Expression:
        return Expression(value)

    def operation(self, op: trt.DimensionOperation, a: Expression, b: Expression) -> Expression:
        results = {
            trt.DimensionOperation.SUM: lambda: a.value + b.value,
            trt.DimensionOperation.PROD: lambda: a.value * b.value,
            trt.DimensionOperation.CEIL_DIV: lambda: -(-a.value // b.value),
        }
        return Expression(results[op]())


def plugins(order: dict) -> list[dict]:
    """What each plugin asks TensorRT to launch for the order's cases of shapes and types. The order names a
    folder for what is compiled, too."""
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
    """Whether the registry makes the plugin in its ahead-of-time form."""
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


class Fake:
    """An instance of a class of the bindings: it has the names of that class, methods take what their
    docstrings say, and `behave` says what they do."""

    def __init__(self, real: type, **behave: object) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_behave", behave)
        object.__setattr__(self, "_set", {})

    def __getattr__(self, name: str) -> object:
        real = getattr(self._real, name)  # AttributeError: there is no such thing
        if name in self._set:
            return self._set[name]
        if not callable(real):
            value = self._behave[name]
            return value() if callable(value) else value

        def call(*values: object, **named: object) -> object:
            _check(real, values, named)
            return self._behave[name](*values, *named.values())

        return call

    def __setattr__(self, name: str, value: object) -> None:
        assert isinstance(getattr(self._real, name), property), f"{name} is no property"
        self._set[name] = value


TYPES = {
    "str": str,
    "tuple": tuple,
    "list": list,
    "bool": bool,
    "typing.SupportsInt": int,
    "typing_extensions.Buffer": (bytes, memoryview),
}


def _check(real: object, values: tuple, named: dict) -> None:
    """Raises TypeError unless one of the signatures in a binding's docstring takes these arguments."""
    signatures = re.findall(rf"{real.__name__}\((self: [^)]*)\)", real.__doc__)
    reasons = []
    for signature in signatures:
        wanted = [part.split(": ", 1) for part in signature.split(", ")][1:]
        names = [name for name, _ in wanted]
        given = dict(zip(names, values, strict=False)) | named
        needed = {name for name, kind in wanted if " = " not in kind}
        if len(values) > len(names) or set(given) - set(names) or needed - set(given):
            reasons.append(f"takes {names}, given {list(given)}")
            continue
        wrong = [n for n, kind in wanted if n in given and not _is(given[n], kind.split(" = ")[0])]
        if not wrong:
            return
        reasons.append(f"{wrong} of another type than {signature}")
    raise TypeError(f"{real.__name__}: {reasons}")


def _is(value: object, kind: str) -> bool:
    if kind.startswith("tensorrt."):
        wanted = getattr(trt, kind.rsplit(".", maxsplit=1)[-1])
        return isinstance(value, wanted) or (isinstance(value, Fake) and issubclass(value._real, wanted))
    return isinstance(value, TYPES[kind])


class Builder:
    """What trt.Builder, OnnxParser and Runtime do, in the order they may be asked to."""

    def __init__(self, *, lose: bool) -> None:
        self.lose, self.profiles, self.model, self.timed = lose, [], None, []

    def builder(self, logger: trt.Logger) -> Fake:
        assert isinstance(logger, trt.ILogger)
        return Fake(
            BUILDER,
            create_network=self.network,
            create_builder_config=self.config,
            create_optimization_profile=self.profile,
            build_serialized_network=self.plan,
        )

    def network(self, flags: int) -> Fake:
        assert flags == 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.made = Fake(trt.INetworkDefinition)
        return self.made

    def parser(self, network: Fake, logger: trt.Logger) -> Fake:
        assert network is self.made
        assert isinstance(logger, trt.ILogger)
        return Fake(PARSER, parse_from_file=self.parse, num_errors=1, get_error=lambda i: f"error {i}")

    def parse(self, path: str) -> bool:
        self.model = onnx.load(path)  # with its weights
        onnx.checker.check_model(path)
        assert all(i.raw_data or i.int64_data or i.float_data for i in self.model.graph.initializer)
        return True

    def config(self) -> Fake:
        self.profiles = []
        cache = Fake(trt.ITimingCache, serialize=lambda: b"timings")
        return Fake(
            trt.IBuilderConfig,
            add_optimization_profile=lambda p: self.profiles.append(p) or len(self.profiles) - 1,
            create_timing_cache=lambda data: self.timed.append(data) or cache,
            set_timing_cache=lambda given, ignore_mismatch: given is cache,
            get_timing_cache=lambda: cache,
        )

    def profile(self) -> Fake:
        shapes: dict[str, tuple] = {}
        made = Fake(trt.IOptimizationProfile, set_shape=lambda name, *ranges: shapes.update({name: ranges}))
        made._behave["shapes"] = shapes
        return made

    def plan(self, network: Fake, config: Fake) -> bytes:
        assert self.model is not None, "nothing was parsed"
        assert config._set["profiling_verbosity"] == trt.ProfilingVerbosity.DETAILED
        assert self.profiles
        for profile in self.profiles:
            shapes = profile._behave["shapes"]
            assert set(shapes) == {v.name for v in self.model.graph.input}
            for value in self.model.graph.input:
                least, usual, most = (tuple(dims) for dims in shapes[value.name])
                assert len(least) == len(value.type.tensor_type.shape.dim)
                assert all(0 < a <= b <= c for a, b, c in zip(least, usual, most, strict=True))
                for dim, (a, c) in zip(
                    value.type.tensor_type.shape.dim, zip(least, most, strict=True), strict=True
                ):
                    assert dim.dim_param or a == c == dim.dim_value
        kinds = {node.name: node.domain for node in self.model.graph.node}
        layers = [
            {"Name": name, "LayerType": "PluginV3" if domain and not self.lose else "Shuffle"}
            for name, domain in kinds.items()
        ]
        whole = base64.b64encode(self.model.SerializeToString()).decode()
        shapes = [{n: [list(d) for d in r] for n, r in p._behave["shapes"].items()} for p in self.profiles]
        return json.dumps({"Layers": layers, "model": whole, "profiles": shapes}).encode()

    def runtime(self, logger: trt.Logger) -> Fake:
        assert isinstance(logger, trt.ILogger)
        return Fake(RUNTIME, deserialize_cuda_engine=engine)


KINDS = {
    "tensor(float)": trt.float32,
    "tensor(float16)": trt.float16,
    "tensor(int64)": trt.int64,
}
NUMPY = {trt.float32: np.float32, trt.float16: np.float16, trt.int64: np.int64}


def engine(plan: bytes) -> Fake:
    """An ICudaEngine whose contexts compute with ONNX Runtime, from and to the addresses they are given."""
    told = json.loads(plan)
    session = ort.InferenceSession(base64.b64decode(told["model"]), providers=["CPUExecutionProvider"])
    inputs, outputs = session.get_inputs(), session.get_outputs()
    tensors = {node.name: node for node in (*inputs, *outputs)}
    names = list(tensors)

    def shape(name: str) -> tuple:
        return tuple(d if isinstance(d, int) else -1 for d in tensors[name].shape)

    def dtype(name: str) -> trt.DataType:
        return KINDS[tensors[name].type]

    def context(strategy: trt.ExecutionContextAllocationStrategy | None = None) -> Fake:
        managed = strategy == trt.ExecutionContextAllocationStrategy.USER_MANAGED
        shapes: dict[str, tuple] = {}
        addresses: dict[str, int] = {}
        results: dict[str, tuple] = {}
        chosen: list[int] = []

        def array(name: str, size: tuple, at: dict[str, int]) -> np.ndarray:
            kind = np.dtype(NUMPY[dtype(name)])
            buffer = (ctypes.c_char * (math.prod(size) * kind.itemsize)).from_address(at[name])
            return np.frombuffer(buffer, kind).reshape(size)

        def compute(sizes: dict[str, tuple], at: dict[str, int]) -> dict[str, np.ndarray]:
            feeds = {node.name: array(node.name, sizes[node.name], at) for node in inputs}
            return dict(zip([o.name for o in outputs], session.run(None, feeds), strict=True))

        def profile(number: int, stream: int) -> bool:
            chosen.append(number)
            assert not WORK or WORK[0].recording is None, "a profile is no part of a graph"
            return stream in STREAMS

        def set_shape(name: str, size: tuple) -> bool:
            fits = all(d in (-1, got) for d, got in zip(shape(name), size, strict=True))
            least, _, most = told["profiles"][chosen[-1]][name]
            shapes[name] = size
            return fits and all(a <= got <= c for a, got, c in zip(least, size, most, strict=True))

        def get_shape(name: str) -> tuple:
            """TensorRT knows it from the inputs' shapes; here the graph is run to know it."""
            if name in shapes:
                return shapes[name]
            assert set(shapes) == {node.name for node in inputs}
            if set(results) != set(tensors):
                results.update({key: value.shape for key, value in compute(shapes, addresses).items()})
            return results[name]

        def execute(stream: int) -> bool:
            sizes, at = dict(shapes), dict(addresses)  # a graph goes on with those of its capture
            assert set(at) == set(tensors)
            assert managed is False or lent, "no scratch memory was given"

            def launch() -> None:
                for name, value in compute(sizes, at).items():
                    array(name, value.shape, at)[...] = value

            assert stream in STREAMS, "on the default stream TensorRT waits for the device"
            if WORK and WORK[0].recording is not None:
                assert launched, "TensorRT wants a launch in the same shapes before a capture"
                WORK[0].recording.script.append(launch)
            else:
                launched.append(1)
                launch()
            return True

        lent: list[int] = []
        launched: list[int] = []

        return Fake(
            trt.IExecutionContext,
            set_optimization_profile_async=profile,
            set_device_memory=lambda memory, size: lent.append(memory) if size >= SCRATCH else None,
            set_input_shape=set_shape,
            set_tensor_address=lambda name, at: addresses.update({name: at}) or True,
            get_tensor_shape=get_shape,
            execute_async_v3=execute,
        )

    inspector = Fake(trt.EngineInspector, get_engine_information=lambda kind: plan.decode())
    return Fake(
        trt.ICudaEngine,
        create_engine_inspector=lambda: inspector,
        num_io_tensors=len(names),
        get_tensor_name=lambda i: names[i],
        get_tensor_dtype=dtype,
        get_tensor_shape=shape,
        get_tensor_mode=lambda name: MODES[name in {o.name for o in outputs}],
        create_execution_context=context,
        device_memory_size_v2=SCRATCH,
    )


STREAMS = 77, 78  # of steps, and of encoders
SCRATCH = 4096  # bytes
MODES = trt.TensorIOMode.INPUT, trt.TensorIOMode.OUTPUT
WORK: list[Streams] = []  # that engines run in


class Streams(Emulation):
    """The emulation with the streams of a `CudaWork`. refuse: no capture succeeds."""

    def __init__(self, *, refuse: bool) -> None:
        super().__init__()
        self.refuse = refuse

    @contextmanager
    def _on(self, stream: int) -> Iterator[None]:
        before, torch.cuda.current_stream = torch.cuda.current_stream, lambda _: Stream(stream)
        try:
            yield
        finally:
            torch.cuda.current_stream = before

    def decoding(self) -> AbstractContextManager[None]:
        super().decoding()
        return self._on(STREAMS[0])

    def encoding(self) -> AbstractContextManager[None]:
        super().encoding()
        return self._on(STREAMS[1])

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        if self.refuse:
            raise RuntimeError("operation not permitted when stream is capturing")
        return super().capture(step)


class Stream(NamedTuple):
    cuda_stream: int


def run(order: dict) -> dict:
    """Steps, and requests in flight, by an executor whose engines are faked, and by torch."""
    from engine.executors.cuda import graphs
    from engine.executors.tensorrt.executor import TensorRTExecutor, open_engines
    from engine.executors.torch.executor import TorchExecutor
    from tests.engine.executors.test_cuda_graph import random_jobs
    from tests.engine.executors.test_cuda_graph import run as through
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
    work, warnings = Streams(refuse=order["refuse"]), []
    WORK[:] = [work]
    graphs.logger.warning = lambda *told: warnings.append(told)
    lane, worst = TensorRTExecutor(engines, work), 0.0
    with work.decoding():
        for asked, (wanted, found) in turns(name, [lane]):
            assert not torch.isfinite(scattered(found).gather(2, asked.banned)).any()
            worst = max(worst, furthest(wanted, found))
    kind = str(next(iter(lane.memory.blocks.values())).dtype)
    jobs = random_jobs(name, 5, 10)
    plain = through(lane_of(TorchExecutor(model(name), lane.beams, lane.slots)), jobs, 1)
    found = through(lane_of(TensorRTExecutor(engines, work)), jobs, 1)
    equal = [
        [h.tokens for h in a.hypotheses] == [h.tokens for h in b.hypotheses]
        for a, b in zip(plain, found, strict=True)
    ]
    counts = {"captured": work.captures, "replayed": work.replays, "warnings": len(warnings)}
    counts["devices"] = devices
    return {"worst": worst, "dtype": kind, "equal": sum(equal) / len(equal)} | counts


def build(order: dict) -> dict:
    """A whole export of a bundle with faked builder and GPU."""
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
