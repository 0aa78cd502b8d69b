"""The convolutions as ahead-of-time Python plugins of TensorRT, compiled to PTX from the same .cu files.

Once they are registered, the ONNX parser accepts the nodes that `export/graphs/plugins.py` writes. The PTX is
stored in the engine, which then needs no plugin library. A kernel's parameters are inputs, extra arguments,
outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.errors import ConfigError
from engine.kernels.calls import TILE_STEPS, step_geometry
from engine.kernels.launches import LOAD_BYTES, WARP
from engine.kernels.nvrtc import Compiler

NAMESPACE: Final = "convoy"
# whether the taps are the same at every position ([heads, K]), by name
PLUGINS: Final = {"DynamicConvStep": False, "LightConvStep": True, "DynamicConv": False, "LightConv": True}
# portable code for the oldest GPUs that TensorRT 11 supports; the driver compiles it for the installed GPU
TARGET: Final = "compute_80"
PLUGIN_TYPES: Final = ("FP32", "FP16", "BF16")
BEAMS: Final = 4  # beams that a block computes at once; their number is known only at run time
BLOCK_STEPS: Final = 8  # time steps that a block computes at once


def register(compiler: Compiler) -> None:
    """Register the plugins with TensorRT, once in a process. Raises ConfigError without TensorRT 10.9."""
    try:
        import tensorrt.plugin as trtp

        trtp.aot_impl  # noqa: B018  (absent before 10.9)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"no TensorRT with ahead-of-time plugins ({error}); install it: pip install 'tensorrt>=10.9'"
        ) from None
    for name, fixed in PLUGINS.items():
        if not hasattr(getattr(trtp.op, NAMESPACE, None), name):
            (_register_step if name.endswith("Step") else _register_whole)(trtp, name, compiler, fixed)


def _register_step(trtp: Any, name: str, compiler: Compiler, fixed: bool) -> None:
    """Register a step of the convolution."""

    def describe(x: Any, taps: Any, ring: Any, index: Any) -> Any:
        return x.like()

    def autotune(x: Any, taps: Any, ring: Any, index: Any, outputs: Any) -> Any:
        return [trtp.AutoTuneCombination(f"{k}, {k}, {k}, INT64, {k}", "LINEAR") for k in PLUGIN_TYPES]

    def implement(x: Any, taps: Any, ring: Any, index: Any, outputs: Any, tactic: int) -> Any:
        # return the kernel's name, its code, its launch, and its extra arguments
        slots, beams, _ = x.shape_expr
        channels, (heads, width) = x.shape[2], tuple(taps.shape)[-2:]
        kernel, vector = _compile_ptx(compiler, "dynamic_conv_step.cu", x.dtype, channels // heads)
        launch = trtp.KernelLaunchParams()
        grid, block, launch.shared_mem = step_geometry(slots, BEAMS, channels, (heads, width), vector)
        launch.grid_x, launch.grid_y = grid[:2]
        launch.block_x, launch.block_y, launch.block_z = block
        scalars = beams, channels, heads, width, int(fixed), 1  # 1: softmax of the taps
        return "dynamic_conv_step", kernel, launch, _scalar_arguments(trtp, scalars)

    inputs = dict.fromkeys(("x", "taps", "ring", "index"), trtp.TensorDesc)
    _register_functions(trtp, f"{NAMESPACE}::{name}", inputs, (describe, autotune, implement))


def _register_whole(trtp: Any, name: str, compiler: Compiler, fixed: bool) -> None:
    """Register the convolution of whole sequences."""

    def describe(x: Any, taps: Any, left: int) -> Any:
        return x.like()

    def autotune(x: Any, taps: Any, left: int, outputs: Any) -> Any:
        return [trtp.AutoTuneCombination(f"{k}, {k}, {k}", "LINEAR") for k in PLUGIN_TYPES]

    def implement(x: Any, taps: Any, left: int, outputs: Any, tactic: int) -> Any:
        # return the kernel's name, its code, its launch, and its extra arguments
        batch, time, _ = x.shape_expr
        channels, (heads, width) = x.shape[2], tuple(taps.shape)[-2:]
        kernel, vector = _compile_ptx(compiler, "dynamic_conv.cu", x.dtype, channels // heads, most=4)
        chunk = WARP * vector
        launch = trtp.KernelLaunchParams()
        launch.grid_x, launch.grid_y, launch.grid_z = (
            -(-channels // chunk),
            trtp.cdiv(time, TILE_STEPS),
            batch,
        )
        launch.block_x, launch.block_y = WARP, BLOCK_STEPS
        launch.shared_mem = (TILE_STEPS + width - 1) * chunk * 4
        scalars = time, channels, heads, width, left, int(fixed), 1, TILE_STEPS  # 1: softmax of the taps
        return "dynamic_conv", kernel, launch, _scalar_arguments(trtp, scalars)

    inputs = dict.fromkeys(("x", "taps"), trtp.TensorDesc) | {"left": int}
    _register_functions(trtp, f"{NAMESPACE}::{name}", inputs, (describe, autotune, implement))


def _register_functions(
    trtp: Any, plugin: str, inputs: dict[str, Any], functions: tuple[Callable[..., Any], ...]
) -> None:
    """Register the three functions of a plugin.

    TensorRT reads their annotations, which are set here because they are types of the tensorrt module.
    """
    describe, autotune, implement = functions
    outputs = {"outputs": tuple[trtp.TensorDesc]}
    parts = tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]
    describe.__annotations__ = inputs | {"return": trtp.TensorDesc}
    autotune.__annotations__ = inputs | outputs | {"return": list[trtp.AutoTuneCombination]}
    implement.__annotations__ = inputs | outputs | {"tactic": int, "return": parts}
    trtp.register(plugin)(describe)
    trtp.autotune(plugin)(autotune)
    trtp.aot_impl(plugin)(implement)


def _compile_ptx(
    compiler: Compiler, file: str, dtype: Any, axis: int, most: int = LOAD_BYTES
) -> tuple[bytes, int]:
    """Compile a file to PTX; returns the code and the number of elements per load.

    compiler: NVRTC.
    file: name of the .cu file.
    dtype: TensorRT's type of the elements.
    axis: number of channels that share a kernel.
    most: largest number of elements per load.
    """
    import tensorrt as trt

    elements = {trt.float32: ("float", 4), trt.float16: ("fp16", 2), trt.bfloat16: ("bf16", 2)}
    element, size = elements[dtype]
    vector = min(LOAD_BYTES // size, most)
    while axis % vector:
        vector //= 2
    defines = {"CONVOY_ELEMENT": element, "CONVOY_VECTOR": str(vector)}
    return compiler.compile(file, defines, TARGET).rstrip(b"\0"), vector


def _scalar_arguments(trtp: Any, values: tuple[Any, ...]) -> Any:
    """Return integers, or expressions of shapes, as the extra arguments of a plugin's kernel."""
    expressions = trtp.SymIntExprs(len(values))
    for i, value in enumerate(values):
        expressions[i] = trtp.SymInt32(value)
    return expressions
