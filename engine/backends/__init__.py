"""The table of backends: devices, precisions and libraries. `engine.executors` opens them.

gpus    the GPUs that can run models
driver  the program that asks NVIDIA's driver for them
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from engine.backends.gpus import FIRST_BF16, Found, Gpu, find_gpu, find_gpus, number_of
from engine.errors import ConfigError

QUANTISED: Final = ("fp32", "int8")
NARROW: Final = ("fp32", "fp16", "bf16")
HALF: Final = ("fp32", "fp16")  # ONNX Runtime on GPUs lacks operators in bf16
PRECISIONS: Final = ("fp32", "fp16", "bf16", "int8")
DISTRIBUTION: Final = "convoy-server"
AUTO: Final = "auto"  # device: a usable GPU, otherwise the CPU
BY_BUNDLE: Final = "bundle"  # precision: the one that suits the bundle (`engine.executors.precision`)
UNINSTALLED_VERSION: Final = "0+source"  # version of a source tree that is not installed
REVISION_FILE: Final = "engine/revision.txt"  # commit, in a wheel (hatch_build.py)


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


@cache
def program_revision() -> str:
    """Return the commit that this program was built from, or that is checked out; "" if it is unknown."""
    source = Path(__file__).parents[2]
    try:
        if (source / REVISION_FILE).is_file():
            found = (source / REVISION_FILE).read_text("ascii").strip()
        else:
            found = _checked_out(source / ".git")
    except (OSError, UnicodeDecodeError, StopIteration):
        return ""
    return found if re.fullmatch("[0-9a-f]{40,64}", found) else ""


def _checked_out(git: Path) -> str:
    """Return the commit of a working tree, without Git. Raises OSError or StopIteration if there is none.

    git: path `.git`, a folder or the file with the path of one.
    """
    if git.is_file():
        git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    shared = git / (git / "commondir").read_text("utf-8").strip() if (git / "commondir").is_file() else git
    if (shared / name).is_file():
        return (shared / name).read_text("utf-8").strip()
    lines = (shared / "packed-refs").read_text("utf-8").splitlines()
    return next(line.split()[0] for line in lines if line.endswith(f" {name}"))


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
        return self.runtime == "torch" or (self.runtime == "onnxruntime" and device == "cpu")

    def lists_by_default(self, device: str) -> bool:
        """Return whether bundles that are made for shortlists use them on a device."""
        return self.runtime == "onnxruntime" and device == "cpu"


class LaneSize(NamedTuple):
    """Size of a lane: the widest beam, and the number of slots."""

    beams: int
    slots: int


FAST_BEAM_SIZE: Final = 2  # nearly as good as 5 and, in a lane of that width, nearly as fast as 1
LANES: Final = (LaneSize(1, 32), LaneSize(5, 32), LaneSize(16, 8))
FAST_LANES: Final = tuple(sorted({*LANES, LaneSize(FAST_BEAM_SIZE, 32)}))
# slots of the lane of 5 beams on a GPU, by its memory in GiB; wider beams have a small lane
GPU_SLOTS: Final = {18: 128, 10: 64, 0: 32}
GPU_BEAMS: Final = 5
GPU_WIDE_LANE: Final = LaneSize(16, 8)


@dataclass(frozen=True, slots=True)
class Placement:
    """Backend, device, precision and lanes of a bundle.

    backend: name in BACKENDS.
    device: "cpu", "cuda" or "cuda:1"; each of several devices, separated by commas, gets all lanes.
    precision: one of PRECISIONS; or BY_BUNDLE: int8 on the CPU if the bundle loses little, otherwise fp32;
        fp16 on a GPU unless the bundle exceeds its range.
    threads: number of threads of each ONNX session; None: the pool of `engine.api.share_threads`.
    lanes: sizes of the lanes, narrowest first.
    shortlist: whether answers use only the tokens of a shortlist (`engine.bundle.shortlist`); None: the
        default of each bundle on the CPU, otherwise False.
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
            raise ConfigError("a shortlist is for the CPU and the backends cuda and torch: leave it out here")

    def check_gpus(self) -> None:
        """Raise ConfigError with reason and remedy if this machine can't use a GPU of the placement."""
        for device in devices(self.device):
            if device != "cpu":
                find_gpu(device)


