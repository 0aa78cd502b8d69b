"""Registers, shared memory and order of launches, checked against the limits of devices without a GPU."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace

import pytest
import torch

from engine.errors import ConfigError
from engine.kernels import launch
from engine.kernels.calls import Kernels, PackedSequences
from engine.kernels.launch import DEFAULT_SHARED_BYTES, PROGRAMMATIC_LAUNCH, Configuration, Device
from engine.kernels.launches import Call, Kernel
from engine.kernels.linear import Epilogue, Norm
from engine.kernels.products import STATIC_BYTES, WIDE_ROW_BUCKETS
from engine.kernels.reference import QKV
from engine.kernels.selection import PartialSelection
from engine.search.executor import TopK
from tests.support.cubins import budgets
from tests.support.cuda_kernels import attention, calls, convolution, normal, search, selection
from tests.support.host_kernels import SOURCES
from tests.support.thorough import THOROUGH

BRAIN, FLOAT = torch.bfloat16, torch.float32
# bytes of shared memory of a block, by compute capability (CUDA C++ Programming Guide, technical
# specifications)
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99}
# code of one architecture must fit into the smallest shared memory
CHECKED = tuple(SHARED) if THOROUGH else (90,)
LEAST_SHARED = min(size for architecture, size in SHARED.items() if architecture >= 80)
REGISTERS = 65536  # registers of a multiprocessor, the limit of a block
STREAMED = re.compile(r"ld\.global\.nc\.L1::no_allocate\.L2::128B\.v[24]\.u32")
CHUNK = 256  # granularity of a warp's registers


def kernels_of(architecture: int, made: list[Call]) -> Kernels:
    """Return the kernels of a device that makes no launch, with the least shared memory of its kind."""
    tensor_cores = architecture >= 80
    shared = LEAST_SHARED if tensor_cores else SHARED[architecture]
    return Kernels(made.append, tensor_cores=tensor_cores, shared_bytes=shared * 1024)


def largest_calls(dtype: torch.dtype, architecture: int) -> list[Call]:
    """Yield the largest launches of a lane: 16 beams, and the longest kernels, sources and rows."""
    made: list[Call] = []
    kernels = kernels_of(architecture, made)
    for beams in (1, 5, 16):
        x, taps, ring, index = convolution(dtype, 1, beams, 1024, 16, 31, False)
        kernels.dynamic_conv_step(x, taps, ring, index, softmax=True)
        kernels.dynamic_conv_step_append(
            x, taps, (ring, index, torch.zeros(1, dtype=torch.int64)), softmax=True
        )
        for weights in (True, False):
            q, *memory = attention(dtype, 1, beams, 2, 64, 1024)
            kernels.attend(q, memory, weights=weights)
        for width in (64, 127, 256, 512) if beams == 16 else (64,):
            new = normal(1, 1, beams, 2 * width, dtype=dtype)
            blocks = (torch.empty(1, 2, 1024, beams, width, dtype=dtype),) * 2
            writers = torch.zeros(1, beams, 1024, dtype=torch.int64)
            assert kernels.takes_caches(blocks)
            kernels.attend_cached(QKV(new, new, new), blocks, (writers, writers[:, 0, :1]))
            kernels.advance_caches(writers, writers[:, :, 0].contiguous(), writers[:, 0, :1])
        for k in (2 * beams, 64):  # search and sampling
            logits, rules = selection(FLOAT, 1, beams, 50_000, 2)
            found = kernels.scan(logits, tuple(rules), 3, 2, k)
            assert isinstance(found, PartialSelection) == (
                beams < 16 or k < 64
            )  # a larger selection is merged before
            top = TopK(None, None, None, found) if isinstance(found, PartialSelection) else TopK(*found, None)
            search(made.append, 1, beams, 9).end_step(top, torch.zeros(1, dtype=torch.int64))
    tensor_cores = kernels.tensor_cores and dtype != FLOAT
    for rows in WIDE_ROW_BUCKETS if tensor_cores else ():
        for finish in (Epilogue(float32=True), Epilogue(activation="glu")):
            x, weight = normal(4, 1, rows, 4096, dtype=dtype), normal(3, 8, 4096, dtype=dtype)
            kernels.product(x, (weight, None), finish, constant=True)
    for rows in (1, 2, 4, 8, 16) if tensor_cores else (1, 2, 4, 8):
        norm = Norm(normal(1, 4096, dtype=dtype), normal(2, 4096, dtype=dtype), 1e-5)
        weight = normal(3, 8, 4096, dtype=dtype)
        x = normal(4, 1, rows, 4096)
        if rows == 16:
            for dim in (2496, 4096):  # the longest staged row, and a longer one
                part = weight[:, :dim].contiguous()
                kernels.product(
                    x[:, :, :dim].contiguous(), (part, None), Epilogue(float32=True), constant=True
                )
        if kernels.fits(x, weight):
            kernels.product(x, (weight, None), Epilogue(), norm)
            kernels.product(
                x, (weight, None), Epilogue(residual=normal(4, 1, rows, 8), float32=True), constant=True
            )
        weight, part = normal(3, 8, 1024, dtype=dtype), x[:, :, :1024].contiguous()
        for finish in (Epilogue(), Epilogue(activation="glu")):
            norm = Norm(weight[0], weight[1], 1e-5)
            kernels.product(part, (weight, None), finish, norm, torch.ones(1), constant=True)
        if tensor_cores:
            listed = torch.zeros(1, rows + 2048, dtype=torch.int64)
            kernels.listed_product(part, (weight, weight[:, 0].contiguous()), listed, norm)
        if tensor_cores and rows <= 8:  # one beam a slot copies most
            one = part.to(dtype).transpose(0, 1).contiguous()
            past = normal(6, rows, 30, 1, 1024, dtype=dtype), torch.zeros(rows, 1, 30, dtype=torch.int64)
            past = *past, torch.zeros(1, dtype=torch.int64)
            kernels.dynamic_conv_product(one, normal(5, 496, 1024, dtype=dtype), past, (16, 31), softmax=True)
    kernels.dynamic_conv(
        x[:, :, :1024].to(dtype).contiguous(), normal(5, 16, 63, dtype=dtype), 31, softmax=True
    )
    packed = PackedSequences(torch.tensor([[0, 1]]).expand(512, 2), 1024)
    whole = normal(6, 1, 4096, 128, dtype=dtype)
    kernels.dynamic_conv(whole, normal(5, 16, 63, dtype=dtype), 31, packed, softmax=True)
    kernels.attend_packed(QKV(whole, whole, whole), packed, 2)
    for k in (2, 32, 1024):
        logits, rules = selection(dtype, 1, 1, 50_000, 2)
        kernels.select(logits, tuple(rules), None, 2, k)
    return made


@pytest.mark.parametrize("architecture", CHECKED)
def test_every_launch_that_a_lane_can_make_fits_the_device(compiler, architecture):
    if architecture not in compiler.architectures:
        pytest.skip(f"NVRTC {compiler.version} does not know sm_{architecture}")
    limit = kernels_of(architecture, []).dynamic_bytes + STATIC_BYTES
    for dtype in (BRAIN, FLOAT) if THOROUGH else (BRAIN,):
        for call in [*calls(dtype, limit), *largest_calls(dtype, architecture)]:
            if architecture < 80 and re.search("tiled|wide", call.kernel.file):  # newer tensor cores
                continue
            cubin = compiler.compile(call.kernel.file, call.kernel.defines, f"sm_{architecture}")
            budget, threads = budgets(cubin)[call.kernel.entry], call.block[0] * call.block[1] * call.block[2]
            each = -(-budget.registers * 32 // CHUNK) * CHUNK  # of a warp
            assert each * -(-threads // 32) <= REGISTERS, (call.kernel, threads, budget)
            assert call.shared + budget.shared <= limit, (call.kernel, call.shared, budget)
            assert budget.stack == 0, (call.kernel, "spills")


def test_no_kernel_touches_what_another_wrote_before_it_waits_for_it(compiler):
    """Before `griddepcontrol.wait` a kernel may only prefetch, or load weights, which no kernel writes."""
    for call in {c.kernel: c for c in calls(BRAIN)}.values():
        ptx = compiler.compile(call.kernel.file, call.kernel.defines, "compute_90").decode()
        body = ptx[ptx.index(f".entry {call.kernel.entry}(") :]
        body = body[: body.index("\n}")]
        waits = [m.start() for m in re.finditer(r"griddepcontrol\.wait", body)]
        assert len(waits) == 1, call.kernel.entry
        before = body[: waits[0]]
        if (
            '#include "tiled.cuh"' in (SOURCES / call.kernel.file).read_text()
            and "CONVOY_ROWS" in call.kernel.defines
        ):
            before, loads = STREAMED.subn("", before)
            assert loads
        assert not re.search(r"\b(ld|st|atom|red)\.global", before), call.kernel.entry
        assert not re.search(r"\b(ld|st)\.(volatile\.)?u?[0-9]", before), call.kernel.entry  # of any space


class Driver:
    """A stand-in for NVIDIA's driver, with kernels of a given size of static shared memory."""

    def __init__(self, static: int, most: int) -> None:
        self.static, self.most = static, most
        self.asked: list[int] = []
        self.launched: list[Configuration] = []

    def cuModuleLoadData(self, module, image):
        return 0

    cuModuleGetFunction = cuDeviceGet = lambda self, *_: 0

    def cuFuncGetAttribute(self, value, attribute, function):
        assert attribute == 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        value._obj.value = self.static
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = self.most
        return 0

    def cuFuncSetAttribute(self, function, attribute, size):
        self.asked.append(size)
        return 0

    def cuLaunchKernelEx(self, configuration, function, arguments, more):
        self.launched.append(configuration._obj)
        return 0


