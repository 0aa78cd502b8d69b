"""Kernels that are compiled before their first launch."""

from __future__ import annotations

import logging

import pytest
import torch

from engine.backends import LaneSize
from engine.bundle.presets import preset
from engine.executors.cuda.executor import CapturedExecutor
from engine.kernels import nvrtc, prebuilt
from engine.kernels.calls import Kernels
from engine.kernels.launches import Kernel
from engine.kernels.nvrtc import Compiler, Unit
from engine.kernels.prebuilt import compile_missing, kernels_of_lanes, usual_kernels
from engine.models import build
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF
from tests.support.emulated import Emulation

SIZES = {"embed_dim": 64, "conv_dim": 64, "ffn_dim": 128, "heads": 2}


def unit(kernel: Kernel) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return what decides the compiled code; entries of a file share it."""
    return kernel.file, tuple(sorted(kernel.defines.items()))


def warmed(architecture: str, dtype: torch.dtype, lane: LaneSize, *, tensor_cores: bool):
    """Return a model, and the kernels that a lane launches when it is opened; they compute nothing."""
    layers = {"kernel_sizes": (3,) if architecture.startswith("dynamic") else (0,)}
    both = {"encoder": SIZES | layers, "decoder": SIZES | layers, "max_source": 32, "max_target": 32}
    model = build(preset(architecture, 96, 96, both)).to(dtype)
    for parameter in model.parameters():
        parameter.data.zero_()
    launched: set[Kernel] = set()
    streams = Emulation(lambda call: launched.add(call.kernel))
    kernels = Kernels(streams, tensor_cores=tensor_cores)
    CapturedExecutor(model, lane, streams, kernels, warm=True).stepper()
    return model, launched


@pytest.mark.parametrize(
    ("architecture", "dtype", "tensor_cores"),
    [
        ("dynamicconv_wmt_en_de_big", BRAIN, True),
        ("transformer_wmt_en_de_big", HALF, True),
        ("transformer_wmt_en_de_big", HALF, False),
        ("dynamicconv_wmt_en_de_big", FLOAT, True),
    ],
)
def test_usual_kernels_include_every_kernel_of_a_lane(architecture, dtype, tensor_cores):
    lane = LaneSize(5, 2)
    model, launched = warmed(architecture, dtype, lane, tensor_cores=tensor_cores)
    usual = usual_kernels(dtype, tensor_cores=tensor_cores)
    units = [unit(kernel) for kernel in usual]
    assert len(units) == len(set(units))
    chosen = {unit(kernel) for kernel in kernels_of_lanes(usual, model.state_spec, [lane])}
    assert {unit(kernel) for kernel in launched} <= chosen
    # launched later, or not by every model: changes of slots, attention's weights, vocabularies, gates,
    # weights of many tiles
    later = {"scatter.cu", "hypotheses.cu", "attend.cu", "select.cu", "glu.cu", "product.cu", "embed.cu"}
    later |= {"wide_product.cu"}
    unused = {file for file, _ in chosen - {unit(kernel) for kernel in launched}}
    assert unused <= later | ({"dynamic_conv_step.cu"} if tensor_cores and dtype == BRAIN else set())


def test_lanes_choose_kernels_by_their_rows():
    usual, state = (
        usual_kernels(BRAIN, tensor_cores=True),
        build(preset("transformer_iwslt_de_en", 96, 96)).state_spec,
    )
    kernels = kernels_of_lanes(usual, state, [LaneSize(3, 2)])
    rows = {kernel.size for kernel in kernels if kernel.file == "tiled_product.cu"}
    assert rows == {4, 8}
    assert not any(kernel.file.startswith("dynamic_conv") for kernel in kernels)


def test_missing_kernels_are_compiled_by_processes_and_logged_once(compiler, tmp_path, caplog):
    own = Compiler(tmp_path / "kernels")
    kernels = [Kernel("glu.cu", "glu", "float", vector) for vector in (1, 2, 4)]
    with caplog.at_level(logging.INFO, logger=prebuilt.__name__):
        compile_missing(own, kernels, "sm_90")
        compile_missing(own, kernels, "sm_90")
    first, last = caplog.messages
    assert first == f"compiling 3 CUDA kernels for sm_90; later starts find them in {own.cache}"
    assert last.startswith("compiled 3 CUDA kernels for sm_90 in ")
    own._compile = None  # another compilation would fail
    assert own.compile("glu.cu", kernels[0].defines, "sm_90") == compiler.compile(
        "glu.cu", kernels[0].defines, "sm_90"
    )


def test_kernels_are_left_to_their_launch_if_nothing_can_be_cached(compiler, tmp_path, caplog):
    kernels = [Kernel("glu.cu", "glu", "float", vector) for vector in (1, 2, 4)]
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.INFO, logger=prebuilt.__name__):
        for folder in (None, tmp_path / "file" / "folder"):
            compile_missing(Compiler(folder), kernels, "sm_90")
    assert not caplog.messages


def test_kernels_of_an_image_are_found_and_readable_by_other_users(compiler, tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    code = Compiler(shipped).compile("glu.cu", {"CONVOY_VECTOR": "2"}, "sm_90")
    (made,) = shipped.iterdir()
    assert made.stat().st_mode & 0o777 == 0o644
    monkeypatch.setattr(nvrtc, "SHIPPED", shipped)
    own = Compiler(tmp_path / "cache")
    own._compile = None  # another compilation would fail
    assert own.compile("glu.cu", {"CONVOY_VECTOR": "2"}, "sm_90") == code
    assert own.cached(Unit("glu.cu", (("CONVOY_VECTOR", "4"),), "sm_90")) is None


def test_command_compiles_the_usual_kernels_of_each_architecture(monkeypatch, tmp_path, capsys):
    asked: list[Unit] = []
    monkeypatch.setattr(prebuilt, "_compile_units", lambda units, folder: asked.extend(units) or [])
    monkeypatch.setattr("sys.argv", ["prebuilt", str(tmp_path), "--architectures", "75,90"])
    prebuilt.main()
    assert len(asked) == len(set(asked)) and {unit.target for unit in asked} == {"sm_75", "sm_90"}
    old = [unit for unit in asked if unit.target == "sm_75"]
    assert not any("tiled" in unit.file or ("CONVOY_ELEMENT", "bf16") in unit.defines for unit in old)
    assert f"compiled {len(asked)} kernels into {tmp_path}" in capsys.readouterr().out
