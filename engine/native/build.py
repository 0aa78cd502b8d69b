"""Builds the library of operators: `python engine/native/build.py`; hatchling runs it to make the package.

It needs only a C++20 compiler: the one that CXX names, g++, clang++, or that of the package `ziglang`, which
also builds for other machines (`--target aarch64-linux`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
COMMON = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
# GCC's own headers cause these warnings
COMMON += ["-Wno-unknown-warning-option", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
COMMON += ["-fno-sanitize=all", "-g0"]  # zig checks for undefined behaviour by default
# products and sums are fused only by the sources, so that all instruction sets and compilers round alike
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
GCC = ["-fno-tree-pre"]  # it would move more values out of loops than there are registers
WIDE = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"]
# by machine and instruction set: flags of its compilation of kernels.cpp; dispatch.cpp has the same names
SETS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "baseline": [],
        "avx2": ["-mavx2", "-mfma"],
        "avxvnni": ["-mavx2", "-mfma", "-mavxvnni"],
        "avx512": WIDE,
        "avx512vnni": [*WIDE, "-mavx512vnni"],
    },
    "aarch64": {
        "neon": [],
        "dotprod": ["-march=armv8.2-a+dotprod"],
        "i8mm": ["-march=armv8.2-a+dotprod+i8mm"],
    },
}
PARTS = ("ops", "dispatch", "attention", "convolutions", "products", "recurrence", "search", "selection")
MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}  # synonyms
ZIG = "ziglang"


class Platform(NamedTuple):
    """The platform of a library.

    tag: platform tag of its wheels.
    triple: name of the platform in zig.
    """

    machine: str
    library: str
    tag: str = ""
    triple: str = ""


# each tag names the oldest C library or macOS that can load the wheel
TARGETS = {
    "x86_64-linux": Platform(
        "x86_64", "libconvoy.so", "manylinux_2_17_x86_64.manylinux2014_x86_64", "x86_64-linux-gnu.2.17"
    ),
    "aarch64-linux": Platform(
        "aarch64", "libconvoy.so", "manylinux_2_17_aarch64.manylinux2014_aarch64", "aarch64-linux-gnu.2.17"
    ),
    "aarch64-macos": Platform("aarch64", "libconvoy.dylib", "macosx_11_0_arm64", "aarch64-macos.11.0"),
}


def this_machine() -> Platform:
    """Return the platform of this machine."""
    machine = MACHINES.get(platform.machine(), platform.machine())
    system = {"linux": "linux", "darwin": "macos"}.get(sys.platform, sys.platform)
    target = TARGETS.get(f"{machine}-{system}")
    return target or Platform(machine, "libconvoy.dylib" if system == "macos" else "libconvoy.so")


def compiler(target: Platform | None = None) -> list[str]:
    """Return the command of a C++ compiler.

    target: platform to build for; None is this machine.

    Raises FileNotFoundError without a compiler.
    """
    cxx = os.environ.get("CXX")
    if cxx:
        return shlex.split(cxx)
    if target is None:
        for name in ("g++", "clang++"):
            if executable := shutil.which(name):
                return [executable]
    if importlib.util.find_spec(ZIG) is None:
        raise FileNotFoundError("no C++ compiler: install g++ or clang++, set CXX, or: pip install ziglang")
    # without a target, zig would use all features of this processor
    triple = (target or this_machine()).triple
    return [sys.executable, "-m", ZIG, "c++", *(["-target", triple] if triple else [])]


def build(target: Platform | None = None, out: Path | None = None) -> Path:
    """Compile and link the library, and return its path.

    target: platform to build for; None is this machine.
    out: path of the library; None is the folder of the sources.

    Raises FileNotFoundError without a compiler, CalledProcessError if it fails.
    """
    command, kind = compiler(target), target or this_machine()
    gcc_flags = GCC if "Free Software Foundation" in _run_command([*command, "--version"]) else []
    library = out or HERE / kind.library
    with tempfile.TemporaryDirectory() as folder:
        sets = SETS.get(kind.machine, {"baseline": []})
        jobs = {
            f"kernels-{name}.o": ["kernels.cpp", f"-DCONVOY_ISA={name}", *FAST, *gcc_flags, *flags]
            for name, flags in sets.items()
        }
        jobs |= {f"{part}.o": [f"{part}.cpp", "-O2", "-ffp-contract=off"] for part in PARTS}

        if ZIG in command:  # zig has its own option for features of ARM
            jobs = {
                name: [flag.replace("-march=armv8.2-a", "-mcpu=generic") for flag in flags]
                for name, flags in jobs.items()
            }

        def compile_one(job: tuple[str, list[str]]) -> str:
            object_file = str(Path(folder) / job[0])
            _run_command([*command, *COMMON, "-c", *job[1], "-o", object_file])
            return object_file

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, jobs.items()))
        binary = Path(folder) / library.name
        _run_command([*command, "-shared", "-s", "-o", str(binary), *objects])
        partial = library.with_suffix(".partial")
        shutil.copyfile(binary, partial)
        os.replace(partial, library)
    return library


def _run_command(command: Sequence[str]) -> str:
    """Run a command and return its output; its error output is not captured."""
    ran = subprocess.run(command, check=True, cwd=HERE, stdout=subprocess.PIPE, text=True)  # nosec B603 # no shell
    return ran.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the native operators.")
    parser.add_argument(
        "--target", choices=TARGETS, help="machine to build for, if not this one; needs the package ziglang"
    )
    parser.add_argument("--out", type=Path, help="path of the library; default: beside the sources")
    options = parser.parse_args()
    try:
        print(build(TARGETS[options.target] if options.target else None, options.out))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"the native operators were not built: {error}")


if __name__ == "__main__":
    main()