@pytest.fixture
def device(monkeypatch, compiler):
    def made(static: int = 16, most: int = 99 * 1024, capability: tuple[int, int] = (9, 0)) -> Device:
        driver = Driver(static, most)
        monkeypatch.setattr(launch, "_driver", lambda: driver)
        monkeypatch.setattr(launch, "Compiler", lambda cache: compiler)
        for name, value in {
            "is_available": lambda: True,
            "get_device_capability": lambda _: capability,
            "get_device_properties": lambda _: SimpleNamespace(multi_processor_count=132),
            "current_stream": lambda _: SimpleNamespace(cuda_stream=7),
            "synchronize": lambda _: None,
            "device": lambda _: torch.no_grad(),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        return Device("cuda")

    return made


def call(shared: int) -> Call:
    return Call(Kernel("add_norm.cu", "add_norm", "float", 1), (3, 1, 1), (64, 1, 1), shared, (1, 2.0, None))


def test_static_shared_memory_counts_towards_the_limit(device):
    run = device(static=16)
    run(call(DEFAULT_SHARED_BYTES - 16))
    assert run._driver.asked == []
    run(call(DEFAULT_SHARED_BYTES))  # the default limit minus 16 bytes
    run(call(DEFAULT_SHARED_BYTES))
    assert run._driver.asked == [DEFAULT_SHARED_BYTES]
    with pytest.raises(ConfigError, match=rf"needs {99 * 1024 + 15} bytes .* this GPU has {99 * 1024}"):
        run(call(99 * 1024 - 1))
    assert len(run._driver.launched) == 3


def test_shared_memory_that_another_thread_enabled_is_not_reduced(device):
    run = device()
    run(call(60 * 1024))
    loaded = run._loaded[call(0).kernel]
    run._enable_shared_memory(call(50 * 1024), loaded)  # by a thread that read the limit before
    assert run._driver.asked == [60 * 1024]
    assert loaded.enabled == 60 * 1024


def test_products_of_rows_beyond_the_shared_memory_of_a_device_are_left_to_torch(device):
    x, weight = torch.zeros(1, 5, 2048), torch.zeros(512, 2048)
    assert not device(most=64 * 1024, capability=(7, 5)).kernels().fits(x, weight)
    assert device(most=64 * 1024, capability=(7, 5)).kernels().fits(x[:, :4], weight)
    assert device(most=99 * 1024).kernels().fits(x, weight)


def test_attention_over_long_sources_takes_fewer_beams_at_once_where_memory_is_small():
    q, *memory = attention(FLOAT, 1, 8, 2, 64, 2048)
    grids = {}
    for kib in (64, 99):
        made: list[Call] = []
        Kernels(made.append, shared_bytes=kib * 1024).attend(q, memory, weights=False)
        grids[kib] = made[0].kernel.size, made[0].grid
        assert made[0].shared <= (kib - 1) * 1024
    assert grids == {64: (4, (2, 2, 1)), 99: (8, (2, 1, 1))}


@pytest.mark.parametrize(("capability", "early"), [((8, 0), 0), ((9, 0), 1), ((12, 0), 1)])
def test_kernels_begin_early_where_the_device_can(device, capability, early):
    run = device(capability=capability)
    run(call(0))
    (made,) = run._driver.launched
    assert [*made.grid] == [3, 1, 1]
    assert [*made.block] == [64, 1, 1]
    assert made.stream == 7
    assert made.count == early
    assert made.attributes[0].id == PROGRAMMATIC_LAUNCH
    assert made.attributes[0].value[0] == 1
    assert ctypes.sizeof(Configuration) == 56
    assert ctypes.sizeof(made.attributes[0]) == 72  # CUlaunchAttribute


def test_all_who_run_on_a_device_share_its_kernels(device, monkeypatch):
    device()
    launch._device.cache_clear()
    assert launch.device_of("cuda:0") is launch.device_of("cuda") is not launch.device_of("cuda:1")
    launch._device.cache_clear()


def test_tensor_of_another_device_is_refused_before_the_launch(device):
    run = device()
    arguments = (torch.ones(3), 4, None)
    with pytest.raises(ValueError, match=r"attend on cuda:0: argument 0, torch.float32 \[3\], is on cpu"):
        run(Call(Kernel("attend.cu", "attend", "float", 1), (1, 1, 1), (32, 1, 1), 0, arguments))
    assert not run._driver.launched
