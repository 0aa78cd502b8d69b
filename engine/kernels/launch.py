"""Run kernels on a CUDA device: compile with NVRTC, launch with the driver on torch's current stream."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from functools import cache as once
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from engine.backends.gpus import find_gpu
from engine.errors import ConfigError
from engine.kernels.calls import Kernels
from engine.kernels.launches import Call, Kernel, addresses_of, argument
from engine.kernels.nvrtc import Compiler, default_cache
from engine.kernels.prebuilt import compile_missing

# lock for capturing a graph, loading a module and synchronising the device: torch allows one capture in a
# process at a time, and the other two break it
EXCLUSIVE: Final = threading.RLock()

DEFAULT_SHARED_BYTES: Final = 48 * 1024  # static plus dynamic shared memory of any kernel
MAX_SHARED: Final = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
STATIC_SHARED: Final = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
DYNAMIC_SHARED: Final = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PROGRAMMATIC_LAUNCH: Final = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
FIRST_PROGRAMMATIC_LAUNCH: Final = (9, 0)  # compute capability
FIRST_TENSOR_CORES: Final = (8, 0)  # compute capability with mma of 16 x 8 x 16


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: a number and a union of 64 bytes, used as an int."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int * 16))


class Configuration(ctypes.Structure):
    """The structure CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


class LoadedFunction:
    """A function of a loaded module.

    static: bytes of static shared memory.
    enabled: largest number of bytes of dynamic shared memory that is enabled.
    """

    def __init__(self, function: ctypes.c_void_p, static: int) -> None:
        self.function, self.static, self.enabled = function, static, DEFAULT_SHARED_BYTES - static


class Device:
    """A `Run` on one CUDA device. Raises ConfigError without a driver, a GPU or NVRTC.

    Kernels are compiled, or loaded from disk, at their first call: call each once before a CUDA graph is
    captured. From compute capability 9.0 on, a kernel starts while the previous one ends (programmatic
    dependent launch).
    """

    def __init__(self, device: str, cache: Path | None = None) -> None:
        """device: torch's name of the device, "cuda" or "cuda:1".
        cache: folder of compiled kernels; None: the default.
        """
        if not torch.cuda.is_available():
            find_gpu(device)  # raises the reason, if it finds one
            raise ConfigError("torch finds no CUDA device: check the driver with nvidia-smi")
        named = torch.device(device)
        self.device = torch.device(named.type, named.index or 0)  # the name that tensors report
        self._driver = _driver()
        self._compiler = Compiler(cache or default_cache())
        capability = torch.cuda.get_device_capability(self.device)
        self._target = self._compiler.target(capability)
        # the attribute that lets a kernel start early, and the number of attributes that this device takes
        self._early = Attribute(PROGRAMMATIC_LAUNCH, b"", (1,))
        self._attributes = int(capability >= FIRST_PROGRAMMATIC_LAUNCH)
        self.tensor_cores = capability >= FIRST_TENSOR_CORES
        self._loaded: dict[Kernel, LoadedFunction] = {}
        # the query also initialises the driver
        self.processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        self.shared_bytes = self._read_shared_bytes()

    def kernels(self) -> Kernels:
        """Return the kernels with launches for this device."""
        return Kernels(self, self.processors, tensor_cores=self.tensor_cores, shared_bytes=self.shared_bytes)

    def compile_ahead(self, kernels: Iterable[Kernel]) -> None:
        """Compile kernels that are missing on disk by several processes, instead of one by one when they are
        launched."""
        compile_missing(self._compiler, kernels, self._target)

    def __call__(self, call: Call) -> None:
        """Launch a kernel on torch's current stream."""
        if 0 in call.grid:  # the driver refuses an empty grid
            return
        check_devices(call, self.device)
        with torch.cuda.device(self.device):
            loaded = self._loaded.get(call.kernel) or self._load(call.kernel)
            if call.shared > loaded.enabled:
                self._enable_shared_memory(call, loaded)
            arguments = () if call.addresses else [argument(a) for a in call.arguments]
            addresses = call.addresses or addresses_of(arguments)
            stream = torch.cuda.current_stream(self.device).cuda_stream
            early, count = ctypes.pointer(self._early), self._attributes
            configuration = Configuration(call.grid, call.block, call.shared, stream, early, count)
            code = self._driver.cuLaunchKernelEx(
                ctypes.byref(configuration), loaded.function, addresses, None
            )
            self._check(code, f"launching {call.kernel.entry}")

    def _load(self, kernel: Kernel) -> LoadedFunction:
        """Compile a kernel, load it into the device's context, and keep it."""
        with EXCLUSIVE:
            torch.cuda.current_stream(self.device)  # creates the context of the device
            torch.cuda.synchronize(self.device)
            image = self._compiler.compile(kernel.file, kernel.defines, self._target)
            module, function, static = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
            code = self._driver.cuModuleLoadData(ctypes.byref(module), image)
            self._check(code, f"loading {kernel.file}")
            name = kernel.entry.encode()
            self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), module, name), kernel.entry)
            code = self._driver.cuFuncGetAttribute(ctypes.byref(static), STATIC_SHARED, function)
            self._check(code, f"reading the shared memory of {kernel.entry}")
            self._loaded[kernel] = LoadedFunction(function, static.value)
            return self._loaded[kernel]

    def _enable_shared_memory(self, call: Call, loaded: LoadedFunction) -> None:
        """Enable the dynamic shared memory of a call. Raises ConfigError if the GPU has too little."""
        needed = call.shared + loaded.static
        if needed > self.shared_bytes:
            raise ConfigError(
                f"{call.kernel.entry} needs {needed} bytes of shared memory, this GPU has "
                f"{self.shared_bytes}: use shorter sources or the torch backend"
            )
        with EXCLUSIVE:  # a smaller call of another thread must not follow and lower the limit
            if call.shared > loaded.enabled:
                code = self._driver.cuFuncSetAttribute(loaded.function, DYNAMIC_SHARED, call.shared)
                self._check(code, f"enabling shared memory for {call.kernel.entry}")
                loaded.enabled = call.shared

    def _read_shared_bytes(self) -> int:
        """Return the bytes of shared memory that a block can have."""
        limit, device = ctypes.c_int(), ctypes.c_int()
        code = self._driver.cuDeviceGet(ctypes.byref(device), self.device.index)
        self._check(code, f"finding {self.device}")
        code = self._driver.cuDeviceGetAttribute(ctypes.byref(limit), MAX_SHARED, device)
        self._check(code, "reading the limit of shared memory")
        return limit.value

    def _check(self, code: int, what: str) -> None:
        if code:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(name))
            raise RuntimeError(f"{what}: CUDA error {code} ({(name.value or b'unknown').decode()})")


def device_of(name: str) -> Device:
    """Return the `Device` of a name; all lanes and models of a process share its compiled kernels."""
    return _device(torch.device(name).index or 0)


@once
def _device(number: int) -> Device:
    return Device(f"cuda:{number}")


def check_devices(call: Call, device: torch.device) -> None:
    """Raise ValueError for a launch with a tensor of another device.

    Its address would be invalid here, and CUDA's error would make all tensors of the process unusable.

    call: the launch.
    device: device of the launch.
    """
    for place, value in enumerate(call.arguments):
        if isinstance(value, Tensor) and value.device != device:
            described = f"argument {place}, {value.dtype} {list(value.shape)}"
            raise ValueError(f"{call.kernel.entry} on {device}: {described}, is on {value.device}")


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ConfigError(f"no NVIDIA driver: {error}") from None
