"""The table of backends, and the one function that opens a bundle on one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from engine.backends import check, devices
from engine.bundle import SHORTLISTED, Bundle, graph_name, graph_parts
from engine.errors import BundleError, ConfigError
from engine.executor import Executor
from engine.shortlist import SHORTLIST, Shortlist, load_shortlist


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a bundle runs. device: one, or several with commas between, which get all lanes each.
    lanes: (beams, slots) of each, narrowest first. threads: of each ONNX session; None shares the
    process-wide pool (`engine.executors.onnx.share_threads`). shortlist: answer with the tokens that the
    source makes likely alone (`engine.shortlist`)."""

    backend: str = "onnx"
    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = None
    lanes: tuple[tuple[int, int], ...] = ((1, 32), (5, 32), (16, 8))
    shortlist: bool = False


def open_executors(bundle: Bundle, placement: Placement) -> list[Executor]:
    """One executor per lane and device; those of a device share weights. Raises ConfigError for what this
    backend can't do and BundleError for a bundle that lacks what it needs."""
    check(placement.backend, placement.device, placement.precision)
    if not placement.lanes or any(beams < 1 or slots < 1 for beams, slots in placement.lanes):
        raise ConfigError("lanes must be pairs of positive numbers: beams and slots")
    if placement.shortlist and not (placement.backend.startswith("onnx") and placement.device == "cpu"):
        raise ConfigError("a shortlist is for the onnx backends on the CPU: leave it out here")
    opener = OPENERS[placement.backend]
    return [e for d in devices(placement.device) for e in opener(bundle, replace(placement, device=d))]


def _open_onnx(bundle: Bundle, placement: Placement, kernels: str | None = None) -> Sequence[Executor]:
    """kernels: of standard operators only ("pure"), or with our own ("native"); None: if they are there."""
    from engine.executors.onnx import OnnxExecutor, open_sessions
    from engine.native import library

    on_cpu = placement.device.startswith("cpu")
    operators = library() if on_cpu and kernels != "pure" else None
    if kernels == "native" and operators is None:
        raise ConfigError("the native operators were not built: install a C++ compiler, then: make native")
    shortlist = _shortlist(bundle) if placement.shortlist else None
    graphs = {}
    for part in graph_parts(bundle.config):
        stored = SHORTLISTED if shortlist and part == "step" else part
        name = graph_name(stored, placement.precision, "pure" if operators is None else "native")
        if name not in bundle.files():
            more = f" --precision {placement.precision}" if placement.precision in ("fp16", "bf16") else ""
            raise BundleError(f"{bundle.path} has no {name}; run: convoy export {bundle.path}{more}")
        graphs[part] = bundle.file(name).read_bytes()
    device = None if on_cpu else placement.device
    try:
        sessions = open_sessions(
            bundle.config, graphs, bundle.weights(), placement.threads, operators, device
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"on {device} the onnx backend needs torch ({error}); run: pip install torch"
        ) from None
    sessions = replace(sessions, shortlist=shortlist)
    return [OnnxExecutor(sessions, beams, slots) for beams, slots in placement.lanes]


def _shortlist(bundle: Bundle) -> Shortlist:
    if SHORTLIST not in bundle.files():
        raise BundleError(f"{bundle.path} has no {SHORTLIST}; run: convoy shortlist {bundle.path} PAIRS")
    config = bundle.config
    vocabularies = config.source_vocab, config.target_vocab
    return load_shortlist(bundle.file(SHORTLIST).read_bytes(), vocabularies, config.eos)


def _open_torch(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    try:
        from engine.executors.torch import DTYPES, TorchExecutor
        from engine.models import load
    except ModuleNotFoundError as error:
        raise ConfigError(f"the torch backend needs torch ({error}); run: pip install torch") from None
    device = placement.device
    model = load(bundle.config, bundle.weights()).to(device, DTYPES[placement.precision])
    return [TorchExecutor(model, beams, slots, device) for beams, slots in placement.lanes]


def _open_cuda(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    try:
        from engine.executors.cuda_graph import CapturedExecutor
        from engine.executors.streams import CudaWork
        from engine.executors.torch import DTYPES
        from engine.kernels.calls import Kernels
        from engine.kernels.launch import Device
        from engine.models import load
    except ModuleNotFoundError as error:
        raise ConfigError(f"the cuda backend needs torch ({error}); run: pip install torch") from None
    device = placement.device
    kernels = Kernels(Device(device))
    model = load(bundle.config, bundle.weights()).to(device, DTYPES[placement.precision])
    return [CapturedExecutor(model, lane, CudaWork(device), kernels, warm=True) for lane in placement.lanes]


def _open_tensorrt(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    try:
        from engine.executors.tensorrt import TensorRTExecutor, open_engines
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tensorrt backend needs torch ({error}); run: pip install torch") from None
    targets = [(placement.precision, beams, slots) for beams, slots in placement.lanes]
    return [TensorRTExecutor(open_engines(bundle, target, placement.device)) for target in targets]


OPENERS: Final[dict[str, Callable[[Bundle, Placement], Sequence[Executor]]]] = {
    "onnx": _open_onnx,
    "onnx-native": partial(_open_onnx, kernels="native"),
    "onnx-pure": partial(_open_onnx, kernels="pure"),
    "torch": _open_torch,
    "cuda": _open_cuda,
    "tensorrt": _open_tensorrt,
}
