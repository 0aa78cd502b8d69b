"""What is told of models on a repository: how each is kept, and what its engines have done so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from engine.repository.budget import State
from engine.schedule.stats import Stats

NO_STATS: Final = Stats(0, 0, (), (), 0, 0.0, 0, 0.0, 0, 0, 0)
# fields of Stats that only grow
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
    """How a model is kept.

    cost: bytes of memory when it is loaded, estimated.
    loads, failures, evictions: so far; an eviction is any unload, asked for or not.
    load_seconds: of the last load.
    fault: why that failed, or "".
    """

    state: State
    cost: int
    loads: int
    failures: int
    evictions: int
    load_seconds: float
    fault: str


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device, in use by anybody and in all."""

    used: int
    total: int


def device_memory(devices: Iterable[str]) -> dict[str, DeviceMemory]:
    """Ask the GPUs among these devices, by name; a device may be named more than once."""
    cuda = sorted({device for device in devices if device.startswith("cuda")})
    if not cuda:
        return {}
    from engine.executors.torch.executor import memory_of

    return {device: DeviceMemory(*memory_of(device)) for device in cuda}


def together(past: Stats, now: Stats) -> Stats:
    """Return `now`, with what was counted before."""
    grown = {name: getattr(past, name) + getattr(now, name) for name in GROWING_FIELDS}
    return replace(now, **grown)


def beside(one: Stats, other: Stats) -> Stats:
    """Add up what two engines of one model do at the same time."""
    return replace(
        together(one, other),
        waiting_requests=one.waiting_requests + other.waiting_requests,
        waiting_tokens=one.waiting_tokens + other.waiting_tokens,
        active=one.active + other.active,
        slots=one.slots + other.slots,
    )


def either(one: RepositoryEntry, other: RepositoryEntry) -> RepositoryEntry:
    """Tell how a model is kept that two processes keep: loaded where it is in one of them."""
    best = max((one, other), key=lambda entry: entry.state is State.LOADED)
    return replace(
        best,
        loads=one.loads + other.loads,
        failures=one.failures + other.failures,
        evictions=one.evictions + other.evictions,
        load_seconds=max(one.load_seconds, other.load_seconds),
        fault=one.fault or other.fault,
    )
