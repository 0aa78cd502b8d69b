"""The readable reference executor: the model's own torch code, on the CPU or on one CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.executor import StepInput, TopK
from engine.executors.history import History
from engine.executors.memory import Ends, Memory, Staged, encoder_batches
from engine.models.dynamicconv import DynamicConv
from engine.models.select import select
from engine.types import Limits


class TorchExecutor:
    """One lane. See `engine.executor.Executor`. The model is shared by the lanes of an engine."""

    namespace: Any = xp

    def __init__(self, model: DynamicConv, beams: int, slots: int, device: str = "cpu") -> None:
        config = model.config
        self.beams, self.slots, self.pad, self.eos = beams, slots, config.pad, config.eos
        self.limits = Limits(beams, config.max_source, config.max_target - 1, config.target_vocab)
        self.model, self.unk, self.device = model.to(device).eval(), config.unk, torch.device(device)
        self.history = History(model.state_spec, slots, beams, xp, self.device, torch.float32)
        self.memory = Memory(model.memory_spec, slots, xp, self.device, torch.float32)

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]]) -> Staged:
        memory: list[dict[str, Tensor]] = [{} for _ in sources]
        for batch in encoder_batches(sources, Ends(self.pad, self.limits.source)):
            arrays = (batch.tokens, batch.positions, batch.real)
            outputs = self.model.encode(*(torch.from_numpy(a).to(self.device) for a in arrays))
            for row, i in enumerate(batch.members):
                memory[i] = {name: tensor[row] for name, tensor in outputs.items()}
        return Staged([len(s) for s in sources], memory)

    @torch.inference_mode()
    def place(self, encoded: Staged, i: int, slot: int) -> None:
        self.memory.place(slot, encoded.lengths[i], encoded.memory[i])
        self.history.clear(slot)

    @torch.inference_mode()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        index = self.history.advance(inputs.parents)
        memory, mask = self.memory.view(n)
        rings = {name: ring[:n] for name, ring in self.history.rings.items()}
        step = self.model.step(inputs.tokens, inputs.positions, memory, mask, rings, index)
        logits = self.model.project(step.features / inputs.temperature[:, None, None])
        k = min(inputs.k, self.limits.vocab)
        scores, ids = select(logits, inputs.forced, inputs.banned, inputs.unk_penalty, self.unk, k)
        self.history.write(step.columns)
        return TopK(scores, ids, step.attention if attention else None)

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        self.memory.move(source, target)
        self.history.move(source, target)
