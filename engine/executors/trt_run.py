"""One TensorRT engine on torch's tensors and torch's current stream: launched, or captured as CUDA graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # of work that has run before; what replays it
MOST: Final = 64  # shapes and places of a lane that are kept, the newest
ONCE: Final = 2  # a graph is captured when its shapes come for the second time


class Runs:
    """An engine on a device. types: torch's, of every tensor by name."""

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
        inputs = {n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT}
        self.inputs, self.outputs = inputs, [n for n in names if n not in inputs]

    def _profile(self, rows: int) -> int:
        return next(i for i, most in enumerate(self.buckets) if rows <= most)

    def _selected(self, context: Any, profile: int) -> Any:
        if context is None or not context.set_optimization_profile_async(profile, self._stream()):
            raise RuntimeError("no room on the GPU for another context of TensorRT")
        return context

    def _bind(self, context: Any, held: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Name the inputs' places; returns the outputs', which are new."""
        for name, value in held.items():
            if not context.set_input_shape(name, tuple(value.shape)):
                raise RuntimeError(f"the engine takes no {name} of {tuple(value.shape)}")
            context.set_tensor_address(name, value.data_ptr())
        found = {}
        for name in self.outputs:
            shape = tuple(context.get_tensor_shape(name))
            found[name] = torch.empty(shape, dtype=self.types[name], device=self.device)
            context.set_tensor_address(name, found[name].data_ptr())
        return found

    def _execute(self, context: Any) -> None:
        if not context.execute_async_v3(self._stream()):
            raise RuntimeError("TensorRT failed; its own log says why")

    def _stream(self) -> int:
        return int(torch.cuda.current_stream(self.device).cuda_stream)


class Launched(Runs):
    """With a context for each profile, for shapes that seldom come again."""

    def __init__(self, engine: Any, buckets: tuple[int, ...], device: torch.device) -> None:
        super().__init__(engine, buckets, device)
        self.contexts: dict[int, Any] = {}

    def __call__(self, rows: int, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Feeds are cast to what the engine takes."""
        profile = self._profile(rows)
        if profile not in self.contexts:
            self.contexts[profile] = self._selected(self.engine.create_execution_context(), profile)
        held = {name: feeds[name].to(self.types[name]).contiguous() for name in self.inputs}
        found = self._bind(self.contexts[profile], held)
        self._execute(self.contexts[profile])
        return found


@dataclass(eq=False, slots=True)
class Run:
    """An engine's run in fixed shapes on fixed places. inputs: places that are filled before each run; it
    reads the lane's blocks besides, where its key says. replay: its CUDA graph, once there is one."""

    context: Any
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    times: int = 0
    replay: Callable[[], None] | None = None


class Captured(Runs):
    """For shapes that come again and again: those of steps.

    A graph holds for one bucket of slots, one width of memory and of caches, one bucket of bans and one place
    of the lane's blocks; any other is a run of its own. The first time it is launched, which readies what a
    capture can't; the second time it is captured; from then on it is replayed. Where a capture is refused,
    all runs are launched. As TensorRT asks, each graph has a context of its own; they share their scratch
    memory, since runs of a lane never overlap.
    """

    def __init__(self, engine: Any, buckets: tuple[int, ...], device: torch.device, capture: Capture) -> None:
        super().__init__(engine, buckets, device)
        self.capture: Capture | None = capture
        self.runs: dict[Any, Run] = {}
        self.scratch = torch.empty(engine.device_memory_size_v2, dtype=torch.uint8, device=device)
        bans = [engine.get_tensor_profile_shape("banned", i)[2] for i in range(len(buckets))]
        self.bans = min(tuple(most)[2] for most in bans)

    def __call__(
        self, n: int, held: Mapping[str, Tensor], fed: Mapping[str, Tensor], pad: int
    ) -> dict[str, Tensor]:
        """Outputs of the first n slots, overwritten by the next run of the same shapes.

        held: blocks of all slots, read where they are if they have the engine's type. fed: [n, ...], copied.
        pad: fills up the bans.
        """
        profile = self._profile(n)
        slots = self.buckets[profile]
        placed = {name: block[:slots] for name, block in held.items() if block.dtype == self.types[name]}
        copied = dict(fed) | {name: block[:n] for name, block in held.items() if name not in placed}
        shapes = {name: self._room(name, value, slots) for name, value in copied.items()}
        places = [(name, value.data_ptr(), *value.shape) for name, value in placed.items()]
        key = slots, tuple(shapes.items()), tuple(places)
        run = self.runs.pop(key, None) or self._made(profile, placed, shapes)
        self.runs[key] = run  # the newest is last
        if len(self.runs) > MOST:
            self.runs.pop(next(iter(self.runs)))
        bans = copied.pop("banned")
        run.inputs["banned"][:, :, bans.shape[2] :] = pad
        run.inputs["banned"][:n, :, : bans.shape[2]] = bans
        for name, value in copied.items():
            run.inputs[name][:n] = value
        self._run(run)
        return {name: value[:n] for name, value in run.outputs.items()}

    def _room(self, name: str, value: Tensor, slots: int) -> tuple[int, ...]:
        """The shape of an input's place: all slots of the bucket, and bans by powers of two."""
        _, *rest = value.shape
        if name == "banned":
            rest[-1] = max(rest[-1], min(1 << (rest[-1] - 1).bit_length(), self.bans))
        return slots, *rest

    def _made(self, profile: int, placed: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> Run:
        import tensorrt as trt

        shared = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._selected(self.engine.create_execution_context(shared), profile)
        context.set_device_memory(self.scratch.data_ptr(), self.scratch.numel())
        # slots that are not in use compute as well: on zeros, and temperature 1
        inputs = {
            name: torch.zeros(shapes[name], dtype=self.types[name], device=self.device) for name in shapes
        }
        inputs["temperature"].fill_(1.0)
        every = {**placed, **inputs}
        assert set(every) == self.inputs
        return Run(context, inputs, self._bind(context, every))

    def _run(self, run: Run) -> None:
        run.times += 1
        if run.replay is None and run.times >= ONCE and self.capture is not None:
            try:
                run.replay = self.capture(lambda: self._execute(run.context))
            except RuntimeError as error:
                self.capture = None
                logger.warning("TensorRT's steps are launched, as they could not be captured: %s", error)
        if run.replay is None:
            self._execute(run.context)
        else:
            run.replay()
