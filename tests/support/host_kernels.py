"""Runs the CUDA source on the CPU: engine/kernels/*.cu compiled by g++ behind tests/support/cuda_shim.h."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from engine.kernels.launches import Call, Kernel, argument

SHIM = Path(__file__).with_name("cuda_shim.h")
SOURCES = Path(__file__).parents[2] / "engine" / "kernels"
COMPILER = shutil.which("g++")
FLAGS = (
    "-std=c++20",
    "-O1",
    "-ffp-contract=off",  # as NVRTC's --fmad=false
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-fPIC",
    "-U_FORTIFY_SOURCE",
    "-fno-gnu-unique",  # otherwise libraries share their static memory
)


def fingerprint() -> str:
    """Return a digest of the sources, flags and compiler of the kernels."""
    paths = [SHIM, Path(__file__), *sorted(path for path in SOURCES.iterdir() if path.is_file())]
    version = subprocess.run([COMPILER, "--version"], capture_output=True).stdout if COMPILER else b""
    parts = [version, *(path.name.encode() + b"\0" + path.read_bytes() for path in paths)]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


class Host:
    """A `Run` of kernels on the CPU. The order in which the threads of a block take turns (`descending`) must
    not change a result.

    folder: folder of compiled kernels (the fixture `compiled_kernels`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.descending = folder, False
        self.libraries: dict[Kernel, ctypes.CDLL] = {}

    def __call__(self, call: Call) -> None:
        library = self.libraries.get(call.kernel) or self._compile(call.kernel)
        held = [argument(a) for a in call.arguments]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(a) for a in held))
        three = ctypes.c_uint * 3
        library.run(three(*call.grid), three(*call.block), call.shared, addresses, self.descending)

    def _compile(self, kernel: Kernel) -> ctypes.CDLL:
        shim = self.folder / SHIM.name
        if not shim.exists():  # its headers are parsed once for all kernels
            self._make(shim.with_suffix(".h.gch"), "-x", "c++-header", str(SHIM))
            self._whole(shim, SHIM.read_bytes())
        name = f"{kernel.entry}-{kernel.element}-{kernel.vector}-{kernel.size}" + "-int8" * kernel.int8
        source, library = self.folder / f"{name}.cpp", self.folder / f"{name}.so"
        if not library.exists():
            text = (
                f'#include "{SHIM.name}"\n#include "{SOURCES / kernel.file}"\n'
                'extern "C" __global__ void run(const unsigned* grid, const unsigned* block, size_t shared,\n'
                "                               void** arguments, bool descending) {\n"
                f"  emulation::launch({kernel.entry}, grid, block, shared, arguments, descending);\n}}\n"
            )
            self._whole(source, text.encode())
            defines = [f"-D{key}={value}" for key, value in kernel.defines.items()]
            self._make(library, "-shared", *defines, str(source))
        loaded = ctypes.CDLL(str(library))
        loaded.run.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_bool,
        ]
        loaded.run.restype = None
        self.libraries[kernel] = loaded
        return loaded

    def _make(self, target: Path, *arguments: str) -> None:
        assert COMPILER is not None
        made = target.with_name(f"{target.name}.{os.getpid()}")
        subprocess.run([COMPILER, *FLAGS, *arguments, "-o", str(made)], check=True)
        os.replace(made, target)

    def _whole(self, target: Path, data: bytes) -> None:
        """Write a file atomically: another process may read it."""
        made = target.with_name(f"{target.name}.{os.getpid()}")
        made.write_bytes(data)
        os.replace(made, target)
