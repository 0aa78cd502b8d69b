"""The kernels of usual models, compiled before their first launch: by several processes at the first start,
or when an image is built (`python -m engine.kernels.prebuilt`)."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

import torch

from engine.backends import LaneSize, processors
from engine.kernels.calls import PACKED_GROUP, SCATTER
from engine.kernels.launches import ELEMENTS, LOAD_BYTES, SIZE_DEFINES, Kernel, bucket_of
from engine.kernels.nvrtc import SHIPPED, Compiler, Unit
from engine.kernels.products import ROW_BUCKETS, TILED_ROW_BUCKETS, WIDE_ROW_BUCKETS

logger = logging.getLogger(__name__)

HEAD_WIDTHS: Final = (32, 64, 128)  # widths of the heads of self-attention that usual models have
ARCHITECTURES: Final = "75,80,86,89,90,100,120"  # compute capabilities without their dots
# files of kernels by the kind of state that they read
STATE_FILES: Final = {
    "cache": ("advance_caches.cu", "attend_cached.cu"),
    "ring": ("dynamic_conv.cu", "dynamic_conv_step.cu", "dynamic_conv_tiled.cu"),
    "sum": ("ssru_step.cu",),
}
MAX_PROCESSES: Final = 8
MANY: Final = 3  # least number of missing kernels that processes compile, with a line in the log


class DecoderState(Protocol):
    """The fields of `engine.bundle.specs.StateSpec` that decide which kernels use a state."""

    @property
    def dim(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def exact(self) -> bool: ...


def usual_kernels(dtype: torch.dtype, *, tensor_cores: bool, int8: bool = False) -> list[Kernel]:
    """Return the kernels of models with sizes of multiples of 16 bytes, one for each compilation.

    dtype: type of the model.
    tensor_cores: the device has the instructions of tiled_product.cu.
    int8: add those for weights of 8 bits.
    """
    element, vector = ELEMENTS[dtype], LOAD_BYTES // dtype.itemsize
    tiled = tensor_cores and dtype != torch.float32
    loads = {
        "dynamic_conv.cu": ("dynamic_conv", 4),
        "dynamic_conv_step.cu": ("dynamic_conv_step", vector),
        "ssru_step.cu": ("ssru_step", 1),
        "embed.cu": ("embed", vector),
        "glu.cu": ("glu", vector),
        "add_norm.cu": ("add_norm", vector),
    }
    kernels = [Kernel(file, entry, element, most) for file, (entry, most) in loads.items()]
    kernels += [
        SCATTER,
        Kernel("search.cu", "begin_step", "float", 1),
        Kernel("hypotheses.cu", "follow_back", "float", 1),
        Kernel("advance_caches.cu", "advance_caches", "float", 1),
    ]
    kernels += [Kernel("select.cu", "select_best", "float", most) for most in (1, 2, 4)]
    kernels += [Kernel("attend_cached.cu", "attend_cached", element, vector, width) for width in HEAD_WIDTHS]
    kernels += [Kernel("expand.cu", "expand", element, vector)] if int8 else []
    kernels += [Kernel("attend.cu", "attend", element, 4, beams) for beams in (1, 2, 4, PACKED_GROUP)]
    if not tiled:
        return kernels + [Kernel("product.cu", "product", element, vector, rows) for rows in ROW_BUCKETS]
    attention = Kernel("attend_tiled.cu", "attend_tiled", element, vector)
    return [*kernels, attention, *_tiled_products(element, vector, int8=int8)]


def _tiled_products(element: str, vector: int, *, int8: bool) -> list[Kernel]:
    """Return the kernels of products by tensor cores.

    element: type of the rows.
    vector: number of elements of a load.
    int8: add those for weights of 8 bits.
    """
    taps = [Kernel("dynamic_conv_tiled.cu", "dynamic_conv_tiled", element, vector, n) for n in ROW_BUCKETS]
    products = [("tiled_product", rows) for rows in TILED_ROW_BUCKETS]
    products += [("wide_product", rows) for rows in WIDE_ROW_BUCKETS]
    return taps + [
        Kernel(f"{entry}.cu", entry, element, vector, rows, narrow)
        for narrow in ((False, True) if int8 else (False,))
        for entry, rows in products
    ]


def kernels_of_lanes(
    kernels: Iterable[Kernel], states: Sequence[DecoderState], lanes: Sequence[LaneSize]
) -> list[Kernel]:
    """Return the usual kernels that plain steps of a model launch.

    kernels: usual kernels.
    states: states of the model's decoder.
    lanes: sizes of the lanes.
    """
    buckets = *TILED_ROW_BUCKETS, *WIDE_ROW_BUCKETS
    rows = {bucket_of(buckets, beams * slots) for beams, most in lanes for slots in _doubles(most)}
    rows |= {*WIDE_ROW_BUCKETS}  # for the smallest batches of encoders
    widths = {state.dim // state.heads for state in states if state.heads}
    sizes = {"CONVOY_ROWS": rows, "CONVOY_WIDTH": widths}
    unused = _unused_files(states)
    return [
        kernel
        for kernel in kernels
        if kernel.file not in unused
        and kernel.size in sizes.get(SIZE_DEFINES.get(kernel.entry, ""), {kernel.size})
    ]


def _unused_files(states: Sequence[DecoderState]) -> set[str]:
    """Return the files of kernels for states that a model does not have."""
    kinds = {"cache" if state.heads else "sum" if state.exact else "ring" for state in states}
    return {file for kind, files in STATE_FILES.items() if kind not in kinds for file in files}


def compile_missing(compiler: Compiler, kernels: Iterable[Kernel], target: str) -> None:
    """Compile the kernels that the compiler's cache lacks, by several processes, and log that it takes time.

    A kernel that fails is compiled again at its first launch, which raises the reason. Without a cache
    folder that can be written, nothing is compiled here.

    compiler: compiler with the cache.
    kernels: kernels that will be launched.
    target: target of the compilation, such as "sm_90".
    """
    units = dict.fromkeys(Unit(k.file, tuple(sorted(k.defines.items())), target) for k in kernels)
    missing = [unit for unit in units if compiler.cached(unit) is None]
    if len(missing) < MANY or not compiler.can_cache():
        return
    began, names = time.monotonic(), f"{len(missing)} CUDA kernels for {target}"
    logger.info("compiling %s; later starts find them in %s", names, compiler.cache)
    _compile_units(missing, compiler.cache)
    logger.info("compiled %s in %.0f s", names, time.monotonic() - began)


def _compile_units(units: Sequence[Unit], folder: Path | None) -> list[Unit]:
    """Compile units into a folder; return the failed units. NVRTC runs one compilation at a time in a
    process, so each unit has its own process."""

    def compile_one(unit: Unit) -> bool:
        defines = [f"{key}={value}" for key, value in unit.defines]
        command = [sys.executable, "-m", "engine.kernels.nvrtc", str(folder), unit.file, unit.target]
        return subprocess.run([*command, *defines], check=False).returncode == 0

    with ThreadPoolExecutor(min(processors(), MAX_PROCESSES)) as pool:
        compiled = pool.map(compile_one, units)
        return [unit for unit, done in zip(units, compiled, strict=True) if not done]


def _doubles(most: int) -> list[int]:
    """Return 1, 2, 4, ... below `most`, and `most`: the numbers of slots that have a graph."""
    return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]


def main() -> None:
    """Compile the usual kernels for several architectures into a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=SHIPPED)
    parser.add_argument("--architectures", default=ARCHITECTURES, help="such as 75,90; empty: none")
    options = parser.parse_args()
    units: dict[Unit, None] = {}
    for architecture in filter(None, options.architectures.split(",")):
        for dtype in ELEMENTS:
            if dtype == torch.bfloat16 and int(architecture) < 80:  # no products of this type
                continue
            narrow, cores = dtype != torch.float32, int(architecture) >= 80
            kernels = usual_kernels(dtype, tensor_cores=cores, int8=narrow)
            units |= {
                Unit(k.file, tuple(sorted(k.defines.items())), f"sm_{architecture}"): None for k in kernels
            }
    if failed := _compile_units([*units], options.folder):
        sys.exit(f"{len(failed)} of {len(units)} kernels were not compiled")
    print(f"compiled {len(units)} kernels into {options.folder}")


if __name__ == "__main__":
    main()
