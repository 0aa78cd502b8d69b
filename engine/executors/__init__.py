"""The table of backends, and the one function that opens a bundle on one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from engine.bundle import PRECISIONS, Bundle, graph_name, graph_parts
from engine.errors import BundleError, ConfigError
from engine.executor import Executor

if TYPE_CHECKING:
    from engine.kernels.calls import Kernels

COMPILED: Final = ("fp32", "fp16", "bf16")  # precisions of engines for GPUs


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a bundle runs. lanes: (beams, slots) of each, narrowest first. threads: of each ONNX
    session; None shares the process-wide pool (`engine.executors.onnx.share_threads`)."""

    backend: str = "onnx"
    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = None
    lanes: tuple[tuple[int, int], ...] = ((1, 32), (5, 32), (16, 8))


def open_executors(bundle: Bundle, placement: Placement) -> list[Executor]:
    """One executor per lane, sharing weights. Raises ConfigError for what this backend can't do and
    BundleError for a bundle that lacks what it needs."""
    if placement.backend not in BACKENDS:
        raise ConfigError(f"unknown backend {placement.backend!r}; known are {sorted(BACKENDS)}")
    known = COMPILED if placement.backend == "tensorrt" else PRECISIONS
    if placement.precision not in known:
        raise ConfigError(f"unknown precision {placement.precision!r}; known are {list(known)}")
    if not placement.lanes or any(beams < 1 or slots < 1 for beams, slots in placement.lanes):
        raise ConfigError("lanes must be pairs of positive numbers: beams and slots")
    return list(BACKENDS[placement.backend](bundle, placement))


def _open_onnx(bundle: Bundle, placement: Placement, kernels: str | None = None) -> Sequence[Executor]:
    """kernels: of standard operators only ("pure"), or with our own ("native"); None: if they are there."""
    from engine.executors.onnx import OnnxExecutor, open_sessions
    from engine.native import library

    operators = library() if kernels != "pure" else None
    if kernels == "native" and operators is None:
        raise ConfigError("the native operators were not built: install a C++ compiler, then: make native")
    if placement.device != "cpu":
        raise ConfigError(f"the onnx backend runs on the CPU, not {placement.device!r}; take --backend torch")
    graphs = {}
    for part in graph_parts(bundle.config):
        name = graph_name(part, placement.precision, "pure" if operators is None else "native")
        if name not in bundle.files():
            raise BundleError(f"{bundle.path} has no {name}; run: convoy export {bundle.path}")
        graphs[part] = bundle.file(name).read_bytes()
    sessions = open_sessions(bundle.config, graphs, bundle.weights(), placement.threads, operators)
    return [OnnxExecutor(sessions, beams, slots) for beams, slots in placement.lanes]


def _open_torch(bundle: Bundle, placement: Placement, fused: bool = False) -> Sequence[Executor]:
    """fused: with our CUDA kernels (`engine.kernels`) in the place of torch's operators."""
    try:
        from engine.executors.torch import TorchExecutor
        from engine.models import load
    except ModuleNotFoundError as error:
        raise ConfigError(f"the torch backend needs torch ({error}); run: pip install torch") from None
    if placement.precision != "fp32":
        raise ConfigError(f"the torch backend computes in fp32, not {placement.precision}")
    if fused and not placement.device.startswith("cuda"):
        raise ConfigError(f"CUDA kernels run on CUDA devices, not {placement.device!r}: take --device cuda")
    kernels = _kernels(placement.device) if fused else None
    model = load(bundle.config, bundle.weights())
    return [TorchExecutor(model, beams, slots, placement.device, kernels) for beams, slots in placement.lanes]


def _kernels(device: str) -> Kernels:
    from engine.kernels.calls import Kernels
    from engine.kernels.launch import Device

    return Kernels(Device(device))


def _open_tensorrt(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    try:
        from engine.executors.tensorrt import TensorRTExecutor, open_engines
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tensorrt backend needs torch ({error}); run: pip install torch") from None
    if not placement.device.startswith("cuda"):
        raise ConfigError(f"TensorRT runs on CUDA devices, not {placement.device!r}: take --device cuda")
    targets = [(placement.precision, beams, slots) for beams, slots in placement.lanes]
    return [TensorRTExecutor(open_engines(bundle, target, placement.device)) for target in targets]


BACKENDS: Final[dict[str, Callable[[Bundle, Placement], Sequence[Executor]]]] = {
    "onnx": _open_onnx,
    "onnx-native": partial(_open_onnx, kernels="native"),
    "onnx-pure": partial(_open_onnx, kernels="pure"),
    "torch": _open_torch,
    "torch-cuda": partial(_open_torch, fused=True),
    "tensorrt": _open_tensorrt,
}