BACKENDS: Final = {
    "onnx": Backend(
        "ONNX Runtime; on the CPU with our operators where they were built",
        {"cpu": QUANTISED, "cuda": HALF},
        weight_bytes=ONNX_BYTES,
    ),
    "onnx-native": Backend(
        "ONNX Runtime with our operators, or not at all", {"cpu": QUANTISED}, weight_bytes=ONNX_BYTES
    ),
    "onnx-pure": Backend(
        "ONNX Runtime with standard operators only",
        {"cpu": QUANTISED, "cuda": HALF},
        weight_bytes=ONNX_BYTES,
    ),
    "torch": Backend(
        "plain torch, the readable reference (extra `torch`)", {"cpu": PRECISIONS, "cuda": NARROW}, "torch"
    ),
    "cuda": Backend("steps as CUDA graphs, with our kernels (extra `torch`)", {"cuda": PRECISIONS}, "torch"),
    "tensorrt": Backend(
        "engines made by `convoy export --to tensorrt` (extra `torch`, and TensorRT)",
        {"cuda": NARROW},
        "tensorrt",
    ),
}
EVERY_PRECISION: Final = {"cpu": "torch", "cuda": "cuda"}  # by kind of device: a backend with all precisions
BACKEND_HELP: Final = ", ".join(BACKENDS).replace(", tensorrt", " or tensorrt") + "; see docs/cli.md."
DEVICE_HELP: Final = (
    "cpu, or cuda (cuda:1 for the second; several with commas between) with any backend but onnx-native; "
    "auto takes a usable GPU, otherwise the CPU."
)
PRECISION_HELP: Final = (
    f"{', '.join(PRECISIONS[:-1])} or int8: fp16 and bf16 are for GPUs, int8 for CPUs and the backend cuda."
)
PRECISION_DEFAULT: Final = (
    "Default: int8 for a bundle that loses at most 0.2 points by it, otherwise fp32; with the backend cuda "
    "fp16, or bf16 for a bundle that needs its range."
)
FAST_HELP: Final = (
    f"Prefer speed: a beam of {FAST_BEAM_SIZE}, int8 (on GPUs fp16), and shortlists where there are any. "
    "Explicit settings take precedence."
)


class Place(NamedTuple):
    """Backend and device, and a line for the log if the device was chosen."""

    backend: str
    device: str
    note: str = ""


def choose_place(device: str, backend: str | None, *, on_cpu: bool = False) -> Place:
    """Return backend and device for settings; without a backend it is cuda on a GPU, and onnx on the CPU.

    device: device or devices; "auto": the first usable GPU if the backend is for one, otherwise the CPU.
    backend: name of a backend; None: the usual one of the device.
    on_cpu: other settings are for the CPU, so "auto" does not look for a GPU.
    """
    if device != AUTO:
        return Place(backend or ("onnx" if device.startswith("cpu") else "cuda"), device)
    kinds = BACKENDS[backend].precisions if backend in BACKENDS else {"cpu": (), "cuda": ()}
    if "cpu" not in kinds:
        return Place(backend or "cuda", "cuda")
    if on_cpu or "cuda" not in kinds or (backend is not None and backend.startswith("onnx")):
        return Place(backend or "onnx", "cpu")
    found = find_gpus()
    if found.gpus:
        return _place_on_first(found.gpus, backend or "cuda")
    return Place(backend or "onnx", "cpu", _why_no_gpu(found))


def _why_no_gpu(found: Found) -> str:
    """Return a note about GPUs that can't be used; "" without a driver."""
    return f"the models run on the CPU, since {found.reason}" if found.driver else ""


