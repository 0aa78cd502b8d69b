"""The settings of one call, its record in a JSON file, and facts about the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[3]
PRECISIONS: Final = ("fp32", "fp16", "bf16")
SKIPPED: Final = "it hung or broke the device before, in this call"
BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the measurements.

    slots: sentences in flight for the highest throughput.
    open: sentences in flight for random arrivals.
    requests: number of requests of a run with random arrivals.
    turns: largest number of measured runs of each contender.
    windows: tried seconds that the window batcher waits for further requests.
    copy: bytes of the copied tensor.
    square: side of the largest matrix product.
    """

    tiny: bool = False
    beam: int = 4
    slots: int = 256
    open: int = 64
    sentences: int = 3_000
    singles: int = 16
    requests: int = 1_000
    turns: int = 5
    checked: int = 48
    steps: int = 20
    windows: tuple[float, ...] = (0.002, 0.005, 0.01, 0.02)
    batches: tuple[int, ...] = (8, 16, 32, 64)
    copy: int = 4 << 30
    square: int = 8_192


FULL: Final = Scale()
TINY: Final = Scale(
    tiny=True,
    beam=2,
    slots=8,
    open=4,
    sentences=12,
    singles=2,
    requests=12,
    turns=2,
    checked=4,
    steps=3,
    windows=(0.002,),
    batches=(2, 4),
    copy=1 << 20,
    square=64,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of one call.

    folder: directory with bundles of random weights, shared by all backends.
    corpora: folder that holds newstest/.
    shipped: bundle for real text.
    backends: names of the backends; empty for all.
    fairseq: checkout of fairseq, run by `fairseq_python`.
    skip: contenders that ended a process of this call.
    """

    device: str
    folder: Path
    corpora: Path
    shipped: Path
    scale: Scale = FULL
    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = PRECISIONS
    fairseq: Path | None = None
    fairseq_python: str = field(default=sys.executable)
    skip: tuple[str, ...] = ()


class BenchRecord:
    """The findings of all parts; a new process continues with the content of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {"machine": {}, "parts": {}, "skipped": {}}
        if path.exists():
            self.values = json.loads(path.read_text("utf-8"))

    def save(self) -> None:
        """Replace the file by the current findings in one step, because another process reads it."""
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.values, indent=1, allow_nan=False, default=str) + "\n", "utf-8")
        os.replace(partial, self.path)


@dataclass(frozen=True, slots=True)
class PartRun:
    """A running part: settings, end, and record.

    floors: rates of the device, measured by `floors.device_floors`.
    until: end of the part, a time.monotonic().
    """

    record: BenchRecord
    part: str
    setting: Setting
    floors: dict[str, Any]
    until: float
    began: float = field(default_factory=time.monotonic)

    def save(self, findings: dict[str, Any], status: str = "running") -> None:
        """Write the findings so far.

        findings: figures that the part has measured so far, by name.
        status: "running", "done", "empty" or "failed".
        """
        seconds = time.monotonic() - self.began
        self.record.values["parts"][self.part] = {"status": status, "seconds": seconds, **findings}
        self.record.save()

    def measuring(self, contender: str) -> None:
        """Store the contender (a backend and a precision) that is measured from now on, so that the watching
        process can name the contender that hung or broke the device."""
        self.record.values.setdefault("running", {})["contender"] = contender
        self.record.save()


def machine(setting: Setting) -> dict[str, Any]:
    """Return the machine, revision and versions."""
    import torch

    record: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": platform.processor() or platform.machine(),
        "driver": None,
        "host_cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "revision": _revision(),
        "scale": "tiny" if setting.scale.tiny else "full",
    }
    if setting.device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(setting.device)
        record |= {
            "device": properties.name,
            "driver": _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
            "memory": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
        }
    for package in ("onnxruntime", "tensorrt", "numpy"):
        try:
            record[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            record[package] = None
    return record


def _revision() -> str | None:
    """Return the revision of the checkout, with "+" if it has changes; CONVOY_REVISION without a
    repository."""
    if override := os.environ.get("CONVOY_REVISION"):
        return override
    here = Path(__file__).parent
    revision = _first_line(["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"])
    if revision is None:
        return None
    return revision + ("+" if _first_line(["git", "-C", str(here), "status", "--porcelain", "-uno"]) else "")


def _first_line(command: list[str]) -> str | None:
    """Return the first line that a command prints; None: it failed or is missing."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip().splitlines()[0] if process.stdout.strip() else ""
