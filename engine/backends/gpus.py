"""Finds the GPUs that can run models, by NVIDIA's driver alone: without torch, which takes seconds to import.

The driver reports the count, compute capability and memory of the devices that this process may use (it
follows CUDA_VISIBLE_DEVICES and MIG). Another process asks it (`driver.py`), so that this one can still fork
processes that use CUDA. Whether torch can use the devices is read from its file of versions.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.backends import driver
from engine.backends.driver import LIBRARY
from engine.errors import ConfigError

OLDEST: Final = (7, 5)  # compute capability of a T4, the oldest that NVRTC 13 and torch for CUDA 13 support
FIRST_BF16: Final = (8, 0)  # compute capability with products of bfloat16
NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE
DRIVER_SECONDS: Final = 60.0  # limit for the driver's answer: it initialises eight GPUs in about ten
CHECK: Final = "check it with nvidia-smi; in a container: start it with --gpus all"
CONTROL_FILE: Final = Path("/dev/nvidiactl")
VERSION_FILE: Final = Path("/proc/driver/nvidia/version")
# oldest driver for each major version of CUDA (CUDA Toolkit release notes, table of drivers)
DRIVERS: Final = {12: 525, 13: 580}
TORCH_INDEX: Final = "https://download.pytorch.org/whl/"
# torch's wheels, by the oldest CUDA that a driver must support for them
WHEELS: Final = {(13, 0): "cu130", (12, 8): "cu128", (12, 0): "cu126"}
FIRST_BLACKWELL: Final = (10, 0)  # compute capability
BLACKWELL_CUDA: Final = (12, 8)  # the first CUDA that compiles for it


class Gpu(NamedTuple):
    """A GPU that can run models.

    number: number of the device in CUDA's order.
    name: name of the card.
    capability: compute capability, such as (8, 9).
    memory: bytes of memory.
    """

    number: int
    name: str
    capability: tuple[int, int]
    memory: int


class Found(NamedTuple):
    """The usable GPUs of this machine.

    gpus: usable GPUs; empty: none.
    reason: why there are none or fewer, with the remedy; empty: all are usable.
    driver: NVIDIA's driver or its devices are there.
    """

    gpus: tuple[Gpu, ...]
    reason: str = ""
    driver: bool = True


@cache
def find_gpus() -> Found:
    """Return the usable GPUs. The first call takes a moment if there is a driver."""
    if not _has_driver():
        return _without_driver()
    try:
        answer = _ask_driver()
    except (OSError, ValueError, subprocess.SubprocessError):
        return Found((), f"NVIDIA's driver does not answer: {CHECK}")
    if code := answer["code"]:
        problem = "finds no GPU" if code == NO_DEVICE else f"fails with CUDA error {code}"
        return Found((), f"NVIDIA's driver {problem}: {CHECK}")
    gpus = [
        Gpu(number, name, (major, minor), memory)
        for number, (name, (major, minor), memory) in enumerate(answer["gpus"])
    ]
    newest = max((gpu.capability for gpu in gpus), default=OLDEST)
    version = answer["version"]
    if reason := _problem_of_torch((version // 1000, version % 1000 // 10), newest):
        return Found((), reason)
    old = [gpu for gpu in gpus if gpu.capability < OLDEST]
    reason = "; ".join(
        f"{gpu.name} has compute capability {_dotted(gpu.capability)}, older than {_dotted(OLDEST)}"
        for gpu in old
    )
    return Found(tuple(gpu for gpu in gpus if gpu not in old), reason or ("" if gpus else "there is no GPU"))


def _without_driver() -> Found:
    """Return the reason on a machine without the library of the driver."""
    if CONTROL_FILE.exists():
        remedy = "start a container with --gpus all, or install NVIDIA's driver"
        return Found((), f"this machine has a GPU, but {LIBRARY} is missing: {remedy}")
    return Found((), "this machine has no NVIDIA driver; in a container: start it with --gpus all", False)


def number_of(device: str) -> int:
    """Return the number of a device: 0 for "cuda", 1 for "cuda:1"."""
    return int(device.partition(":")[2] or 0)


def find_gpu(device: str) -> Gpu:
    """Return the GPU of a device such as "cuda" or "cuda:1".

    Raises ConfigError with the reason and the remedy if it is not usable.
    """
    wanted, found = number_of(device), find_gpus()
    usable = {gpu.number: gpu for gpu in found.gpus}
    if wanted not in usable:
        names = ", ".join(f"cuda:{gpu.number} ({gpu.name})" for gpu in found.gpus)
        reason = found.reason or f"this machine has {names}"
        raise ConfigError(f"no GPU for --device {device}: {reason}; or use --device cpu")
    return usable[wanted]


def _has_driver() -> bool:
    """Return whether the library of a driver can be loaded; it is not initialised."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _ask_driver() -> dict[str, Any]:
    """Return the dictionary of `driver.read_devices`.

    Raises OSError, ValueError or SubprocessError if the driver does not answer.
    """
    command = [sys.executable, "-I", driver.__file__]
    done = subprocess.run(command, capture_output=True, check=True, timeout=DRIVER_SECONDS)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _problem_of_torch(supported: tuple[int, int], newest: tuple[int, int]) -> str:
    """Return why torch can't use the driver or the GPUs, with the remedy; empty: it can.

    supported: newest version of CUDA that the driver supports.
    newest: highest compute capability of the GPUs.
    """
    versions = torch_versions()
    wheels = next((name for first, name in WHEELS.items() if supported >= first), "")
    if not wheels:
        return f"{_driver_text(supported)}: install driver {DRIVERS[12]} or later"
    install = f"pip install --force-reinstall torch --index-url {TORCH_INDEX}{wheels}"
    if versions is None:
        return f"torch is not installed; run: {install.replace('--force-reinstall ', '')}"
    torch, cuda = versions
    if cuda is None:
        return f"torch {torch} is a build for CPUs; run: {install}"
    needed = tuple(map(int, re.findall(r"\d+", cuda)))[:2]
    if needed[0] > supported[0]:
        driver = DRIVERS.get(needed[0], max(DRIVERS.values()))
        return (
            f"{_driver_text(supported)}, and torch {torch} needs CUDA {cuda}: install driver {driver} or "
            f"later, or torch for the driver: {install}"
        )
    if newest >= FIRST_BLACKWELL and needed < BLACKWELL_CUDA:
        return f"torch {torch} for CUDA {cuda} is older than this GPU; run: {install}"
    return ""


def _driver_text(supported: tuple[int, int]) -> str:
    """Return a description of the driver with its own version and the newest CUDA that it supports."""
    version = _driver_version()
    return f"NVIDIA's driver{version and ' ' + version} supports CUDA {_dotted(supported)}"


def torch_versions() -> tuple[str, str | None] | None:
    """Return the versions of torch and of its CUDA (None: a build for CPUs); None if torch is missing."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        text = ""

    def value(name: str, default: str) -> str:
        found = re.search(rf"^{name}\b[^=\n]*=\s*'([^'\n]*)'", text, re.MULTILINE)
        return found[1] if found else default

    return value("__version__", "of unknown version"), value("cuda", "") or None


def _driver_version() -> str:
    """Return the version of the installed driver, such as "550.54.14"; empty if it is unknown."""
    try:
        found = re.search(r"\s(\d{3,}\.\d[\d.]*)\s", VERSION_FILE.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
