"""Runs kernel calls on a CUDA device: compiled by NVRTC, launched by the driver on torch's current stream."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.kernels.calls import Call, Kernel
from engine.kernels.nvrtc import Compiler, default_cache

SHARED: Final = 48 * 1024  # bytes of shared memory that need no asking
MOST_SHARED: Final = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
DYNAMIC_SHARED: Final = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Device:
    """A `Run` on one CUDA device. Raises ConfigError without a driver, a GPU or NVRTC.

    Kernels are compiled when first called, or found on disk: call each once before a CUDA graph is captured.
    """

    def __init__(self, device: str, cache: Path | None = None) -> None:
        """device: as torch names it, "cuda" or "cuda:1"."""
        if not torch.cuda.is_available():
            raise ConfigError(
                "no CUDA device: check the driver with nvidia-smi, and that torch is a CUDA build"
            )
        self.device = torch.device(device)
        self._driver = _driver()
        self._compiler = Compiler(cache or default_cache())
        self._target = self._compiler.target(torch.cuda.get_device_capability(self.device))
        self._functions: dict[Kernel, ctypes.c_void_p] = {}
        self._allowed: dict[Kernel, int] = {}  # bytes of shared memory asked for

    def __call__(self, call: Call) -> None:
        if 0 in call.grid:  # nothing to do, which the driver would refuse
            return
        with torch.cuda.device(self.device):
            function = self._functions.get(call.kernel) or self._loaded(call.kernel)
            if call.shared > max(SHARED, self._allowed.get(call.kernel, 0)):
                self._allow(call)
            held = [argument(a) for a in call.arguments]
            addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(a) for a in held))
            stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
            code = self._driver.cuLaunchKernel(
                function, *call.grid, *call.block, call.shared, stream, addresses, None
            )
            self._check(code, f"launching {call.kernel.entry}")

    def _loaded(self, kernel: Kernel) -> ctypes.c_void_p:
        torch.cuda.current_stream(self.device)  # torch makes the device's context
        torch.cuda.synchronize(self.device)
        image = self._compiler.compile(kernel.file, kernel.defines, self._target)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), image), f"loading {kernel.file}")
        name = kernel.entry.encode()
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), module, name), kernel.entry)
        self._functions[kernel] = function
        return function

    def _allow(self, call: Call) -> None:
        most, device = ctypes.c_int(), ctypes.c_int()
        self._check(self._driver.cuCtxGetDevice(ctypes.byref(device)), "asking for the device")
        code = self._driver.cuDeviceGetAttribute(ctypes.byref(most), MOST_SHARED, device)
        self._check(code, "asking how much shared memory there is")
        if call.shared > most.value:
            raise ConfigError(
                f"{call.kernel.entry} needs {call.shared} bytes of shared memory, this GPU has {most.value}: "
                "take shorter sources or the torch backend"
            )
        function = self._functions[call.kernel]
        code = self._driver.cuFuncSetAttribute(function, DYNAMIC_SHARED, call.shared)
        self._check(code, f"asking for shared memory for {call.kernel.entry}")
        self._allowed[call.kernel] = call.shared

    def _check(self, code: int, what: str) -> None:
        if code:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(name))
            raise RuntimeError(f"{what}: CUDA error {code} ({(name.value or b'unknown').decode()})")


def argument(value: Tensor | float | None) -> ctypes.c_int32 | ctypes.c_float | ctypes.c_void_p:
    """An argument as a kernel takes it: an address, a 32-bit integer or a 32-bit float."""
    if isinstance(value, int):
        return ctypes.c_int32(value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None if value is None else value.data_ptr())


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ConfigError(f"no NVIDIA driver: {error}") from None
