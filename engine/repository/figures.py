"""Statistics of a repository: the state of each model, and totals of its engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from engine.repository.budget import State
from engine.schedule.stats import Stats

NO_STATS: Final = Stats(0, 0, (), (), 0, 0.0, 0, 0.0, 0, 0, 0)
# fields of Stats that are totals since the start
GROWING_FIELDS: Final = (
    "steps",
    "step_seconds",
    "encoded_requests",
    "encode_seconds",
    "tokens",
    "answered",
    "failed",
)


@dataclass(frozen=True, slots=True)
class RepositoryEntry:
    """State of a model in a repository.

    cost: estimated bytes of memory when it is loaded.
    loads, failures, evictions: totals since the start; an eviction is any unload, also on request.
    load_seconds: duration of the last load.
    fault: error of the last load, or "".
    """

    state: State
    cost: int
    loads: int
    failures: int
    evictions: int
    load_seconds: float
    fault: str


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """State of a device, with the work of all processes.

    used: bytes of memory in use.
    total: size of the memory.
    utilization: share of the last moment (up to a second) in which a kernel ran; None: unknown.
    watts: power that the device draws; None: unknown.
    """

    used: int
    total: int
    utilization: float | None = None
    watts: float | None = None


def device_figures(devices: Iterable[str]) -> dict[str, DeviceFigures]:
    """Return the state of each GPU among some devices, by name."""
    cuda = sorted({device for device in devices if device.startswith("cuda")})
    if not cuda:
        return {}
    from engine.executors.torch.devices import load_of, memory_of

    return {device: DeviceFigures(*memory_of(device), *load_of(device)) for device in cuda}


def add_totals(past: Stats, now: Stats) -> Stats:
    """Return `now` with its totals increased by the totals of `past`."""
    grown = {name: getattr(past, name) + getattr(now, name) for name in GROWING_FIELDS}
    return replace(now, **grown)


def add_parallel(one: Stats, other: Stats) -> Stats:
    """Add the statistics of two engines of one model that run at the same time."""
    return replace(
        add_totals(one, other),
        waiting_requests=one.waiting_requests + other.waiting_requests,
        waiting_tokens=one.waiting_tokens + other.waiting_tokens,
        active=one.active + other.active,
        slots=one.slots + other.slots,
    )


def merge_entries(one: RepositoryEntry, other: RepositoryEntry) -> RepositoryEntry:
    """Merge the states of a model in two processes: it is loaded if one process has loaded it."""
    best = max((one, other), key=lambda entry: entry.state is State.LOADED)
    return replace(
        best,
        loads=one.loads + other.loads,
        failures=one.failures + other.failures,
        evictions=one.evictions + other.evictions,
        load_seconds=max(one.load_seconds, other.load_seconds),
        fault=one.fault or other.fault,
    )
