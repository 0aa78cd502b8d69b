"""Stand-ins for TensorRT's builder, parser, runtime and engines, for `tests.support.trt_probe`.

Each takes the names, signatures and types of the real class from NVIDIA's Python bindings, and refuses any
other call. Engines compute with ONNX Runtime.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import tensorrt as trt
import torch

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


class Fake:
    """A stand-in for an instance of a class of the bindings: it has the names of that class, checks arguments
    by the docstrings of its methods, and runs the functions in `behave`."""

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
    """Raise TypeError unless a signature in the docstring of a binding accepts these arguments."""
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
    """Stand-ins for trt.Builder, OnnxParser and Runtime, which check the order of the calls."""

    def __init__(self, *, lose: bool) -> None:
        self.lose, self.profiles, self.model, self.timed = lose, [], None, []
        self.cleared: list[trt.BuilderFlag] = []

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
        known = trt.NetworkDefinitionCreationFlag
        assert flags == 1 << int(known.STRONGLY_TYPED) | 1 << int(known.PREFER_AOT_PYTHON_PLUGINS)
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
        self.profiles, self.cleared = [], []
        cache = Fake(trt.ITimingCache, serialize=lambda: b"timings")
        return Fake(
            trt.IBuilderConfig,
            add_optimization_profile=lambda p: self.profiles.append(p) or len(self.profiles) - 1,
            create_timing_cache=lambda data: self.timed.append(data) or cache,
            set_timing_cache=lambda given, ignore_mismatch: given is cache,
            get_timing_cache=lambda: cache,
            clear_flag=self.cleared.append,
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
        assert trt.BuilderFlag.TF32 in self.cleared
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
    """Return an ICudaEngine whose contexts compute with ONNX Runtime, at the addresses that are set."""
    described = json.loads(plan)
    session = ort.InferenceSession(base64.b64decode(described["model"]), providers=["CPUExecutionProvider"])
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
            least, _, most = described["profiles"][chosen[-1]][name]
            shapes[name] = size
            return fits and all(a <= got <= c for a, got, c in zip(least, size, most, strict=True))

        def get_shape(name: str) -> tuple:
            """Return the shape of an output, found by running the graph."""
            if name in shapes:
                return shapes[name]
            assert set(shapes) == {node.name for node in inputs}
            if set(results) != set(tensors):
                results.update({key: value.shape for key, value in compute(shapes, addresses).items()})
            return results[name]

        def execute(stream: int) -> bool:
            sizes, at = dict(shapes), dict(addresses)  # a graph keeps the addresses of its capture
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
    """The emulation with the streams of a `CudaStreams`; no capture succeeds if `refuse`."""

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
