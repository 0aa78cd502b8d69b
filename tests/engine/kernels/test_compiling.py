"""Compilation of the CUDA kernels by NVRTC, and the parameters of each entry."""

from __future__ import annotations

from ctypes import c_float, c_int32, c_void_p

import pytest
import torch

from engine.errors import ConfigError
from engine.kernels.calls import ATTEND_WARPS, PACKED_GROUP
from engine.kernels.launch import Device
from engine.kernels.launches import HEAD_PRODUCTS, PRODUCTS, argument
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
    narrow = {*PRODUCTS, *HEAD_PRODUCTS, "attend_tiled"} - {"product"}
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_launcher_without_a_gpu_raises_config_error():
    with pytest.raises(ConfigError, match="no GPU for --device cuda"):
        Device("cuda")
