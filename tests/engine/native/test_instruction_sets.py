"""All instruction sets compute the same bits: this machine's, and ARM's under qemu."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.native import build, instruction_set, library
from engine.native.build import COMMON, FAST, HERE, SETS, WIDE
from engine.native.step_arrays import STEP_VERSION, HeldColumn, RowIndex, StepArrays, check_layout
from tests.support.thorough import THOROUGH

PROBE = Path(__file__).with_name("probe.cpp")
COMPILER = shutil.which("g++")
ARM_COMPILER, QEMU = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64-static")
NEEDS_ARM = pytest.mark.skipif(
    not (COMPILER and ARM_COMPILER and QEMU),
    reason="needs the packages g++-aarch64-linux-gnu and qemu-user-static",
)
# half the time to compile; the library's own code is tested by test_native.py, on the sets that run here
LEVEL = "-O3" if THOROUGH else "-O0"
# the tile of AVX-VNNI with the AVX-512 form of its instruction, for machines without AVX-VNNI
VNNI256 = [*WIDE, "-mavx512vnni", "-DCONVOY_VNNI256"]
X86 = {**SETS["x86_64"], "avxvnni": VNNI256}


def probe(folder: Path, compiler: str, name: str, flags: list[str], run: list[str]) -> list[str]:
    """Return the output lines of the probe of one instruction set. `folder` caches the compiled probe."""
    fast = [LEVEL, *(flag for flag in FAST if flag != "-O3"), *flags, "-static"]
    sources = [str(HERE / "kernels.cpp"), str(PROBE)]
    command = [compiler, *COMMON, *fast, f"-I{HERE}", f"-DCONVOY_ISA={name}", f"-DPROBED={name}", *sources]
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    read = [path.read_bytes() for path in (PROBE, *sorted(HERE.glob("*.cpp")), *sorted(HERE.glob("*.h")))]
    made = folder / f"{name}-{hashlib.sha256(b''.join([version, repr(command).encode(), *read])).hexdigest()}"
    if not made.exists():
        fresh = made.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(fresh)], check=True)
        os.replace(fresh, made)
    found = subprocess.run([*run, str(made)], check=True, capture_output=True, text=True)
    return found.stdout.splitlines()


@cache
def flags_of_this_machine() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}


def runs_here(name: str) -> bool:
    needs = {"avx2": {"avx2"}, "avx512": {"avx512bw", "avx512dq", "avx512vl"}}
    needs |= {"avx512vnni": {"avx512_vnni"}, "avxvnni": {"avx512_vnni"}, "baseline": set()}
    return needs[name] <= flags_of_this_machine()


@pytest.mark.skipif(
    COMPILER is None or build.this_machine().machine != "x86_64", reason="needs x86-64 and g++"
)
def test_all_instruction_sets_of_this_machine_compute_the_same_bits(compiled_kernels):
    names = [name for name in X86 if runs_here(name)]
    with ThreadPoolExecutor(2) as pool:
        found = dict(
            zip(
                names,
                pool.map(lambda n: probe(compiled_kernels, COMPILER, n, X86[n], []), names),
                strict=True,
            )
        )
    assert len(found["baseline"]) > 60
    for name in names:
        assert found[name] == found["baseline"], name


@NEEDS_ARM
@pytest.mark.skipif(build.this_machine().machine != "x86_64", reason="compares ARM with x86-64")
def test_arm_instruction_sets_compute_the_bits_of_x86(compiled_kernels):
    names = list(SETS["aarch64"])
    run = [QEMU, "-cpu", "max"]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda n: probe(compiled_kernels, ARM_COMPILER, n, SETS["aarch64"][n], run), names)
        wanted = probe(compiled_kernels, COMPILER, "baseline", [], [])
    for name, lines in zip(names, made, strict=True):
        assert lines == wanted, name


@pytest.mark.skipif(library() is None, reason="no native operators: make native")
def test_library_uses_the_best_instruction_set_or_the_named_one():
    path = library()
    found = instruction_set(path)
    assert found is not None
    wished = os.environ.get("CONVOY_KERNELS_ISA")
    assert found.name in SETS[build.this_machine().machine] if not wished else found.name == wished
    assert found.fast == (found.name != "baseline")


def test_library_slower_than_standard_operators_is_not_used(monkeypatch, tmp_path):
    from engine import native

    monkeypatch.delenv("CONVOY_KERNELS_ISA", raising=False)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "__init__.py"))
    assert library() is None
    (tmp_path / "libconvoy.so").write_bytes(b"of another machine")
    assert library() is None
    monkeypatch.setattr(native, "check_layout", lambda path: None)
    for fast, want in ((True, tmp_path / "libconvoy.so"), (False, None)):
        monkeypatch.setattr(
            native, "instruction_set", lambda path, fast=fast: native.InstructionSet("baseline", fast)
        )
        assert library() == want
    monkeypatch.setenv("CONVOY_KERNELS_ISA", "baseline")
    assert library() == tmp_path / "libconvoy.so"


LAYOUT = 'extern "C" {{ extern const long long convoy_step_layout[] = {{{}}}; }}'


@pytest.mark.skipif(COMPILER is None, reason="no g++")
@pytest.mark.parametrize("fault", ["without a layout", "of another version", "of other sizes"])
def test_library_built_from_other_sources_is_refused_with_the_remedy(monkeypatch, tmp_path, fault):
    from engine import native

    sizes = [ctypes.sizeof(kind) for kind in (StepArrays, HeldColumn, RowIndex)]
    layouts = {
        "without a layout": None,
        "of another version": [STEP_VERSION + 1, *sizes],
        "of other sizes": [STEP_VERSION, sizes[0] - 8, *sizes[1:]],
    }
    stale, sound = tmp_path / "libconvoy.so", tmp_path / "sound.so"
    for path, layout in ((stale, layouts[fault]), (sound, [STEP_VERSION, *sizes])):
        source = path.with_suffix(".cpp")
        source.write_text("" if layout is None else LAYOUT.format(", ".join(map(str, layout))))
        subprocess.run([COMPILER, "-w", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(native, "instruction_set", lambda path: native.InstructionSet("avx2", True))
    with pytest.raises(ConfigError, match=f"{stale}.*make native"):
        library()
    check_layout(sound)