def _place_on_first(gpus: Sequence[Gpu], backend: str) -> Place:
    """Return the first of the usable GPUs with a note about the others."""
    gpu, others = gpus[0], len(gpus) - 1
    note = f"the models run on {gpu.name} (cuda:{gpu.number}, {gpu.memory / 2**30:.0f} GiB)"
    note += f"; {others} more: --device cuda:0,cuda:1" if others else ""
    return Place(backend, f"cuda:{gpu.number}", note)


def usual_lanes(place: Place, *, fast: bool) -> tuple[LaneSize, ...]:
    """Return the default lanes.

    place: backend and device.
    fast: whether speed is preferred.
    """
    if place.backend != "cuda":
        return FAST_LANES if fast else LANES
    found = {gpu.number: gpu.memory for gpu in find_gpus().gpus}
    numbers = [number_of(name) for name in devices(place.device)]
    memory = min(found.get(number, 0) for number in numbers) / 2**30
    slots = next(slots for least, slots in GPU_SLOTS.items() if memory >= least)
    narrow = (LaneSize(FAST_BEAM_SIZE, slots),) if fast else ()
    return *narrow, LaneSize(GPU_BEAMS, slots), GPU_WIDE_LANE


def usual_precision(device: str, *, fast: bool, backend: str = "onnx") -> str:
    """Return the default precision on a device.

    device: name of the device.
    fast: whether speed is preferred.
    backend: name of the backend.
    """
    on_cpu = device.startswith("cpu")
    if fast and backend != "cuda":
        return "int8" if on_cpu else "fp16"
    return BY_BUNDLE if on_cpu or backend == "cuda" else "fp32"


def half_precision(device: str, *, exceeds_fp16: bool) -> str:
    """Return the precision of a bundle on a GPU where none is given: fp16 if it suffices, otherwise bf16, or
    fp32 on a GPU without products of bf16.

    device: name of the device.
    exceeds_fp16: activations of the bundle may be too large for fp16.
    """
    if not exceeds_fp16:
        return "fp16"
    number = number_of(device)
    old = any(gpu.number == number and gpu.capability < FIRST_BF16 for gpu in find_gpus().gpus)
    return "fp32" if old else "bf16"


def usual_beam_size(default: int, *, fast: bool) -> int:
    """Return the default beam size of a model.

    default: default beam size of the bundle.
    fast: whether speed is preferred.
    """
    return min(default, FAST_BEAM_SIZE) if fast else default


def devices(names: str) -> list[str]:
    """Split "cuda:0,cuda:1" into devices. Raises ConfigError on an empty or repeated device."""
    split_names = [name.strip() for name in names.split(",")]
    numbered = {"cuda:0" if name == "cuda" else name for name in split_names}
    if len(numbered) < len(split_names) or not all(split_names):
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
    if precision == BY_BUNDLE:
        precision = "fp32"
    if precision not in PRECISIONS:
        raise ConfigError(f"unknown precision {precision!r}; known are {', '.join(PRECISIONS)}")
    for one_device in devices(device):
        _check_device(name, one_device, precision)


def _check_device(name: str, device: str, precision: str) -> None:
    kinds = BACKENDS[name].precisions
    kind = device.partition(":")[0]
    if device != "cpu" and not re.fullmatch(r"cuda(:\d{1,3})?", device):
        likely = "cuda" if kind.lower() in ("gpu", "nvidia", "cuda") else "cpu or cuda"
        raise ConfigError(f"unknown device {device!r}; take --device {likely} (cuda:1 for the second GPU)")
    if kind not in kinds:
        others = [other for other, backend in BACKENDS.items() if kind in backend.precisions]
        instead = f"--device {next(iter(kinds))}" + (f", or --backend {others[0]}" if others else "")
        raise ConfigError(f"the {name} backend does not run on {device!r}; take {instead}")
    if precision not in kinds[kind]:
        raise ConfigError(
            f"the {name} backend computes in {', '.join(kinds[kind])} on {kind}, not in {precision}; "
            f"take one of these, or --backend {EVERY_PRECISION[kind]}"
        )
