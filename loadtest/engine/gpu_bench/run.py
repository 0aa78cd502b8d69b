"""Run the parts one after another in this process."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from loadtest.engine.gpu_bench.arrivals import arrivals
from loadtest.engine.gpu_bench.checks import checks, suite
from loadtest.engine.gpu_bench.clock import wait
from loadtest.engine.gpu_bench.floors import device_floors
from loadtest.engine.gpu_bench.profiles import profiles
from loadtest.engine.gpu_bench.setting import BenchRecord, PartRun, Setting, machine
from loadtest.engine.gpu_bench.single import single
from loadtest.engine.gpu_bench.steps import ablations, host, steps
from loadtest.engine.gpu_bench.throughput import real, throughput

FLOORS: Final = "floors"
PART_RUNS: Final[dict[str, Callable[[PartRun], dict[str, Any]]]] = {
    "tests": suite,
    "checks": checks,
    "steps": steps,
    "ablations": ablations,
    "host": host,
    "single": single,
    "throughput": throughput,
    "arrivals": arrivals,
    "real": real,
    "profiles": profiles,
}


def run_parts(setting: Setting, record: BenchRecord, shares: Mapping[str, float], seconds: float) -> bool:
    """Run parts, and the floors first, since figures are compared with the floors of the same call.

    setting: options of the command line.
    record: JSON file that gets the figures of each part.
    shares: share of the time of each part; later parts get the time that a part leaves.
    seconds: time for all parts together.

    Returns False if the device is lost (a CUDA context does not survive an error): another process must
    continue, and "running" of the record names the interrupted work.
    """
    end, rest = time.monotonic() + seconds, dict(shares)
    record.values["machine"] = machine(setting)
    if record.values["parts"].get(FLOORS, {}).get("status") != "done":
        rest = {FLOORS: rest.pop(FLOORS, 0.05), **rest}
    else:
        rest.pop(FLOORS, None)
    while rest:
        part = next(iter(rest))
        share = rest[part] / sum(rest.values())
        del rest[part]
        until = time.monotonic() + share * (end - time.monotonic())
        # wall-clock time, which the watching process reads too
        record.values["running"] = {"part": part, "until": time.time() + until - time.monotonic()}
        record.save()
        _run_part(setting, record, part, until)
        if not _usable(setting.device):
            return False
        del record.values["running"]
        record.save()
    return True


def _run_part(setting: Setting, record: BenchRecord, part: str, until: float) -> None:
    """Run one part; an error becomes its record."""
    run = PartRun(record, part, setting, record.values["parts"].get(FLOORS, {}), until)
    print(f"{part}: {until - run.began:.0f} seconds", flush=True)
    try:
        findings = device_floors(setting) if part == FLOORS else PART_RUNS[part](run)
    except Exception as error:
        traceback.print_exc()
        so_far = record.values["parts"].get(part, {})
        for key in ("status", "seconds"):
            so_far.pop(key, None)
        run.save(so_far | {"error": f"{type(error).__name__}: {error}"[:2000]}, "failed")
    else:
        # a part in which no contender got time has measured nothing
        run.save(findings, "empty" if findings.get("rows") == [] else "done")


def _usable(device: str) -> bool:
    """Free the memory of the part, gigabytes for executors, and check whether the device still answers."""
    gc.collect()
    try:
        wait(device)
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    except Exception:  # any error: this process ends
        return False
    return True
