"""TensorRT engines of a bundle on one CUDA device (`export/tensorrt.py` builds them; docs/tensorrt.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.bundle import Bundle
from engine.compiled import About, Target, find
from engine.config import ModelConfig
from engine.errors import BundleError, ConfigError
from engine.executor import StepInput, TopK
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor
from engine.specs import SOURCE, MemorySpec, StateSpec

HELD: Final = ("memory", "state", "cache")  # inputs that an executor keeps between steps


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one lane. encoder: None of a language model."""

    config: ModelConfig
    about: About
    encoder: Any
    step: Any
    device: str


def open_engines(bundle: Bundle, target: tuple[str, int, int], device: str) -> Engines:
    """The engines of a bundle for this GPU. target: precision, beams and slots.

    Raises ConfigError without TensorRT, and BundleError, with the command that builds them, where there are
    none that fit or TensorRT refuses them.
    """
    try:
        import tensorrt as trt
    except ImportError as error:
        raise ConfigError(f"no TensorRT ({error}); install it: pip install 'tensorrt>=10.9'") from None
    wanted = Target(torch.cuda.get_device_name(device), str(trt.__version__), *target)
    about, paths = find(bundle, wanted)
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))

    def read(path: Path) -> Any:
        engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise BundleError(f"{path}: TensorRT can't read it; run: {wanted.command(bundle)}")
        return engine

    encoder = read(paths["encoder"]) if "encoder" in paths else None
    return Engines(bundle.config, about, encoder, read(paths["step"]), device)


class Bound:
    """One engine with a context for each profile, run on torch's tensors and torch's current stream."""

    def __init__(self, engine: Any, buckets: tuple[int, ...], device: torch.device) -> None:
        import tensorrt as trt

        self.engine, self.buckets, self.device = engine, buckets, device
        self.contexts: dict[int, Any] = {}
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

    def run(self, rows: int, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """rows: slots or batch, which decides the profile. Feeds are cast to what the engine takes."""
        context, stream = self._context(rows), torch.cuda.current_stream(self.device).cuda_stream
        held = {name: feeds[name].to(self.types[name]).contiguous() for name in self.inputs}
        for name, value in held.items():
            if not context.set_input_shape(name, tuple(value.shape)):
                raise RuntimeError(f"the engine takes no {name} of {tuple(value.shape)}")
            context.set_tensor_address(name, value.data_ptr())
        found = {}
        for name in self.outputs:
            shape = tuple(context.get_tensor_shape(name))
            found[name] = torch.empty(shape, dtype=self.types[name], device=self.device)
            context.set_tensor_address(name, found[name].data_ptr())
        if not context.execute_async_v3(stream):
            raise RuntimeError("TensorRT failed; its own log says why")
        return found

    def _context(self, rows: int) -> Any:
        profile = next(i for i, most in enumerate(self.buckets) if rows <= most)
        if profile not in self.contexts:
            context = self.engine.create_execution_context()
            stream = torch.cuda.current_stream(self.device).cuda_stream
            if context is None or not context.set_optimization_profile_async(profile, stream):
                raise RuntimeError("no room on the GPU for another context of TensorRT")
            self.contexts[profile] = context
        return self.contexts[profile]


class TensorRTExecutor(SlotExecutor):
    """One lane."""

    def __init__(self, engines: Engines) -> None:
        device, about = torch.device(engines.device), engines.about
        self.bound = Bound(engines.step, about.slots, device)
        self.encoder = Bound(engines.encoder, about.slots, device) if engines.encoder else None
        memory, states = _specs(self.bound, engines.config)
        held = {self.bound.types[n] for n in self.bound.inputs if n.partition(".")[0] in HELD}
        # one type for all that is remembered; running sums stay fp32 in an engine of a narrower type
        arrays = Arrays(xp, device, torch.float32 if torch.float32 in held or not held else held.pop())
        super().__init__(engines.config, (memory, states), (about.beams, about.slots[-1]), arrays)
        self.k = about.k

    @torch.no_grad()
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Tensor]:
        assert self.encoder is not None
        positions = torch.from_numpy(batch.positions).to(self.device)
        parts = []
        for begin in range(0, len(batch.members), self.slots):
            feeds = {
                "tokens": torch.from_numpy(batch.tokens[begin : begin + self.slots]).to(self.device),
                "real": torch.from_numpy(batch.real[begin : begin + self.slots]).to(self.device),
            }
            parts.append(self.encoder.run(len(feeds["tokens"]), feeds | {"positions": positions}))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        k = min(inputs.k, self.limits.vocab)
        if k > self.k:
            raise ConfigError(
                f"{k} candidates asked for, the engine gives {self.k}: convoy export --candidates {k}"
            )
        past = self.history.advance(inputs.parents, inputs.positions)
        memory, mask = self.memory.view(n)
        feeds = {name: value for name, value in inputs._asdict().items() if name not in ("parents", "k")}
        if memory:
            feeds |= {"mask": mask} | {f"memory.{name}": block for name, block in memory.items()}
        feeds |= {f"state.{name}": ring for name, ring in past.rings.items()}
        feeds |= {f"index.{window}": rows for window, rows in past.rows.items()}
        if past.caches:
            feeds |= {"lineage": past.lineage} | {f"cache.{name}": c for name, c in past.caches.items()}
        found = self.bound.run(n, feeds)
        columns = {name.removeprefix("column."): c for name, c in found.items() if name.startswith("column.")}
        self.history.write(columns, inputs.positions)
        scores, ids = found["scores"][..., :k], found["ids"][..., :k]
        return TopK(scores, ids, found.get("attention") if attention else None)


def _specs(step: Bound, config: ModelConfig) -> tuple[list[MemorySpec], list[StateSpec]]:
    memory, states = [], []
    for i in range(step.engine.num_io_tensors):
        tensor = step.engine.get_tensor_name(i)
        shape = tuple(step.engine.get_tensor_shape(tensor))
        kind, _, name = tensor.partition(".")
        if kind == "memory":
            memory.append(MemorySpec(name, tuple(SOURCE if d < 0 else d for d in shape[1:])))
        elif kind == "state":
            states.append(StateSpec(name, shape[1], shape[3]))
        elif kind == "cache":
            states.append(StateSpec(name, config.max_target - 1, shape[1] * shape[4], shape[1]))
    return memory, states
