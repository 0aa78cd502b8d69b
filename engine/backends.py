"""The backends by name: where each runs, in which precisions, and what it is. `executors` opens them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.errors import ConfigError

QUANTISED: Final = ("fp32", "int8")
NARROW: Final = ("fp32", "fp16", "bf16")
PRECISIONS: Final = ("fp32", "fp16", "bf16", "int8")  # all there are


@dataclass(frozen=True, slots=True)
class Backend:
    """precisions: by kind of device, "cpu" or "cuda", those it computes in. about: what it is, in a line."""

    about: str
    precisions: Mapping[str, tuple[str, ...]]


BACKENDS: Final = {
    "onnx": Backend(
        "ONNX Runtime; on the CPU with our operators where they were built",
        {"cpu": QUANTISED, "cuda": NARROW},
    ),
    "onnx-native": Backend("ONNX Runtime with our operators, or not at all", {"cpu": QUANTISED}),
    "onnx-pure": Backend("ONNX Runtime with standard operators only", {"cpu": QUANTISED, "cuda": NARROW}),
    "torch": Backend("plain torch, the readable reference (extra `torch`)", {"cpu": NARROW, "cuda": NARROW}),
    "cuda": Backend("steps as CUDA graphs, with our kernels (extra `torch`)", {"cuda": NARROW}),
    "tensorrt": Backend(
        "engines made by `convoy export --to tensorrt` (extra `torch`, and TensorRT)", {"cuda": NARROW}
    ),
}
BACKEND_HELP: Final = ", ".join(BACKENDS).replace(", tensorrt", " or tensorrt") + "; see docs/cli.md."
DEVICE_HELP: Final = (
    "cpu, or cuda (cuda:1 for the second; several with commas between) with any backend but onnx-native."
)
PRECISION_HELP: Final = f"{', '.join(PRECISIONS[:-1])} or int8: fp16 and bf16 are for GPUs, int8 for CPUs."


def devices(names: str) -> list[str]:
    """Of "cuda:0,cuda:1" each."""
    found = [name.strip() for name in names.split(",")]
    if len(set(found)) < len(found) or not all(found):
        raise ConfigError(f"{names!r} names a device twice, or none: for example cuda:0,cuda:1")
    return found


def check(name: str, device: str, precision: str) -> None:
    """Raises ConfigError, with what there is instead, for what no backend of that name can do. device: one,
    or several with commas between."""
    if name not in BACKENDS:
        raise ConfigError(f"unknown backend {name!r}; known are {', '.join(BACKENDS)}")
    if precision not in PRECISIONS:
        raise ConfigError(f"unknown precision {precision!r}; known are {', '.join(PRECISIONS)}")
    for each in devices(device):
        _check(name, each, precision)


def _check(name: str, device: str, precision: str) -> None:
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
