"""Measurements of `convoy bench efficiency`: the figures of the WMT efficiency task for a model and a file.

Times include tokenization. Words are source words between spaces (Heafield et al. 2021, "Findings of the WMT
2021 Shared Task on Efficient Translation", section 3).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.api import LaneSize, Placement, Service, ServiceSettings, TextOptions, processors
from engine.bundle.bundle import open_bundle

LANE_SLOTS: Final = 32
MEGA: Final = 1e6


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Figures of a model on a file.

    words: number of words of the source.
    one_core, all_cores: words a second, many lines at a time.
    cores: number of cores that `all_cores` used.
    median, slowest: milliseconds of a single sentence on one core; `slowest` is the 99th percentile.
    disk: bytes of the bundle.
    memory: bytes in memory after the file was translated on one core.
    """

    words: int
    one_core: float
    all_cores: float
    cores: int
    median: float
    slowest: float
    disk: int
    memory: int

    def words_per_dollar(self, price: float) -> float:
        """Return the number of words translated for a dollar on a machine that costs `price` dollars an
        hour."""
        return self.all_cores * 3600 / price


def efficiency(path: Path, place: Placement, lines: Sequence[str], beam: int, alone: int) -> Efficiency:
    """Measure a bundle.

    path: folder of the bundle.
    place: backend, device and precision.
    lines: text of the source language.
    beam: number of beams of a sentence.
    alone: number of lines for the latency.
    """
    words, cores = sum(len(line.split()) for line in lines), processors()
    with _BundleService(path, place, beam, 1) as service:
        service.seconds(lines[:LANE_SLOTS])  # fill pages and caches before measuring
        single = words / service.seconds(lines)
        memory = _resident()
        latencies = [service.seconds([line]) * 1e3 for line in lines[:alone]]
    on_all_cores = single
    if cores > 1:
        with _BundleService(path, place, beam, cores) as service:
            service.seconds(lines[:LANE_SLOTS])
            on_all_cores = words / service.seconds(lines)
    disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    slowest = sorted(latencies)[min(len(latencies) - 1, len(latencies) * 99 // 100)]  # 99th percentile
    return Efficiency(words, single, on_all_cores, cores, statistics.median(latencies), slowest, disk, memory)


class _BundleService:
    """A service of one bundle."""

    def __init__(self, path: Path, place: Placement, beam: int, threads: int) -> None:
        bundle = open_bundle(path)
        self.name, self.options = bundle.name, TextOptions({"beam_size": beam}, truncate=True)
        lanes = tuple(LaneSize(width, LANE_SLOTS) for width in sorted({beam, bundle.options.beam_size}))
        placed = Placement(place.backend, place.device, place.precision, threads, lanes, place.shortlist)
        self.service = Service.open([path], ServiceSettings(placed, verify=False))

    def __enter__(self) -> _BundleService:
        self.service.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.service.stop(drain=False, timeout=10.0)

    def seconds(self, lines: Sequence[str]) -> float:
        began = time.perf_counter()
        for _ in self.service.run_many(self.name, lines, self.options):
            pass
        return time.perf_counter() - began


def _resident() -> int:
    """Return the resident bytes of this process; 0 on systems without /proc."""
    status = Path("/proc/self/status")
    for line in status.read_text(encoding="utf-8").splitlines() if status.is_file() else ():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


TABLE_HEAD: Final = (
    "| model | precision | words/s, one core | words/s, all cores | ms alone, median | 99th of 100 "
    "| on disk | resident | words a dollar |\n|---|---|" + "---:|" * 7
)


def row(name: str, precision: str, figures: Efficiency, price: float) -> str:
    """Return figures as a row of the Markdown table of `TABLE_HEAD`.

    name: name of the model.
    precision: format of the weights, such as "int8".
    figures: figures of the model.
    price: dollars an hour for the machine.
    """
    cells = (
        name,
        precision,
        f"{figures.one_core:,.0f}",
        f"{figures.all_cores:,.0f} of {figures.cores}",
        f"{figures.median:.1f}",
        f"{figures.slowest:.1f}",
        f"{figures.disk / MEGA:.0f} MB",
        f"{figures.memory / MEGA:.0f} MB",
        f"{figures.words_per_dollar(price) / MEGA:,.0f} M at ${price:g}/h",
    )
    return "| " + " | ".join(cells) + " |"
