"""Compile the .cu files at run time with NVRTC, NVIDIA's compiler library. Needs no GPU and no torch.

Compiled code is cached on disk under the hash of source, options and compiler version; an image also has the
code of usual kernels in `SHIPPED` (`engine.kernels.prebuilt`). The command
`python -m engine.kernels.nvrtc FOLDER FILE TARGET NAME=VALUE ...` compiles one file into a cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from engine.backends.gpus import torch_versions
from engine.errors import ConfigError

SOURCE_FOLDER: Final = Path(__file__).parent
SHIPPED: Final = SOURCE_FOLDER / "compiled"  # code that was compiled when an image was built
HEADERS: Final = ("common.cuh", "tiled.cuh", "ranked.cuh")
# products and sums are contracted only where the source says `fmaf` (common.cuh)
STANDARD: Final = ("--std=c++17", "--fmad=false")
# NVRTC in NVIDIA's packages, toolkits and Linux distributions
LIBRARY_PATTERNS: Final = ("nvidia/cu*/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*")
SYSTEM_NAMES: Final = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
# packages of NVRTC by major version of CUDA
PACKAGES: Final = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc~=13.0"}


class Unit(NamedTuple):
    """One compilation.

    file: name of a file of this folder.
    defines: names and values of macros, sorted.
    target: "sm_90" for machine code, "compute_90" for PTX.
    """

    file: str
    defines: tuple[tuple[str, str], ...]
    target: str


class Compiler:
    """NVRTC with a cache folder; None: no cache. Raises ConfigError if NVRTC is not installed."""

    def __init__(self, cache: Path | None = None) -> None:
        self.cache, self._nvrtc = cache, _load()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = major.value, minor.value
        count = ctypes.c_int()
        self._check(self._nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._nvrtc.nvrtcGetSupportedArchs(numbers))
        self.architectures = tuple(sorted(numbers))  # such as 90

    def target(self, capability: tuple[int, int]) -> str:
        """Return the compilation target for a compute capability.

        The target is machine code of the device ("sm_90"), or the newest older portable code ("compute_80")
        if NVRTC does not support the device. Raises ConfigError if the device is too old.
        """
        number = capability[0] * 10 + capability[1]
        if number in self.architectures:
            return f"sm_{number}"
        older = [a for a in self.architectures if a < number]
        if not older:
            name, oldest = f"sm_{number}", f"sm_{self.architectures[0]}"
            raise ConfigError(
                f"NVRTC {self.version} does not support {name}, only {oldest} and later: use another GPU"
            )
        return f"compute_{older[-1]}"

    def compile(self, file: str, defines: Mapping[str, str], target: str) -> bytes:
        """Compile a file of this folder, or read the result from the cache.

        file: name of the file.
        defines: values of macros.
        target: "sm_90" for machine code, "compute_90" for PTX.

        Raises ConfigError with NVRTC's log if the compilation fails.
        """
        unit = Unit(file, tuple(sorted(defines.items())), target)
        found = self.cached(unit)
        if found is not None:
            return found.read_bytes()
        source, *headers = _sources(file)
        code = self._compile(file, source, headers, _options(unit))
        if self.cache is not None:
            _write_atomically(self.cache / self._name(unit), code)
        return code

    def cached(self, unit: Unit) -> Path | None:
        """Return the file with the code of a compilation, in the cache or in `SHIPPED`, or None."""
        paths = [folder / self._name(unit) for folder in (self.cache, SHIPPED) if folder is not None]
        return next((path for path in paths if os.access(path, os.R_OK)), None)

    def can_cache(self) -> bool:
        """Return whether the cache folder can be written; make it if it is missing."""
        if self.cache is None:
            return False
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.cache, os.W_OK)

    def _name(self, unit: Unit) -> str:
        """Return the name of a file of the cache."""
        parts = [*_sources(unit.file), " ".join(_options(unit)).encode(), repr(self.version).encode()]
        digest = hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()
        return f"{digest}.{'cubin' if unit.target.startswith('sm_') else 'ptx'}"

    def _compile(self, file: str, source: bytes, headers: list[bytes], options: list[str]) -> bytes:
        """Return the compiled code. Raises ConfigError with NVRTC's log if the compilation fails."""
        nvrtc, program = self._nvrtc, ctypes.c_void_p()
        texts = ctypes.c_char_p * len(HEADERS)
        header_arguments = texts(*headers), texts(*(name.encode() for name in HEADERS))
        code = nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source, file.encode(), len(HEADERS), *header_arguments
        )
        self._check(code)
        try:
            arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            if nvrtc.nvrtcCompileProgram(program, len(options), arguments):
                log = self._read_output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise ConfigError(f"NVRTC refuses {file} with {' '.join(options)}: {log}")
            binary = any(o.startswith("--gpu-architecture=sm_") for o in options)
            return self._read_output(program, "CUBIN" if binary else "PTX")
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def _read_output(self, program: ctypes.c_void_p, what: str) -> bytes:
        """Return an output of NVRTC: "ProgramLog", "CUBIN" or "PTX"."""
        size = ctypes.c_size_t()
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code:
            self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise ConfigError(f"NVRTC: {self._nvrtc.nvrtcGetErrorString(code).decode()}")


