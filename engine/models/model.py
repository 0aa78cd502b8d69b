"""What every architecture offers: a model is two pure functions, and specs of what they keep.

`encode` turns sources into memory, `step` feeds one token per hypothesis. `decode` is the teacher-forced form
of `step`, for training and scoring. Dropout acts in training mode only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.specs import MemorySpec, StateSpec
from engine.models.layers import Positions
from engine.models.select import project_among


@dataclass(frozen=True, slots=True)
class Dropout:
    """Rates used in training only. `weight` is DropConnect on the kernels ("Pay Less
    Attention", section 3); `symbols` puts padding in place of tokens (SliceNet)."""

    residual: float = 0.0
    inputs: float = 0.0
    relu: float = 0.0
    attention: float = 0.0
    weight: float = 0.0
    symbols: float = 0.0


class Past(NamedTuple):
    """What hypotheses remember before a step.

    rings: by name of a state without heads, [slots, window, beams, dim].
    rows: by window, int [slots, beams, window], row of ring.flatten(0, 2) that holds each hypothesis's
        column, oldest first.
    caches: by name of a state with heads, [slots, heads, columns, beams, width].
    lineage: float [slots, beams, columns * beams], 0 where a cached entry is the hypothesis's own and -inf
        elsewhere; None when no state has heads.
    """

    rings: Mapping[str, Tensor]
    rows: Mapping[int, Tensor]
    caches: Mapping[str, Tensor]
    lineage: Tensor | None

    def window(self, spec: StateSpec, stride: int = 1) -> Tensor:
        """Return the columns of a ring that each hypothesis continues, oldest first.

        They are [slots, beams, window / stride, dim].

        stride: only every so many of them.
        """
        rows = self.rows[spec.window] if stride == 1 else self.rows[spec.window][..., ::stride]
        return F.embedding(rows, self.rings[spec.name].flatten(0, 2))


class Step(NamedTuple):
    """What one decoding step leaves: features [slots, beams, dim], the new column [slots, beams, dim] of each
    state, and the attention over the source [slots, beams, source]; None where there is no source."""

    features: Tensor
    columns: dict[str, Tensor]
    attention: Tensor | None


class Model(nn.Module, ABC):
    """An architecture. `config` fixes everything but the weights; specs say what executors hold."""

    config: ModelConfig
    memory_spec: list[MemorySpec]
    state_spec: list[StateSpec]

    @abstractmethod
    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        """Encode tokens, int [batch, source], padded anywhere.

        tokens: int [batch, source].
        positions: int [source], 0 for the first; of packed sources [1, source].
        real: float [batch, source], 1 for tokens and 0 for padding.

        Returns memory by the names of `memory_spec`; nothing for a language model.
        """

    @property
    def packs(self) -> bool:
        """Tell whether `encode` takes sources that lie packed one behind the other in a batch of one, under
        `engine.kernels.fused.FusedMode` with their bounds."""
        return False

    @abstractmethod
    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        """Feed one token to every hypothesis.

        tokens: int [slots, beams].
        positions: int [slots, 1], 0 at the first step.
        memory: tensors by the names of `memory_spec`.
        mask: float [slots, source], 0 or -inf.
        past: what `state_spec` names of each hypothesis.
        """

    @abstractmethod
    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Feed whole targets at once.

        tokens: int [batch, target], the first one end-of-sentence.
        memory: tensors by the names of `memory_spec`.
        mask: float [batch, source], 0 or -inf.

        Returns features [batch, target, dim] and attention [batch, target, source].
        """

    @property
    @abstractmethod
    def feature_dim(self) -> int:
        """Return the width of the features."""

    @property
    def softmax_of_logits(self) -> bool:
        """Tell whether `log_probs` is a log-softmax of logits and no more, so that a kernel may take it."""
        return False

    @abstractmethod
    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return log-probabilities [..., target_vocab] of features [..., dim].

        temperature: [slots].
        """

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        """Return teacher-forced log-probabilities [batch, target, vocab]; both inputs int, padded right."""
        real = (source != self.config.pad).to(torch.float32)
        mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
        memory = self.encode(source, torch.arange(source.shape[1], device=source.device), real)
        return self.log_probs(self.decode(previous, memory, mask)[0])

    def initialise(self, seed: int) -> None:
        """Draw random weights as the references draw them (Xavier for projections, d^-0.5 for embeddings)."""
        torch.manual_seed(seed)
        for module in self.modules():
            if isinstance(module, Model) and module is not self:
                continue
            self.initialise_module(module)

    def initialise_module(self, module: nn.Module) -> None:
        """Draw one module's own weights; architectures with others than these add theirs."""
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            with torch.no_grad():
                module.weight[self.config.pad].zero_()
        elif isinstance(module, Positions) and isinstance(module.weight, nn.Parameter):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)


class ProjectionModel(Model):
    """A model whose features become logits by one projection."""

    @property
    @abstractmethod
    def output(self) -> tuple[Tensor, Tensor | None]:
        """Return weight [target_vocab, dim] and bias [target_vocab], if any, of the output projection."""

    @property
    def feature_dim(self) -> int:
        return self.output[0].shape[1]

    @property
    def softmax_of_logits(self) -> bool:
        return self.config.adaptive is None or self.config.adaptive.softmax is None

    def project(self, features: Tensor) -> Tensor:
        """Return logits [..., target_vocab] of features [..., dim]."""
        return F.linear(features, *self.output)

    def log_probs_among(self, features: Tensor, temperature: Tensor, among: Tensor) -> Tensor:
        """Compute `log_probs` of a step over the tokens of each slot's list alone (see `project_among`).

        The others have probability 0.

        features: [slots, beams, dim].
        temperature: [slots].
        among: int [slots, W], the listed tokens, filled up with -1.
        """
        heat = temperature[:, None, None]
        cooled, logits_heat = self._apply_temperature(features, heat)
        logits = project_among(cooled, self.output, among, self.config.eos)
        return F.log_softmax(logits if logits_heat is None else logits / logits_heat, dim=-1)

    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        if temperature is None:
            return F.log_softmax(self.project(features), dim=-1)
        cooled, logits_heat = self._apply_temperature(features, temperature[:, None, None])
        logits = self.project(cooled)
        return F.log_softmax(logits if logits_heat is None else logits / logits_heat, dim=-1)

    def _apply_temperature(self, features: Tensor, heat: Tensor) -> tuple[Tensor, Tensor | None]:
        """Divide features by the temperature, or leave that to their logits; returns what is left to do.

        Features are smaller than the logits that they make. But a bias is of the logits, and alphas are of
        the features as they are.
        """
        whole = self.output[1] is None and self.config.quantization != "alphas"
        return (features / heat, None) if whole else (features, heat)
