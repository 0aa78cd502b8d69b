"""The readable reference executor: the model's own torch code, on the CPU or on one CUDA device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

import array_api_compat.torch as xp
import torch
from torch import Tensor

from engine.backends import LaneSize
from engine.bundle.graph_io import LM_WEIGHT, step_fields
from engine.bundle.shortlist import Shortlist
from engine.bundle.specs import Specs
from engine.executors.base import Arrays, SlotExecutor
from engine.executors.history import SlotPast
from engine.executors.memory import EncoderBatch
from engine.kernels.calls import Kernels, PackedSequences
from engine.kernels.fused import FusedMode
from engine.kernels.modes import LogitsMode, NarrowMode, UnnormalisedMode
from engine.kernels.selection import PartialSelection
from engine.models.model import Model, Past, ProjectionModel
from engine.models.select import SelectionRules, select
from engine.search.executor import StepInput, TopK

DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class TorchExecutor(SlotExecutor):
    """One lane. The lanes of an engine share the model, which computes in the dtype of its parameters.

    kernels: kernels that replace the reference's convolutions, attention and selection; None for plain torch.
    unnormalised: the selection kernel normalises, so the model returns logits.
    """

    def __init__(
        self,
        model: Model,
        beams: int,
        slots: int,
        device: str = "cpu",
        kernels: Kernels | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        assert shortlist is None or isinstance(model, ProjectionModel)
        specs = Specs(model.memory_spec, model.state_spec)
        self.model, self.unk = model.to(device).eval(), model.config.unk
        self.dtype = next(model.parameters()).dtype
        arrays = Arrays(xp, torch.device(device), self.dtype)
        super().__init__(model.config, specs, LaneSize(beams, slots), arrays, shortlist)
        self.kernels = kernels
        # sums of several models' probabilities are normalised by the model itself
        self.unnormalised = kernels is not None and model.softmax_of_logits
        self.has_language_model = LM_WEIGHT in step_fields(model.config)

    def _enter_modes(
        self,
        stack: ExitStack,
        clock: Any = 0,
        *,
        weights: bool = False,
        packed: PackedSequences | None = None,
    ) -> FusedMode | None:
        """Enter the torch modes under which the model runs. Return the one that fuses operators, if any.

        stack: stack that the modes are entered on.
        clock: clock of the rings, used if it is on the device.
        weights: return attention weights too.
        packed: bounds of sources that are packed one behind the other.
        """
        if self.dtype != torch.float32:
            stack.enter_context(NarrowMode(self.dtype))
        if self.kernels is None:
            return None
        on_device = clock if isinstance(clock, Tensor) else None
        fused = FusedMode(self.kernels, self.dtype, on_device, weights=weights, packed=packed)
        stack.enter_context(fused)
        return fused

    def _encode(self, batch: EncoderBatch) -> Mapping[str, Tensor]:
        arrays = (batch.tokens, batch.positions, batch.real)
        tokens, positions, real = (self._upload(torch.from_numpy(a)) for a in arrays)
        return self._run_encoder(tokens, positions, real)

    @torch.no_grad()
    def _run_encoder(
        self, tokens: Tensor, positions: Tensor, real: Tensor, packed: PackedSequences | None = None
    ) -> dict[str, Tensor]:
        """Return the memory of sources, like `Model.encode`."""
        with ExitStack() as stack:
            fused = self._enter_modes(stack, packed=packed)
            memory = self.model.encode(tokens, positions, real)
            return fused.compute_all(memory) if fused else memory

    def _upload(self, array: Tensor) -> Tensor:
        return array.to(self.device)

    @torch.no_grad()
    def step(self, n: int, inputs: StepInput, *, attention: bool = False) -> TopK:
        past = self.history.advance(inputs.parents, inputs.positions)
        top, columns = self._forward(inputs, past, self.memory.view(n), attention)
        self.history.write(columns, inputs.positions)
        return top

    def _forward(
        self,
        inputs: StepInput,
        past: SlotPast,
        memory: tuple[dict[str, Tensor], Tensor],
        attention: bool,
        *,
        merged: bool = True,
    ) -> tuple[TopK, dict[str, Tensor]]:
        """Run one step of the model. Return its candidates, and the columns that no kernel has stored.

        inputs: inputs from the search.
        past: state of the slots.
        memory: blocks and mask of the memory.
        attention: return attention weights too.
        merged: return candidates as one list; otherwise `TopK.scanned` may replace them.
        """
        with ExitStack() as stack:
            fused = self._enter_modes(stack, self.history.rings.clock, weights=attention)
            step = self.model.step(inputs.tokens, inputs.positions, *memory, Past(*past))
            columns = fused.compute_all(step.columns) if fused else step.columns
            if self.unnormalised:
                stack.enter_context(UnnormalisedMode())
            stack.enter_context(LogitsMode(self.dtype, fused))
            logits = self._log_probs(step.features, inputs)
        top = self._select(inputs, logits, merged=merged)
        if attention and step.attention is not None:
            top = top._replace(attention=step.attention.float())
        appended = fused.appended_states if fused else set()
        states = past.rings | past.caches
        appended_names = {name for name, state in states.items() if state.data_ptr() in appended}
        columns = {
            name: column if name in self.history.rings.exact else column.to(self.dtype)
            for name, column in columns.items()
            if name not in appended_names
        }
        return top, columns

    def _log_probs(self, features: Tensor, inputs: StepInput) -> Tensor:
        """Return log-probabilities, or logits under `UnnormalisedMode`; with a shortlist -inf elsewhere."""
        among = self.listed(inputs)
        if among is not None:
            assert isinstance(self.model, ProjectionModel)
            return self.model.log_probs_among(features, inputs.temperature, among)
        weights = {LM_WEIGHT: inputs.lm_weight} if self.has_language_model else {}
        return self.model.log_probs(features, inputs.temperature, **weights)

    def listed(self, inputs: StepInput) -> Tensor | None:
        """Return the tokens that each slot may produce, int64 [slots, W], negative where there is none; None
        without a shortlist."""
        if self.shortlists is None:
            return None
        lists = self.shortlists.view(inputs.forced.shape[0], inputs.forced.cpu().numpy())
        return self._upload(torch.from_numpy(lists))

    def _select(self, inputs: StepInput, logits: Tensor, *, merged: bool) -> TopK:
        """Return the best tokens of each row of logits, without attention."""
        rules = SelectionRules(inputs.forced, inputs.banned, inputs.unk_penalty, inputs.eos_penalty)
        k = min(inputs.k, self.limits.vocab)
        # sums of two models' scores must not be normalised
        if self.kernels is None or self.has_language_model:
            return TopK(*select(logits.float(), rules, self.unk, self.eos, k), None)
        # the kernels' log-softmax changes no log-probability
        parts = [part.contiguous() for part in rules]
        if merged or logits.dtype != torch.float32:
            return TopK(*self.kernels.select(logits.contiguous(), parts, self.unk, self.eos, k), None)
        partial = self.kernels.scan(logits.contiguous(), parts, self.unk, self.eos, k)
        return (
            TopK(None, None, None, partial) if isinstance(partial, PartialSelection) else TopK(*partial, None)
        )
