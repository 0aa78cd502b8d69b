"""One lane on TensorRT engines, which `export/graphs/tensorrt.py` builds (docs/tensorrt.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.backends import LaneSize
from engine.bundle.bundle import Bundle
from engine.bundle.config import ModelConfig
from engine.bundle.engines import EngineDescription, Target, find
from engine.bundle.graph_io import history_inputs, lane_dtype, lane_inputs, specs_of, step_fields
from engine.bundle.specs import MemorySpec, Specs, StateSpec
from engine.errors import BundleError, ConfigError
from engine.executors.base import Arrays
from engine.executors.cuda.captured_slots import CapturedSlots
from engine.executors.cuda.encoders import Encoders
from engine.executors.cuda.stepper import CapturedStepper, open_stepper
from engine.executors.cuda.streams import LaneStreams
from engine.executors.memory import EncoderBatch
from engine.executors.tensorrt.engine_runs import EngineRuns
from engine.kernels.calls import Kernels
from engine.search.executor import StepInput, TopK

# initial source positions and target columns of the blocks, which engines read whole
INITIAL_POSITIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one lane.

    about: description of the engines in the bundle.
    encoder: None for a language model.
    """

    config: ModelConfig
    about: EngineDescription
    encoder: Any
    step: Any
    device: str


def open_engines(bundle: Bundle, target: tuple[str, int, int], device: str) -> Engines:
    """Open the engines of a bundle for a GPU.

    bundle: bundle with the engines.
    target: precision, beams and slots.
    device: "cuda", "cuda:1", ...

    Raises ConfigError without TensorRT; BundleError, with the command that builds engines, if none of them
    fits or TensorRT can't read them.
    """
    try:
        import tensorrt as trt
    except ImportError as error:
        raise ConfigError(f"no TensorRT ({error}); install it: pip install 'tensorrt>=10.9'") from None
    build_target = Target(torch.cuda.get_device_name(device), str(trt.__version__), *target)
    about, paths = find(bundle, build_target)
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))

    def read(path: Path) -> Any:
        with torch.cuda.device(device) if device.startswith("cuda") else nullcontext():
            engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise BundleError(f"{path}: TensorRT can't read it; run: {build_target.command(bundle)}")
        return engine

    encoder = read(paths["encoder"]) if "encoder" in paths else None
    return Engines(bundle.config, about, encoder, read(paths["step"]), device)


class TensorRTExecutor(CapturedSlots):
    """One lane whose captured steps run a TensorRT engine instead of the model in torch.

    Engines read whole blocks, so a bucket of positions or columns is always as large as the block.
    """

    def __init__(
        self, engines: Engines, streams: LaneStreams, kernels: Kernels | None = None, *, warm: bool = False
    ) -> None:
        """Make a lane, with the arguments of `engine.executors.cuda.executor.CapturedExecutor`."""
        device, about = torch.device(engines.device), engines.about
        with streams.decoding():
            self._engine = EngineRuns(engines.step, about.slots, device)
            self._encoder = EngineRuns(engines.encoder, about.slots, device) if engines.encoder else None
            memory, states = _specs(engines)
            types = {name: self._engine.types[name] for name in self._engine.inputs}
            arrays = Arrays(xp, device, lane_dtype(types, torch.float32))
            lane = LaneSize(about.beams, about.slots[-1])
            super().__init__(engines.config, Specs(memory, states), lane, arrays)
            self.k, self.kernels, self._cleared = about.k, kernels, 0
            self._step_fields = step_fields(engines.config)
            self._begin(streams, self._run_encoder, arrays.dtype, INITIAL_POSITIONS, warm=warm)
        most = about.slots[-1]  # sources of an encoder batch
        assert isinstance(self.encoders, Encoders)
        self.encoders.batch_sizes = sorted({min(size, most) for size in self.encoders.batch_sizes})

    def width(self, source: int) -> int:
        return max(super().width(source), self.memory.width)

    def columns(self, steps: int) -> int:
        caches = self.history.caches
        return 0 if caches is None else max(super().columns(steps), int(caches.writers.shape[2]))

    def common(self) -> Iterable[tuple[int, int]]:
        return [(self.width(1), self.columns(0))]

    def _encode(self, batch: EncoderBatch) -> Mapping[str, Tensor]:
        arrays = (batch.tokens, batch.positions, batch.real)
        return self._run_encoder(*(self.streams.to_device(torch.from_numpy(a)) for a in arrays))

    @torch.no_grad()
    def _run_encoder(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        assert self._encoder is not None
        return self._encoder(len(tokens), {}, {"tokens": tokens, "positions": positions, "real": real})

    def run(
        self, inputs: StepInput, width: int, columns: int, attention: bool, *, rings_advanced: bool = False
    ) -> TopK:
        k = min(inputs.k, self.limits.vocab)
        if k > self.k:
            raise ConfigError(
                f"{k} candidates requested, the engine returns {self.k}; run: convoy export --candidates {k}"
            )
        if self._cleared != self.generation:  # blocks have moved, and their graphs were dropped
            self._engine.clear()
            self._cleared = self.generation
        n = inputs.tokens.shape[0]
        past = self.history.advance(inputs.parents, inputs.positions, columns, rings_advanced=rings_advanced)
        caches = {} if self.history.caches is None else self.history.caches.blocks
        blocks = lane_inputs(self.memory.blocks, self.memory.mask, self.history.rings.rings, caches)
        fed = {name: getattr(inputs, name) for name in self._step_fields}
        fed |= history_inputs(past.rows, past.lineage)
        outputs = self._engine(n, {name: block[:n] for name, block in blocks.items()}, fed)
        new = {name.removeprefix("column."): c for name, c in outputs.items() if name.startswith("column.")}
        self.history.store(new, inputs.positions, rings_advanced=rings_advanced)
        scores, ids = (outputs[name][..., :k].contiguous() for name in ("scores", "ids"))
        return TopK(scores, ids, outputs.get("attention") if attention else None)

    def stepper(self) -> CapturedStepper:
        return open_stepper(self)


def _specs(engines: Engines) -> tuple[Sequence[MemorySpec], Sequence[StateSpec]]:
    step = engines.step
    names = [step.get_tensor_name(i) for i in range(step.num_io_tensors)]
    shapes = [(name, tuple(step.get_tensor_shape(name))) for name in names]
    return specs_of(shapes, engines.config.max_target - 1)
