"""TensorRT engines of a bundle on one CUDA device (`export/tensorrt.py` builds them; docs/tensorrt.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.bundle import Bundle
from engine.compiled import About, Target, find
from engine.config import ModelConfig
from engine.errors import BundleError, ConfigError
from engine.executor import StepInput, TopK
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor, dtype_of_held
from engine.executors.trt_run import Capture, Captured, Launched
from engine.specs import SOURCE, MemorySpec, StateSpec


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


class TensorRTExecutor(SlotExecutor):
    """One lane. Steps are CUDA graphs once their shapes have come twice; encoders are launched."""

    def __init__(self, engines: Engines, capture: Capture | None = None) -> None:
        """capture: makes a CUDA graph of work that has run before; torch's by default."""
        device, about = torch.device(engines.device), engines.about
        self.run = Captured(engines.step, about.slots, device, capture or _torch_capture(engines.device))
        self.encoder = Launched(engines.encoder, about.slots, device) if engines.encoder else None
        memory, states = _specs(engines)
        types = {name: self.run.types[name] for name in self.run.inputs}
        arrays = Arrays(xp, device, dtype_of_held(types, torch.float32))
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
            parts.append(self.encoder(len(feeds["tokens"]), feeds | {"positions": positions}))
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
        fed = {name: value for name, value in inputs._asdict().items() if name not in ("parents", "k")}
        fed |= {f"index.{window}": rows for window, rows in past.rows.items()}
        held: dict[str, Tensor] = {f"state.{name}": ring for name, ring in self.history.rings.rings.items()}
        if memory:
            held |= {"mask": self.memory.mask}
            held |= {f"memory.{name}": block for name, block in self.memory.blocks.items()}
        if past.caches and self.history.caches is not None:
            fed["lineage"] = past.lineage
            held |= {f"cache.{name}": block for name, block in self.history.caches.blocks.items()}
        found = self.run(n, held, fed, self.pad)
        columns = {name.removeprefix("column."): c for name, c in found.items() if name.startswith("column.")}
        self.history.write(columns, inputs.positions)
        scores, ids = (
            found[name][..., :k].clone() for name in ("scores", "ids")
        )  # the next step's are there
        weights = found["attention"].clone() if attention and "attention" in found else None
        return TopK(scores, ids, weights)


def _torch_capture(device: str) -> Capture:
    from engine.executors.streams import CudaWork

    return CudaWork(device).capture


def _specs(engines: Engines) -> tuple[list[MemorySpec], list[StateSpec]]:
    memory, states, step = [], [], engines.step
    for i in range(step.num_io_tensors):
        tensor = step.get_tensor_name(i)
        shape = tuple(step.get_tensor_shape(tensor))
        kind, _, name = tensor.partition(".")
        if kind == "memory":
            memory.append(MemorySpec(name, tuple(SOURCE if d < 0 else d for d in shape[1:])))
        elif kind == "state":
            states.append(StateSpec(name, shape[1], shape[3]))
        elif kind == "cache":
            longest = engines.config.max_target - 1
            states.append(StateSpec(name, longest, shape[1] * shape[4], shape[1]))
    return memory, states
