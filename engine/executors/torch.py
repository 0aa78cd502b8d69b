"""The readable reference executor: the model's own torch code, on the CPU or on one CUDA device."""

from __future__ import annotations

from collections.abc import Mapping

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.executor import StepInput, TopK
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor
from engine.models.model import Model, Past
from engine.models.select import Rules, select


class TorchExecutor(SlotExecutor):
    """One lane. The model is shared by the lanes of an engine."""

    def __init__(self, model: Model, beams: int, slots: int, device: str = "cpu") -> None:
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
        past = Past(*self.history.advance(inputs.parents, inputs.positions))
        memory, mask = self.memory.view(n)
        step = self.model.step(inputs.tokens, inputs.positions, memory, mask, past)
        log_probs = self.model.log_probs(step.features, inputs.temperature)
        rules = Rules(inputs.forced, inputs.banned, inputs.unk_penalty, inputs.eos_penalty)
        k = min(inputs.k, self.limits.vocab)
        scores, ids = select(log_probs, rules, self.unk, self.eos, k)
        self.history.write(step.columns, inputs.positions)
        return TopK(scores, ids, step.attention if attention else None)


def memory_of(device: str) -> tuple[int, int]:
    """Bytes of a CUDA device: in use by anybody, and all there are."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free, total
