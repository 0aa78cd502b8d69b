"""The record of a call: one JSON file, written after every finding."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.engine.gpu_bench.setting import Setting


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
