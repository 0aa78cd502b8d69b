"""The table of backends: devices, precisions and libraries. `engine.executors` opens them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from engine.errors import ConfigError

QUANTISED: Final = ("fp32", "int8")
NARROW: Final = ("fp32", "fp16", "bf16")
PRECISIONS: Final = ("fp32", "fp16", "bf16", "int8")
DISTRIBUTION: Final = "convoy-server"
UNINSTALLED_VERSION: Final = "0+source"  # version of a source tree that is not installed


def processors() -> int:
    """Return the number of processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def program_version() -> str:
    """Return the version of the installed distribution, or UNINSTALLED_VERSION."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return UNINSTALLED_VERSION


# measured bytes of memory for each number of the weights, by precision: ONNX Runtime keeps an initializer and
# a copy in the order of its kernels
ONNX_BYTES: Final = {"fp32": 8, "int8": 4}


@dataclass(frozen=True, slots=True)
class Backend:
    """Description of a backend.

    about: line of help.
    precisions: supported precisions by kind of device, "cpu" or "cuda".
    runtime: import name of the library that runs the steps.
    weight_bytes: bytes of memory for each number of the weights, by precision; default: 4 for fp32, else 2.
    """

    about: str
    precisions: Mapping[str, tuple[str, ...]]
    runtime: str = "onnxruntime"
    weight_bytes: Mapping[str, int] = field(default_factory=dict)

    def bytes_of(self, precision: str) -> int:
        """Return the bytes of memory for each number of the weights in a precision."""
        return self.weight_bytes.get(precision, 4 if precision == "fp32" else 2)

    def lists(self, device: str) -> bool:
        """Return whether the backend supports shortlists on a device."""
        return self.runtime == "onnxruntime" and device == "cpu"


class LaneSize(NamedTuple):
    """Size of a lane: the widest beam, and the number of slots."""

    beams: int
    slots: int


FAST_BEAM_SIZE: Final = 2  # nearly as good as 5 and, in a lane of that width, nearly as fast as 1
LANES: Final = (LaneSize(1, 32), LaneSize(5, 32), LaneSize(16, 8))
FAST_LANES: Final = tuple(sorted({*LANES, LaneSize(FAST_BEAM_SIZE, 32)}))


@dataclass(frozen=True, slots=True)
class Placement:
    """Backend, device, precision and lanes of a bundle.

    backend: name in BACKENDS.
    device: "cpu", "cuda" or "cuda:1"; each of several devices, separated by commas, gets all lanes.
    precision: one of PRECISIONS.
    threads: number of threads of each ONNX session; None: the pool of `engine.api.share_threads`.
    lanes: sizes of the lanes, narrowest first.
    shortlist: whether answers use only the tokens of a shortlist (`engine.bundle.shortlist`); None: the
        default of each bundle, if the backend supports shortlists.
    fast: limit default beams to FAST_BEAM_SIZE; if `shortlist` is None, use the shortlist of every bundle.
    shared: folder in which processes of this machine share weights for ONNX Runtime on the CPU; None: no
        sharing.
    """

    backend: str = "onnx"
    device: str = "cpu"
    precision: str = "fp32"
    threads: int | None = 1
    lanes: tuple[LaneSize, ...] = LANES
    shortlist: bool | None = None
    fast: bool = False
    shared: Path | None = None

    def check(self) -> None:
        """Raise ConfigError with an alternative if the backend does not support this placement."""
        check(self.backend, self.device, self.precision)
        if not self.lanes or any(beams < 1 or slots < 1 for beams, slots in self.lanes):
            raise ConfigError("lanes must be pairs of positive numbers: beams and slots")
        if self.shortlist and not BACKENDS[self.backend].lists(self.device):
            raise ConfigError("a shortlist is for the onnx backends on the CPU: leave it out here")


BACKENDS: Final = {
    "onnx": Backend(
        "ONNX Runtime; on the CPU with our operators where they were built",
        {"cpu": QUANTISED, "cuda": NARROW},
        weight_bytes=ONNX_BYTES,
    ),
    "onnx-native": Backend(
        "ONNX Runtime with our operators, or not at all", {"cpu": QUANTISED}, weight_bytes=ONNX_BYTES
    ),
    "onnx-pure": Backend(
        "ONNX Runtime with standard operators only",
        {"cpu": QUANTISED, "cuda": NARROW},
        weight_bytes=ONNX_BYTES,
    ),
    "torch": Backend(
        "plain torch, the readable reference (extra `torch`)", {"cpu": PRECISIONS, "cuda": NARROW}, "torch"
    ),
    "cuda": Backend("steps as CUDA graphs, with our kernels (extra `torch`)", {"cuda": NARROW}, "torch"),
    "tensorrt": Backend(
        "engines made by `convoy export --to tensorrt` (extra `torch`, and TensorRT)",
        {"cuda": NARROW},
        "tensorrt",
    ),
}
BACKEND_HELP: Final = ", ".join(BACKENDS).replace(", tensorrt", " or tensorrt") + "; see docs/cli.md."
DEVICE_HELP: Final = (
    "cpu, or cuda (cuda:1 for the second; several with commas between) with any backend but onnx-native."
)
PRECISION_HELP: Final = f"{', '.join(PRECISIONS[:-1])} or int8: fp16 and bf16 are for GPUs, int8 for CPUs."
FAST_HELP: Final = (
    f"Prefer speed: a beam of {FAST_BEAM_SIZE}, int8 (on GPUs fp16), and shortlists where there are any. "
    "Explicit settings take precedence."
)


def usual_precision(device: str, *, fast: bool) -> str:
    """Return the default precision on a device.

    device: name of the device.
    fast: whether speed is preferred.
    """
    if not fast:
        return "fp32"
    return "int8" if device.startswith("cpu") else "fp16"


def usual_beam_size(default: int, *, fast: bool) -> int:
    """Return the default beam size of a model.

    default: default beam size of the bundle.
    fast: whether speed is preferred.
    """
    return min(default, FAST_BEAM_SIZE) if fast else default


def devices(names: str) -> list[str]:
    """Split "cuda:0,cuda:1" into devices. Raises ConfigError on an empty or repeated device."""
    split_names = [name.strip() for name in names.split(",")]
    if len(set(split_names)) < len(split_names) or not all(split_names):
        raise ConfigError(f"{names!r} names a device twice, or none: for example cuda:0,cuda:1")
    return split_names


def check(name: str, device: str, precision: str) -> None:
    """Raise ConfigError with an alternative if a backend does not support a device or a precision.

    name: name of the backend.
    device: device, or several devices separated by commas.
    precision: one of PRECISIONS.
    """
    if name not in BACKENDS:
        raise ConfigError(f"unknown backend {name!r}; known are {', '.join(BACKENDS)}")
    if precision not in PRECISIONS:
        raise ConfigError(f"unknown precision {precision!r}; known are {', '.join(PRECISIONS)}")
    for one_device in devices(device):
        _check_device(name, one_device, precision)


def _check_device(name: str, device: str, precision: str) -> None:
    kinds = BACKENDS[name].precisions
    kind = device.partition(":")[0]
    if kind not in kinds:
        others = [other for other, backend in BACKENDS.items() if kind in backend.precisions]
        instead = f"--device {next(iter(kinds))}" + (f", or --backend {others[0]}" if others else "")
        raise ConfigError(f"the {name} backend does not run on {device!r}; take {instead}")
    if precision not in kinds[kind]:
        raise ConfigError(
            f"the {name} backend computes in {', '.join(kinds[kind])} on {kind}, not in {precision}"
        )
