"""The processor of this machine, and the record of the most similar processor."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.native import kernels_name

Facts = Mapping[str, Any]


def processor() -> dict[str, str]:
    """Return name, vendor, family and model of the processor, and the instruction set of our operators."""
    facts = {"cpu": platform.processor() or platform.machine(), "vendor": "", "family": "", "model": ""}
    keys = {"model name": "cpu", "vendor_id": "vendor", "cpu family": "family", "model": "model"}
    info = Path("/proc/cpuinfo")
    for line in info.read_text(encoding="utf-8").splitlines() if info.is_file() else ():
        key, _, value = line.partition(":")
        if key.strip() in keys:
            facts[keys[key.strip()]] = value.strip()
    return facts | {"isa": kernels_name()}


def distance(one: Facts, other: Facts) -> int:
    """Return the distance of two processors: 0 for equal models; a different instruction set counts most."""
    weights = {"isa": 8, "vendor": 4, "family": 2, "model": 1}
    return sum(weight for key, weight in weights.items() if one.get(key) != other.get(key))


def nearest(records: Sequence[Path], here: Facts) -> tuple[Path, dict[str, Any], int]:
    """Return the record of the nearest processor, its content and its distance.

    records: paths of the records.
    here: facts about this processor.

    Raises SystemExit without records.
    """
    if not records:
        raise SystemExit("no record to compare with: write one with --json")
    contents = {path: json.loads(path.read_text(encoding="utf-8")) for path in records}
    path = min(sorted(contents), key=lambda path: distance(contents[path]["setup"], here))
    return path, contents[path], distance(contents[path]["setup"], here)
