"""The parts, one after the other, in this process."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from loadtest.engine.gpu_bench.arrivals import arrivals
from loadtest.engine.gpu_bench.book import Book, Desk
from loadtest.engine.gpu_bench.checks import checks
from loadtest.engine.gpu_bench.clock import wait
from loadtest.engine.gpu_bench.floors import floors
from loadtest.engine.gpu_bench.profiles import profiles
from loadtest.engine.gpu_bench.real import real
from loadtest.engine.gpu_bench.setting import Setting, facts
from loadtest.engine.gpu_bench.single import single
from loadtest.engine.gpu_bench.suite import suite
from loadtest.engine.gpu_bench.throughput import throughput

FLOORS: Final = "floors"
# each takes the setting, the floors, until when (time.monotonic()) and where to tell
RUNS: Final[dict[str, Callable[[Setting, dict[str, Any], float, Desk], dict[str, Any]]]] = {
    "tests": suite,
    "checks": checks,
    "single": single,
    "throughput": throughput,
    "arrivals": arrivals,
    "real": real,
    "profiles": profiles,
}


def run_parts(setting: Setting, book: Book, shares: Mapping[str, float], seconds: float) -> bool:
    """Run parts within `seconds`, which they share; what one leaves over, the others get. The floors come
    first, asked for or not: figures are stated against those of the same call.

    Returns False when the device can't go on (a CUDA context does not survive a fault): another process is
    to go on, and the book says with "running" what was being done.
    """
    end, rest = time.monotonic() + seconds, dict(shares)
    book.values["facts"] = facts(setting)
    if book.values["parts"].get(FLOORS, {}).get("status") != "done":
        rest = {FLOORS: rest.pop(FLOORS, 0.05), **rest}
    else:
        rest.pop(FLOORS, None)
    while rest:
        part = next(iter(rest))
        share = rest[part] / sum(rest.values())
        del rest[part]
        until = time.monotonic() + share * (end - time.monotonic())
        # until on a clock that the watching process reads too
        book.values["running"] = {"part": part, "until": time.time() + until - time.monotonic()}
        book.save()
        _run_part(setting, book, part, until)
        if not _usable(setting.device):
            return False
        del book.values["running"]
        book.save()
    return True


def _run_part(setting: Setting, book: Book, part: str, until: float) -> None:
    """One part; what it raises becomes its record."""
    desk = Desk(book, part, time.monotonic())
    print(f"{part}: {until - desk.began:.0f} seconds", flush=True)
    try:
        measured = book.values["parts"].get(FLOORS, {})
        record = floors(setting) if part == FLOORS else RUNS[part](setting, measured, until, desk)
    except Exception as error:
        traceback.print_exc()
        so_far = book.values["parts"].get(part, {})
        for own in ("status", "seconds"):
            so_far.pop(own, None)
        desk.tell(so_far | {"error": f"{type(error).__name__}: {error}"[:2000]}, "failed")
    else:
        # a part in which nobody got time has measured nothing
        desk.tell(record, "empty" if record.get("rows") == [] else "done")


def _usable(device: str) -> bool:
    """Free what the part held, executors of gigabytes, and see whether the device still answers."""
    gc.collect()
    try:
        wait(device)
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    except Exception:  # whatever it says, this process is done
        return False
    return True
