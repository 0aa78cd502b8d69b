"""The readable reference executor: the model's own torch code, on the CPU or on one CUDA device."""

from __future__ import annotations

from collections.abc import Mapping

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.executor import StepInput, TopK
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor
from engine.models.dynamicconv import DynamicConv
from engine.models.select import select


class TorchExecutor(SlotExecutor):
    """One lane. The model is shared by the lanes of an engine."""

    def __init__(self, model: DynamicConv, beams: int, slots: int, device: str = "cpu") -> None:
        specs = model.memory_spec, model.state_spec
        arrays = Arrays(xp, torch.device(device), torch.float32)
        super().__init__(model.config, specs, (beams, slots), arrays)
        self.model, self.unk = model.to(device).eval(), model.config.unk

    @torch.no_grad()
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Tensor]:
        arrays = (batch.tokens, batch.positions, batch.real)
        return self.model.encode(*(torch.from_numpy(a).to(self.device) for a in arrays))

    @torch.no_grad()
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
