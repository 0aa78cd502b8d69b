"""The table of backends, and the one function that opens a bundle on one of them.

base            base class of executors: slots that are filled from encoded batches
memory          encoded sources, by slot
history         decoder state: rings, caches, ancestors
shortlists      allowed tokens of each slot
precision       default precision of a bundle, and its scores in int8
device_errors   errors after which a device is lost
torch           plain torch, the readable reference, and its int8 variant
onnx            ONNX Runtime: the default on the CPU
cuda            steps of model and search as CUDA graphs
tensorrt        TensorRT's engines within captured steps
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from engine.backends import BACKENDS, Placement, devices, half_precision
from engine.bundle.bundle import SHORTLISTED, Bundle, graph_name, graph_parts
from engine.bundle.shortlist import SHORTLIST, Shortlist, load_shortlist
from engine.errors import BundleError, ConfigError
from engine.executors.precision import INT8_FILE, Int8Scores, precision_of
from engine.search.executor import Executor

__all__ = ["INT8_FILE", "Int8Scores", "check_devices", "open_executors", "precision_of", "uses_shortlist"]

logger = logging.getLogger(__name__)


def open_executors(bundle: Bundle, placement: Placement) -> list[Executor]:
    """Open one executor per lane and device; executors of a device share weights.

    Raises ConfigError if the backend does not support the placement, and BundleError if the bundle lacks a
    file that the backend needs.
    """
    placement.check()
    placement = replace(placement, precision=precision_of(bundle, placement)[0])
    opener = OPENERS[placement.backend]
    return [e for d in devices(placement.device) for e in opener(bundle, replace(placement, device=d))]


def check_devices(placement: Placement) -> None:
    """Raise ConfigError with reason and remedy if this machine can't use a GPU of the placement.

    With kernels of our own, torch and NVRTC must be able to use it too.
    """
    placement.check_gpus()
    if "cpu" not in BACKENDS[placement.backend].precisions:
        from engine.kernels.launch import device_of

        for device in devices(placement.device):
            device_of(device)


def _open_onnx(bundle: Bundle, placement: Placement, kernels: str | None = None) -> Sequence[Executor]:
    """Open the lanes of a device on ONNX Runtime.

    kernels: "pure" for standard operators, "native" for our own; None takes ours if they are built and the
        bundle has graphs for them. Those of earlier releases may not fit the operators of this one.
    """
    from engine.native import library

    operators = library() if placement.device.startswith("cpu") and kernels != "pure" else None
    if kernels == "native" and operators is None:
        raise ConfigError("the native operators were not built: install a C++ compiler, then: make native")
    try:
        return _open_lanes(bundle, placement, operators)
    except BundleError as error:
        if kernels is not None or operators is None:
            raise
        try:
            lanes = _open_lanes(bundle, placement, None)
        except BundleError:
            raise error from None
        logger.warning("%s is served by its standard graphs, which are slower: %s", bundle.name, error)
        return lanes


def _open_lanes(bundle: Bundle, placement: Placement, operators: Path | None) -> Sequence[Executor]:
    """Open the lanes of a device on ONNX Runtime.

    operators: library of our operators; None: the graphs of standard operators.
    """
    from engine.executors.onnx.executor import OnnxExecutor
    from engine.executors.onnx.sessions import open_sessions

    on_cpu = placement.device.startswith("cpu")
    shortlist = _shortlist(bundle, placement)
    # with a shortlist another step graph of the bundle takes the place of "step"
    parts = {part: part for part in graph_parts(bundle.config)} | ({"step": SHORTLISTED} if shortlist else {})
    kind = "pure" if operators is None else "native"
    graphs = {
        part: _read_graph(bundle, graph_name(stored, placement.precision, kind), placement.precision)
        for part, stored in parts.items()
    }
    device = None if on_cpu else placement.device
    try:
        weights = bundle.weights(placement.shared if on_cpu else None)
        sessions = open_sessions(bundle.config, graphs, weights, placement.threads, operators, device)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"on {device} the onnx backend needs torch ({error}); run: pip install torch"
        ) from None
    sessions = replace(sessions, shortlist=shortlist)
    return [OnnxExecutor(sessions, beams, slots) for beams, slots in placement.lanes]


def _read_graph(bundle: Bundle, name: str, precision: str) -> bytes:
    if name not in bundle.files():
        option = " --precision fp16" if precision == "fp16" else ""
        raise BundleError(f"{bundle.path} has no {name}; run: convoy export {bundle.path}{option}")
    return bundle.file(name).read_bytes()


def uses_shortlist(bundle: Bundle, placement: Placement) -> bool:
    """Return whether a bundle uses its shortlist with this placement."""
    if placement.shortlist is None:
        by_default = BACKENDS[placement.backend].lists_by_default(placement.device)
        enabled = (bundle.shortlisted or placement.fast) and by_default
    else:
        enabled = placement.shortlist
    return enabled and SHORTLIST in bundle.files()


def _shortlist(bundle: Bundle, placement: Placement) -> Shortlist | None:
    """Return the shortlist of a bundle if the placement uses it. Raises BundleError if it is missing."""
    if not (uses_shortlist(bundle, placement) if placement.shortlist is None else placement.shortlist):
        return None
    if SHORTLIST not in bundle.files():
        raise BundleError(f"{bundle.path} has no {SHORTLIST}; run: convoy shortlist {bundle.path} PAIRS")
    config = bundle.config
    vocabularies = config.source_vocab, config.target_vocab
    return load_shortlist(bundle.file(SHORTLIST).read_bytes(), vocabularies, config.eos)


def _open_torch(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    """Open the lanes of a device in plain torch; int8 runs on the CPU."""
    try:
        from engine.executors.torch.executor import DTYPES, TorchExecutor
        from engine.models import load
    except ModuleNotFoundError as error:
        raise ConfigError(f"the torch backend needs torch ({error}); run: pip install torch") from None
    placement.check_gpus()
    device, weights, shortlist = placement.device, bundle.weights(), _shortlist(bundle, placement)
    if placement.precision == "int8":
        if shortlist is not None:
            raise ConfigError(
                "torch in int8 has no shortlists: leave --shortlist out, or take the onnx backend"
            )
        from engine.executors.torch.int8 import Int8, Int8Executor

        model = load(bundle.config, weights)
        int8 = Int8(model, weights)
        return [Int8Executor(model, int8, beams, slots) for beams, slots in placement.lanes]
    model = load(bundle.config, weights).to(device, DTYPES[placement.precision])
    return [TorchExecutor(model, *lane, device, shortlist=shortlist) for lane in placement.lanes]


def _open_cuda(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    """Open the lanes of a device with captured steps. Raises ConfigError without torch, a GPU or NVRTC."""
    try:
        from engine.executors.cuda.executor import CapturedExecutor
        from engine.executors.cuda.int8 import move_as_int8
        from engine.executors.cuda.streams import CudaStreams
        from engine.executors.torch.executor import DTYPES
        from engine.kernels.launch import device_of
        from engine.kernels.prebuilt import kernels_of_lanes, usual_kernels
        from engine.models import load
    except ModuleNotFoundError as error:
        raise ConfigError(f"the cuda backend needs torch ({error}); run: pip install torch") from None
    device, int8 = placement.device, placement.precision == "int8"
    inputs = half_precision(device, exceeds_fp16=bundle.config.exceeds_fp16) if int8 else placement.precision
    dtype, opened = DTYPES[inputs], device_of(device)
    kernels, weights, shortlist = opened.kernels(), bundle.weights(), _shortlist(bundle, placement)
    model = load(bundle.config, weights)
    usual = usual_kernels(dtype, tensor_cores=opened.tensor_cores, int8=int8)
    opened.compile_ahead(kernels_of_lanes(usual, model.state_spec, placement.lanes))
    model = move_as_int8(model, weights, device, dtype) if int8 else model.to(device, dtype)
    return [
        CapturedExecutor(model, lane, CudaStreams(device), kernels, shortlist, warm=True)
        for lane in placement.lanes
    ]


def _open_tensorrt(bundle: Bundle, placement: Placement) -> Sequence[Executor]:
    """Open the lanes of a device on TensorRT engines in the bundle, one for each size of lane."""
    try:
        from engine.executors.cuda.streams import CudaStreams
        from engine.executors.tensorrt.executor import TensorRTExecutor, open_engines
        from engine.kernels.launch import device_of
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tensorrt backend needs torch ({error}); run: pip install torch") from None
    device, targets = placement.device, [(placement.precision, *lane) for lane in placement.lanes]
    opened = [open_engines(bundle, target, device) for target in targets]
    kernels = device_of(device).kernels()
    return [TensorRTExecutor(engines, CudaStreams(device), kernels, warm=True) for engines in opened]


OPENERS: Final[dict[str, Callable[[Bundle, Placement], Sequence[Executor]]]] = {
    "onnx": _open_onnx,
    "onnx-native": partial(_open_onnx, kernels="native"),
    "onnx-pure": partial(_open_onnx, kernels="pure"),
    "torch": _open_torch,
    "cuda": _open_cuda,
    "tensorrt": _open_tensorrt,
}