def default_cache() -> Path:
    """Return the default cache folder: $XDG_CACHE_HOME/convoy/kernels or ~/.cache/convoy/kernels."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "convoy" / "kernels"


def _sources(file: str) -> list[bytes]:
    """Return the text of a file of this folder and of the headers."""
    return [(SOURCE_FOLDER / name).read_bytes() for name in (file, *HEADERS)]


def _options(unit: Unit) -> list[str]:
    """Return NVRTC's options of a compilation."""
    defines = (f"-D{name}={value}" for name, value in unit.defines)
    return [*STANDARD, f"--gpu-architecture={unit.target}", *defines]


def _load() -> ctypes.CDLL:
    """Return NVRTC's library, from Python packages or the system. Raises ConfigError if it is missing."""
    wanted = _torch_cuda()
    names = [str(path) for path in _packaged_libraries(wanted)] + list(SYSTEM_NAMES)
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for part in Path(name).parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))  # NVRTC itself searches only the system's paths
        return library
    install = f"pip install '{PACKAGES.get(wanted, PACKAGES[13])}'"
    raise ConfigError(f"NVRTC, the compiler of the CUDA kernels, is not installed; run: {install}")


def _packaged_libraries(wanted: int) -> list[Path]:
    """Return NVRTC's libraries in Python packages, the `wanted` version of CUDA first, then the newest."""
    entries = [Path(entry or ".") for entry in sys.path]
    paths = {path for entry in entries for pattern in LIBRARY_PATTERNS for path in entry.glob(pattern)}
    found = sorted(p for p in paths if ".alt." not in p.name)
    return sorted(found, key=lambda p: (_version_of(p) == wanted, _version_of(p)), reverse=True)


def _torch_cuda() -> int:
    """Return the major version of CUDA that torch was built for; 0: none. The driver supports it."""
    _, cuda = torch_versions() or ("", None)
    return int(cuda.partition(".")[0]) if cuda else 0


def _version_of(path: Path) -> int:
    """Return the major version of a library such as libnvrtc.so.13; 0: unknown."""
    number = path.name.partition(".so.")[2].partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically. Ignores a folder that can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as out:
            out.write(data)
        Path(out.name).chmod(0o644)  # an image is built by root and used by another user
        Path(out.name).replace(path)
    except OSError:
        return


def main() -> None:
    """Compile one file into a cache folder."""
    folder, file, target, *defines = sys.argv[1:]
    Compiler(Path(folder)).compile(file, dict(define.split("=", 1) for define in defines), target)


if __name__ == "__main__":
    main()
