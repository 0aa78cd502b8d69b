"""Memory, load and power of CUDA devices, as the driver reports them."""

from __future__ import annotations

from collections.abc import Callable

import torch


def memory_of(device: str) -> tuple[int, int]:
    """Return the bytes of a CUDA device's memory: in use by all processes, and in total."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free, total


def load_of(device: str) -> tuple[float | None, float | None]:
    """Return the share of the last moment in which a CUDA device ran a kernel, and its power in watts.

    Each is None if the driver does not report it, as for a part of a device (MIG), or without `nvidia-ml-py`.
    """
    return _read(torch.cuda.utilization, device, 100), _read(torch.cuda.power_draw, device, 1000)


def _read(query: Callable[[str], int], device: str, scale: int) -> float | None:
    try:
        from pynvml import NVMLError
    except ModuleNotFoundError:
        return None
    try:
        return query(device) / scale
    except (NVMLError, RuntimeError):  # RuntimeError: the driver has no library for it
        return None
