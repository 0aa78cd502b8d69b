"""Build TensorRT engines (10.9 or newer) of a bundle, on the GPU that will run them; docs/tensorrt.md.

Networks are strongly typed: the types in the ONNX graph decide the precision. Convolutions must become
plugins (`engine.kernels.trt_plugin`); an engine in which one did not is refused.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import torch

from engine.bundle.bundle import Bundle, add_files, graph_parts
from engine.bundle.engines import DESCRIPTION, EngineDescription, Target, fingerprints
from engine.bundle.folder import write_file
from engine.errors import BundleError, ConfigError
from engine.kernels.nvrtc import Compiler, default_cache
from engine.kernels.trt_plugin import register
from export.graphs.plugins import DOMAIN
from export.graphs.standalone import fix_input, graph_of, with_weights

if TYPE_CHECKING:
    import tensorrt as trt

PRECISIONS: Final = ("fp32", "fp16", "bf16")
OLDEST: Final = (10, 9)
MULTIPLE: Final = 32  # sources and caches are padded to a multiple, like in engine/executors/memory.py
CANDIDATES: Final = 64  # candidates of a row that sampling needs; a wide beam search needs more
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LaneShape:
    """The lane that an engine is built for: a batch of slots of one beam size.

    k: number of candidate tokens of each hypothesis; None: enough for any request.
    """

    precision: str = "fp16"
    beams: int = 5
    slots: int = 32
    k: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise ConfigError(f"TensorRT engines are {known}, not {self.precision!r} (int8 is for the CPU)")
        if min(self.beams, self.slots, self.k or 1) < 1:
            raise ConfigError("beams, slots and k must be at least 1")

    @property
    def buckets(self) -> tuple[int, ...]:
        """Largest number of slots of each optimization profile: powers of four, and `slots`."""
        return tuple(sorted({*(4**i for i in range(8) if 4**i < self.slots), self.slots}))


def build(bundle: Bundle, lane: LaneShape, timings: Path | None = None, device: str = "cuda") -> Bundle:
    """Build the engines of one lane and write them into the bundle, all or none.

    bundle: the model.
    lane: precision, beams and slots.
    timings: folder of TensorRT's timing cache; None: next to the cache of compiled kernels.
    device: the GPU that will run the engines.

    Raises ConfigError without TensorRT, a GPU or NVRTC, and BundleError if TensorRT refuses the graph.
    """
    version = _check()
    register(Compiler(default_cache()))
    with torch.cuda.device(device):  # TensorRT builds for the current device
        return _build_engines(bundle, lane, version, timings or default_cache().parent)


def _build_engines(bundle: Bundle, lane: LaneShape, version: str, timings: Path) -> Bundle:
    """Build the engine of each graph of a bundle, and write all of them into the bundle."""
    target = Target(torch.cuda.get_device_name(), version, lane.precision, lane.beams, lane.slots)
    k = min(lane.k or max(CANDIDATES, 2 * lane.beams), bundle.config.target_vocab)
    about = EngineDescription(
        target.gpu,
        target.tensorrt,
        lane.precision,
        lane.beams,
        **fingerprints(bundle),
        k=k,
        slots=lane.buckets,
        source=-(-bundle.config.max_source // MULTIPLE) * MULTIPLE,
    )
    cache = timings / f"timing-{Path(target.folder).parts[1]}.cache"
    weights = bundle.weights()
    files: dict[str, bytes | Path] = {f"{target.folder}/{DESCRIPTION}": about.to_json()}
    for part in graph_parts(bundle.config):
        graph = _graph(bundle, part, lane.precision, k)
        with tempfile.TemporaryDirectory() as folder:
            for name, data in with_weights(graph, weights, part).items():
                (Path(folder) / name).write_bytes(data)
            path = Path(folder) / f"{part}.onnx"
            files[f"{target.folder}/{part}.engine"] = _engine(path, profiles(graph, lane, bundle), cache)
    return add_files(bundle.path, files)


def _graph(bundle: Bundle, part: str, precision: str, k: int) -> bytes:
    """Return the graph of an engine, without weights."""
    graph = graph_of(bundle.config, part, precision)
    return fix_input(graph, "k", k) if part == "step" else graph


def profiles(graph: bytes, lane: LaneShape, bundle: Bundle) -> list[dict[str, tuple[Shape, Shape, Shape]]]:
    """Return the smallest, usual and largest shape of every input, for each bucket of slots.

    graph: serialised graph.
    lane: precision, beams and slots.
    bundle: the model.
    """
    longest = -(-bundle.config.max_source // MULTIPLE) * MULTIPLE
    columns = -(-bundle.config.max_target // MULTIPLE) * MULTIPLE
    usual = min(2 * MULTIPLE, longest)
    shapes = []
    for slots in lane.buckets:
        sizes = {
            "slots": (1, slots, slots),
            "batch": (1, slots, slots),
            "beams": (lane.beams,) * 3,
            "bans": (
                1,
                1,
                columns + MULTIPLE,
            ),  # n-gram blocking bans at most as many tokens as the target has
            "source": (MULTIPLE, usual, longest),
            "time": (1, usual, longest),
            "columns": (MULTIPLE, MULTIPLE, columns),
            "entries": (MULTIPLE * lane.beams, MULTIPLE * lane.beams, columns * lane.beams),
        }
        shapes.append({name: _range(shape, sizes) for name, shape in _inputs(graph).items()})
    return shapes


def _range(shape: list[int | str], sizes: Mapping[str, Shape]) -> tuple[Shape, Shape, Shape]:
    least, usual, most = (tuple(d if isinstance(d, int) else sizes[d][i] for d in shape) for i in range(3))
    return least, usual, most


def _inputs(graph: bytes) -> dict[str, list[int | str]]:
    model = onnx.load_from_string(graph).graph
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.input}


def _check() -> str:
    """Return TensorRT's version. Raises ConfigError without a supported version or a GPU."""
    try:
        import tensorrt as trt
    except ImportError as error:
        raise ConfigError(f"no TensorRT ({error}); install it: pip install 'tensorrt>=10.9'") from None
    version = str(trt.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ConfigError(f"TensorRT {version} is too old: pip install 'tensorrt>=10.9'")
    if not torch.cuda.is_available():
        raise ConfigError("TensorRT builds engines on the GPU they are for, and there is none here")
    return version


@dataclass(frozen=True, slots=True)
class ParsedNetwork:
    """A network, and the objects that must outlive it."""

    builder: trt.Builder
    network: trt.INetworkDefinition
    parser: trt.OnnxParser


def parse_graph(path: Path) -> ParsedNetwork:
    """Parse an ONNX graph with its weights. Raises BundleError with all errors of TensorRT."""
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    flags = trt.NetworkDefinitionCreationFlag
    # of our plugins, the ones compiled ahead of time: an engine runs without Python
    network = builder.create_network(
        1 << int(flags.STRONGLY_TYPED) | 1 << int(flags.PREFER_AOT_PYTHON_PLUGINS)
    )
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        reasons = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise BundleError(f"TensorRT can't parse the {path.stem} graph: {reasons}")
    return ParsedNetwork(builder, network, parser)


def _engine(path: Path, shapes: list[dict[str, tuple[Shape, Shape, Shape]]], cache: Path) -> bytes:
    """Parse, build and inspect an engine, and return its bytes.

    path: ONNX graph.
    shapes: optimization profiles (`profiles`).
    cache: file of TensorRT's timing cache, which is read before and written afterwards.
    """
    import tensorrt as trt

    definition = parse_graph(path)
    builder = definition.builder
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # the inspector then lists the plugins
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default: products of fp32 with 10 bits of mantissa
    for ranges in shapes:
        profile = builder.create_optimization_profile()
        for name, (least, usual, most) in ranges.items():
            profile.set_shape(name, trt.Dims(least), trt.Dims(usual), trt.Dims(most))
        config.add_optimization_profile(profile)
    previous_timings = cache.read_bytes() if cache.is_file() else b""
    timing = config.create_timing_cache(previous_timings)
    config.set_timing_cache(timing, ignore_mismatch=False)
    plan = builder.build_serialized_network(definition.network, config)
    if plan is None:
        raise BundleError(f"TensorRT can't build the {path.stem} engine; its own log above says why")
    data = _bytes(plan)
    _inspect(data, onnx.load(path, load_external_data=False))
    write_file(cache, _bytes(config.get_timing_cache().serialize()))
    return data


def _bytes(memory: Any) -> bytes:
    return bytes(memory)  # IHostMemory is a buffer, but its stubs do not declare that


def _inspect(plan: bytes, model: onnx.ModelProto) -> None:
    """Raise BundleError if a convolution did not become a plugin: it would run as a band matrix."""
    import tensorrt as trt

    engine = trt.Runtime(trt.Logger(trt.Logger.WARNING)).deserialize_cuda_engine(plan)
    if engine is None:
        raise BundleError("TensorRT can't read the engine that it has just built")
    information = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = [json.dumps(layer) for layer in json.loads(information)["Layers"]]
    plugins = [layer for layer in layers if "plugin" in layer.lower()]
    for node in model.graph.node:
        if node.domain == DOMAIN and not any(re.search(rf"\b{node.name}\b", p) for p in plugins):
            raise BundleError(
                f"{node.name} did not become a plugin: TensorRT {trt.__version__} took the function instead"
            )
