"""Builds the library of operators: `python engine/native/build.py`, and hatchling when it makes the package.

Needs a C++20 compiler (g++ or clang++, or what CXX names) and nothing else.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "libconvoy.so"
COMMON = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-uninitialized"]
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
# instruction set: flags of its own compilation of kernels.cpp
SETS: dict[str, list[str]] = {"baseline": []}
if platform.machine() in ("x86_64", "AMD64"):
    SETS["avx2"] = ["-mavx2", "-mfma"]
    wide = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]
    SETS["avx512vnni"] = [*wide, "-mfma", "-mprefer-vector-width=512"]


def build() -> Path:
    """Compile and link. Raises FileNotFoundError without a compiler, CalledProcessError when it refuses."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise FileNotFoundError("no C++ compiler: install g++ or clang++, or set CXX")
    with tempfile.TemporaryDirectory() as folder:
        jobs = {
            f"kernels-{name}.o": ["kernels.cpp", f"-DCONVOY_ISA={name}", *FAST, *flags]
            for name, flags in SETS.items()
        }
        jobs |= {"ops.o": ["ops.cpp", "-O2"], "dispatch.o": ["dispatch.cpp", "-O2"]}

        def compile(job: tuple[str, list[str]]) -> str:
            out = str(Path(folder) / job[0])
            command = [compiler, *COMMON, "-c", *job[1], "-o", out]
            subprocess.run(command, check=True, cwd=HERE)  # nosec B603 # words of our own, no shell
            return out

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile, jobs.items()))
        made = Path(folder) / LIBRARY.name
        command = [compiler, "-shared", "-o", str(made), *objects]
        subprocess.run(command, check=True)  # nosec B603 # words of our own, no shell
        shutil.copyfile(made, LIBRARY.with_suffix(".partial"))
        os.replace(LIBRARY.with_suffix(".partial"), LIBRARY)
    return LIBRARY


if __name__ == "__main__":
    try:
        print(build())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"the native operators were not built: {error}")
