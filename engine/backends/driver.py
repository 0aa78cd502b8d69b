"""Asks NVIDIA's driver for its devices, and prints the answer as JSON.

This file runs as a program of its own: processes that are forked from a process with an initialised driver
can't use CUDA, and the server forks its engine processes.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
# attributes of the driver: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
MAJOR: Final = 75
MINOR: Final = 76
NAME_BYTES: Final = 256


def read_devices(driver: Any) -> dict[str, Any]:  # noqa: ANN401  (functions of a C library)
    """Return the answer of a driver as a dictionary.

    code: CUDA's error of the initialisation; 0: none. With an error the other fields are missing.
    version: newest version of CUDA that the driver supports, as 1000 * major + 10 * minor.
    gpus: name, compute capability and bytes of memory of each device, in CUDA's order.
    """
    if code := driver.cuInit(0):
        return {"code": code}
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    gpus = [_read_device(driver, number) for number in range(count.value)]
    return {"code": 0, "version": version.value, "gpus": gpus}


def _read_device(driver: Any, number: int) -> tuple[str, tuple[int, int], int]:  # noqa: ANN401
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(NAME_BYTES)
    driver.cuDeviceGet(ctypes.byref(device), number)
    driver.cuDeviceGetName(name, NAME_BYTES, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)

    def attribute(wanted: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), wanted, device)
        return value.value

    return name.value.decode(errors="replace"), (attribute(MAJOR), attribute(MINOR)), memory.value


if __name__ == "__main__":
    json.dump(read_devices(ctypes.CDLL(LIBRARY)), sys.stdout)
