"""Compilation of the CUDA kernels by NVRTC, and the parameters of each entry."""

from __future__ import annotations

import re
from ctypes import c_float, c_int32, c_void_p

import pytest
import torch

from engine.errors import ConfigError
from engine.kernels import nvrtc
from engine.kernels.calls import ATTEND_WARPS, PACKED_GROUP
from engine.kernels.launch import Device
from engine.kernels.launches import PRODUCTS, argument
from engine.kernels.selection import SELECT_ROOM
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, calls, entries, parameters
from tests.support.host_kernels import SOURCES

ARCHITECTURES = (80, 89, 90, 100)


@pytest.mark.parametrize(
    ("architecture", "dtype"), [(90, HALF), (90, BRAIN), *((a, FLOAT) for a in ARCHITECTURES)]
)
def test_nvrtc_compiles_every_kernel_and_calls_match_its_parameters(compiler, architecture, dtype):
    if architecture not in compiler.architectures:
        pytest.skip(f"NVRTC {compiler.version} does not know sm_{architecture}")
    made = calls(dtype)
    narrow = {*PRODUCTS, "attend_tiled"} - {"product"}
    assert {c.kernel.entry for c in made} == entries() - (narrow if dtype == FLOAT else set())
    for call in made:
        defines = call.kernel.defines
        ptx = compiler.compile(call.kernel.file, defines, f"compute_{architecture}")
        assert f".target sm_{architecture}".encode() in ptx
        kinds = [
            {c_int32: "integer", c_float: "float", c_void_p: "address"}[type(argument(a))]
            for a in call.arguments
        ]
        assert parameters(ptx, call.kernel.entry) == kinds


def test_no_kernel_contracts_products_and_sums(compiler):
    """An operation without a rounding may be contracted: in one instantiation of a template, not in another.
    The loops that take most time still multiply and add with one instruction."""
    least = {"product": 2 * 8 * 4 * 4, "attend": 2 * 4 * 4 * 4, "dynamic_conv_step": 8 * 4}  # unrolled
    for call in {c.kernel: c for c in calls(FLOAT)}.values():
        ptx = compiler.compile(call.kernel.file, call.kernel.defines, "compute_90").decode()
        assert not re.search(r"\b(mul|add|sub|mad|fma)(\.ftz)?\.f(32|64)\b", ptx), call.kernel
        body = ptx[ptx.index(f".entry {call.kernel.entry}(") :]
        body = body[: body.index("\n}")]
        assert body.count("fma.rn.f32") >= least.get(call.kernel.entry, 0), call.kernel


def test_nvrtc_compiles_machine_code_for_a_real_device(compiler):
    assert compiler.target((9, 0)) == "sm_90"
    assert compiler.compile("add_norm.cu", {}, "sm_90")[:4] == b"\x7fELF"


def test_compiled_kernel_is_cached_until_source_or_options_change(compiler, monkeypatch):
    first = compiler.compile("add_norm.cu", {"CONVOY_VECTOR": "2"}, "compute_90")
    monkeypatch.setattr(compiler, "_compile", None)  # another compilation would fail
    assert compiler.compile("add_norm.cu", {"CONVOY_VECTOR": "2"}, "compute_90") == first
    for changed in ("add_norm.cu", {"CONVOY_VECTOR": "4"}, "compute_90"), ("add_norm.cu", {}, "compute_89"):
        with pytest.raises(TypeError):
            compiler.compile(*changed)


def test_compile_error_contains_the_log_of_nvrtc(compiler):
    with pytest.raises(ConfigError, match="identifier .nonsense. is undefined"):
        compiler.compile("add_norm.cu", {"CONVOY_ELEMENT": "nonsense"}, "compute_90")


def test_newer_device_gets_portable_code_and_older_one_is_refused(compiler):
    assert compiler.target((99, 0)) == f"compute_{compiler.architectures[-1]}"
    with pytest.raises(ConfigError, match="use another GPU"):
        compiler.target((1, 0))


def test_python_constants_equal_those_of_the_sources():
    attend, select = ((SOURCES / name).read_text() for name in ("attend.cu", "select.cu"))
    assert f"constexpr int BEAMS = CONVOY_BEAMS, WARPS = {ATTEND_WARPS}," in attend
    assert f"constexpr int ROOM = {SELECT_ROOM};" in select
    assert f"constexpr int GROUP = {PACKED_GROUP};" in (SOURCES / "common.cuh").read_text()


@pytest.mark.parametrize(("cuda", "first"), [("12.6", "12"), ("13.0", "13"), (None, "13")])
def test_nvrtc_has_the_version_of_torchs_cuda(monkeypatch, tmp_path, cuda, first):
    for name in (
        "nvidia/cu13/lib/libnvrtc.so.13",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "nvidia/cu12/lib/libnvrtc.so.12",
        "nvidia/cu13/lib/libnvrtc.alt.so.13",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "torch_versions", lambda: ("2.11.0", cuda))
    opened: list[str] = []

    def refuse(name):
        opened.append(name)
        raise OSError

    monkeypatch.setattr(nvrtc.ctypes, "CDLL", refuse)
    package = nvrtc.PACKAGES[12 if cuda == "12.6" else 13]
    with pytest.raises(ConfigError, match=re.escape(f"pip install '{package}'")):
        nvrtc.Compiler()
    versions = [name.rpartition(".")[2] for name in opened if name.startswith(str(tmp_path))]
    assert versions == sorted(versions, key=lambda version: (version == first, version), reverse=True)
    assert len(versions) == 3 and versions[0] == first
    assert opened[3:] == [*nvrtc.SYSTEM_NAMES]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_launcher_without_a_gpu_raises_config_error():
    with pytest.raises(ConfigError, match="no GPU for --device cuda"):
        Device("cuda")
