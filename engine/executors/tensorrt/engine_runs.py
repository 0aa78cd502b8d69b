"""One TensorRT engine on torch's tensors and torch's current stream, within steps that a graph may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class EngineRun:
    """An engine's run in fixed shapes on fixed places, as a CUDA graph needs it.

    inputs: places that are filled before each run; it reads the lane's blocks besides, where its key says.
    """

    context: Any
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


class EngineRuns:
    """An engine on a device, for shapes that come again and again.

    The first run of some shapes and blocks makes a context of TensorRT's, since each graph needs one of its
    own, and readies what a capture can't: a stepper runs each step as it is before it captures it
    (`engine.executors.cuda.graphs`). The contexts share their scratch memory, since runs of an engine in one
    lane never overlap.

    types: torch's, of every tensor by name.
    """

    def __init__(self, engine: Any, buckets: tuple[int, ...], device: torch.device) -> None:
        """buckets: the most rows (slots, or a batch) that each profile takes."""
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

    def __call__(self, rows: int, held: Mapping[str, Tensor], fed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs, overwritten by the next run of the same shapes. Raises RuntimeError when TensorRT refuses.

        rows: of the batch, or slots.
        held: blocks that stay where they are, read there if they have the engine's type.
        fed: copied, and cast to what the engine takes.
        """
        placed = {n: t for n, t in held.items() if t.dtype == self.types[n] and t.is_contiguous()}
        copied = {n: t for n, t in (*held.items(), *fed.items()) if n in self.inputs and n not in placed}
        places = tuple((n, t.data_ptr(), *t.shape) for n, t in placed.items())
        key = places, tuple((n, *t.shape) for n, t in copied.items())
        run = self._runs.get(key)
        if run is None:
            shapes = {n: t.shape for n, t in copied.items()}
            run = self._runs[key] = self._create_run(rows, placed, shapes)
        for name, value in copied.items():
            run.inputs[name].copy_(value)
        if not run.context.execute_async_v3(self._stream()):
            raise RuntimeError("TensorRT failed; its own log says why")
        return run.outputs

    def clear(self) -> None:
        """Forget all, once no graph holds any and the device is done with them."""
        self._runs.clear()

    def _create_run(
        self, rows: int, placed: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
    ) -> EngineRun:
        import tensorrt as trt

        context = self.engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        profile = next(i for i, most in enumerate(self.buckets) if rows <= most)
        if context is None or not context.set_optimization_profile_async(profile, self._stream()):
            raise RuntimeError("no room on the GPU for another context of TensorRT")
        context.set_device_memory(self._scratch.data_ptr(), self._scratch.numel())
        inputs = {n: torch.zeros(s, dtype=self.types[n], device=self.device) for n, s in shapes.items()}
        every = {**placed, **inputs}
        assert set(every) == self.inputs
        for name, value in every.items():
            if not context.set_input_shape(name, tuple(value.shape)):
                raise RuntimeError(f"the engine takes no {name} of {tuple(value.shape)}")
            context.set_tensor_address(name, value.data_ptr())
        outputs = {}
        for name in self.outputs:
            shape = tuple(context.get_tensor_shape(name))
            outputs[name] = torch.empty(shape, dtype=self.types[name], device=self.device)
            context.set_tensor_address(name, outputs[name].data_ptr())
        return EngineRun(context, inputs, outputs)

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream)
