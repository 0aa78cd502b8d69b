"""Runs of a TensorRT engine on torch's tensors and current stream, within steps that CUDA graphs capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.executors.cuda.streams import current_stream


@dataclass(frozen=True, eq=False, slots=True)
class EngineRun:
    """A run of an engine with fixed shapes and addresses, as a CUDA graph needs it.

    inputs: tensors that are filled before each run; further inputs are the lane's blocks themselves.
    """

    context: Any
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class EngineRuns:
    """Runs an engine on a device, with one TensorRT context for each combination of shapes and blocks.

    Each CUDA graph needs its own context. The first run makes it, which a capture could not do: a stepper
    runs each step without a graph before it captures it (`engine.executors.cuda.graphs`). The contexts share
    their scratch memory, because runs of an engine in one lane never overlap.

    types: torch dtype of each tensor, by name.
    """

    def __init__(self, engine: Any, buckets: tuple[int, ...], device: torch.device) -> None:
        """buckets: most rows (slots, or sources of a batch) of each optimization profile."""
        import tensorrt as trt

        self.engine, self.buckets, self.device = engine, buckets, device
        types = {
            trt.float32: torch.float32,
            trt.float16: torch.float16,
            trt.bfloat16: torch.bfloat16,
            trt.int64: torch.int64,
        }
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self.types = {name: types[engine.get_tensor_dtype(name)] for name in names}
        self.inputs = {n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT}
        self.outputs = [n for n in names if n not in self.inputs]
        self._scratch = torch.empty(engine.device_memory_size_v2, dtype=torch.uint8, device=device)
        self._runs: dict[Any, EngineRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __call__(
        self, rows: int, blocks: Mapping[str, Tensor], fed: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Run the engine and return its outputs, which the next run of the same shapes overwrites.

        rows: number of slots, or of sources in the batch.
        blocks: tensors at fixed addresses, read in place if they have the engine's dtype.
        fed: tensors that are copied, and cast to the engine's dtype.

        Raises RuntimeError if TensorRT fails.
        """
        placed = {n: t for n, t in blocks.items() if t.dtype == self.types[n] and t.is_contiguous()}
        copied = {n: t for n, t in (*blocks.items(), *fed.items()) if n in self.inputs and n not in placed}
        # a context has fixed addresses of tensors read in place, and fixed shapes of copied ones
        places = tuple((n, t.data_ptr(), *t.shape) for n, t in placed.items())
        key = places, tuple((n, *t.shape) for n, t in copied.items())
        run = self._runs.get(key)
        if run is None:
            shapes = {n: t.shape for n, t in copied.items()}
            run = self._runs[key] = self._create_run(rows, placed, shapes)
        for name, value in copied.items():
            run.inputs[name].copy_(value)
        if not run.context.execute_async_v3(current_stream(self.device)):
            raise RuntimeError("TensorRT failed; the error is in its log above")
        return run.outputs

    def clear(self) -> None:
        """Drop all contexts. No graph may hold one any more, and the device must have finished them."""
        self._runs.clear()

    def _create_run(
        self, rows: int, placed: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
    ) -> EngineRun:
        """Make a context with its inputs and outputs.

        rows: number of slots, or of sources in the batch.
        placed: tensors that the engine reads in place.
        shapes: shape of each input that is copied.

        Raises RuntimeError without GPU memory, or if the engine does not accept a shape.
        """
        import tensorrt as trt

        context = self.engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        profile = next(i for i, most in enumerate(self.buckets) if rows <= most)
        if context is None or not context.set_optimization_profile_async(
            profile, current_stream(self.device)
        ):
            raise RuntimeError("no GPU memory for another TensorRT context: use fewer slots")
        context.set_device_memory(self._scratch.data_ptr(), self._scratch.numel())
        inputs = {n: torch.zeros(s, dtype=self.types[n], device=self.device) for n, s in shapes.items()}
        tensors = {**placed, **inputs}
        assert set(tensors) == self.inputs
        for name, value in tensors.items():
            if not context.set_input_shape(name, tuple(value.shape)):
                raise RuntimeError(f"the engine does not accept {name} of shape {tuple(value.shape)}")
            context.set_tensor_address(name, value.data_ptr())
        outputs = {}
        for name in self.outputs:
            shape = tuple(context.get_tensor_shape(name))
            outputs[name] = torch.empty(shape, dtype=self.types[name], device=self.device)
            context.set_tensor_address(name, outputs[name].data_ptr())
        return EngineRun(context, inputs, outputs)
