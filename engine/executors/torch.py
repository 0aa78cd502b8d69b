"""The readable reference executor: the model's own torch code, on the CPU or on one CUDA device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.executor import StepInput, TopK
from engine.executors.memory import EncoderBatch
from engine.executors.slots import Arrays, SlotExecutor
from engine.kernels.calls import Kernels
from engine.kernels.fused import Fused
from engine.models.model import Model, Past
from engine.models.select import Rules, select


class TorchExecutor(SlotExecutor):
    """One lane. The model is shared by the lanes of an engine. kernels: take the place of the reference's
    convolutions, attention and selection."""

    def __init__(
        self, model: Model, beams: int, slots: int, device: str = "cpu", kernels: Kernels | None = None
    ) -> None:
        specs = model.memory_spec, model.state_spec
        arrays = Arrays(xp, torch.device(device), torch.float32)
        super().__init__(model.config, specs, (beams, slots), arrays)
        self.model, self.unk = model.to(device).eval(), model.config.unk
        self.kernels = kernels

    def _mode(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.kernels is None else Fused(self.kernels)

    @torch.no_grad()
    def _encode(self, batch: EncoderBatch) -> Mapping[str, Tensor]:
        arrays = (batch.tokens, batch.positions, batch.real)
        with self._mode():
            return self.model.encode(*(torch.from_numpy(a).to(self.device) for a in arrays))

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        past = Past(*self.history.advance(inputs.parents, inputs.positions))
        memory, mask = self.memory.view(n)
        with self._mode():
            step = self.model.step(inputs.tokens, inputs.positions, memory, mask, past)
            log_probs = self.model.log_probs(step.features, inputs.temperature)
        rules = Rules(inputs.forced, inputs.banned, inputs.unk_penalty, inputs.eos_penalty)
        k = min(inputs.k, self.limits.vocab)
        if self.kernels is None:
            scores, ids = select(log_probs, rules, self.unk, self.eos, k)
        else:  # its log-softmax changes no log-probability
            given = [part.contiguous() for part in rules]
            scores, ids = self.kernels.select(log_probs.contiguous(), given, self.unk, self.eos, k)
        self.history.write(step.columns, inputs.positions)
        return TopK(scores, ids, step.attention if attention else None)


def memory_of(device: str) -> tuple[int, int]:
    """Bytes of a CUDA device: in use by anybody, and all there are."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free, total
