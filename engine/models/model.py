"""Interface of every architecture: a model is two pure functions, with specs of the tensors they keep.

`encode` converts sources to memory, `step` feeds one token per hypothesis. `decode` is the teacher-forced
form of `step`, for training and scoring. Dropout acts in training mode only.
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
from engine.kernels.reference import project_among
from engine.models.layers import Positions


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout rates, for training only. `weight` is DropConnect on the kernels ("Pay Less Attention", section
    3); `symbols` replaces tokens by padding (SliceNet)."""

    residual: float = 0.0
    inputs: float = 0.0
    relu: float = 0.0
    attention: float = 0.0
    weight: float = 0.0
    symbols: float = 0.0


class Past(NamedTuple):
    """State of all hypotheses before a step. A column is the vector that a state keeps of one position.

    rings: ring buffers [slots, window, beams, dim] of the last columns, by name of a state without heads.
    rows: int tensors [slots, beams, window], by window: the rows of ring.flatten(0, 2) that hold the columns
        of each hypothesis, oldest first.
    caches: tensors [slots, heads, columns, beams, width], by name of a state with heads.
    lineage: attention mask [slots, beams, columns * beams] of the caches: 0 at the entries of a hypothesis
        and its ancestors, -inf elsewhere; None if no state has heads.
    """

    rings: Mapping[str, Tensor]
    rows: Mapping[int, Tensor]
    caches: Mapping[str, Tensor]
    lineage: Tensor | None

    def window(self, spec: StateSpec, stride: int = 1) -> Tensor:
        """Return the last columns of each hypothesis, oldest first: [slots, beams, window / stride, dim].

        spec: state to read.
        stride: distance between two columns that are returned.
        """
        rows = self.rows[spec.window] if stride == 1 else self.rows[spec.window][..., ::stride]
        return F.embedding(rows, self.rings[spec.name].flatten(0, 2))


class Step(NamedTuple):
    """Result of a decoding step.

    features: [slots, beams, dim].
    columns: new column [slots, beams, dim] of each state.
    attention: attention over the source [slots, beams, source]; None without a source.
    """

    features: Tensor
    columns: dict[str, Tensor]
    attention: Tensor | None


class Model(nn.Module, ABC):
    """An architecture. `config` determines everything except the weights; the specs list the kept tensors."""

    config: ModelConfig
    memory_spec: list[MemorySpec]
    state_spec: list[StateSpec]

    @abstractmethod
    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        """Encode sources, padded on any side.

        tokens: int [batch, source].
        positions: int [source], 0 for the first token; [1, source] for packed sources.
        real: float [batch, source], 1 for tokens and 0 for padding.

        Returns memory by the names of `memory_spec`, empty for a language model.
        """

    @property
    def packs(self) -> bool:
        """Whether `encode` accepts sources packed one after another in a batch of one, under
        `engine.kernels.fused.FusedMode` with their bounds."""
        return False

    @abstractmethod
    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        """Decode one token of every hypothesis.

        tokens: int [slots, beams].
        positions: int [slots, 1], 0 at the first step.
        memory: tensors by the names of `memory_spec`.
        mask: float [slots, source], 0 or -inf.
        past: state of the hypotheses, by the names of `state_spec`.
        """

    @abstractmethod
    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Decode whole targets at once (teacher forcing).

        tokens: int [batch, target]; the first is end-of-sentence.
        memory: tensors by the names of `memory_spec`.
        mask: float [batch, source], 0 or -inf.

        Returns features [batch, target, dim] and attention [batch, target, source].
        """

    @property
    @abstractmethod
    def feature_dim(self) -> int:
        """Width of the features."""

    @property
    def softmax_of_logits(self) -> bool:
        """Whether `log_probs` is exactly a log-softmax of logits, so that one kernel can compute it."""
        return False

    @abstractmethod
    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return log-probabilities [..., target_vocab].

        features: [..., dim].
        temperature: [slots]; None: 1.
        """

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        """Return teacher-forced log-probabilities [batch, target, vocab]; both inputs int, padded right."""
        real = (source != self.config.pad).to(torch.float32)
        mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
        memory = self.encode(source, torch.arange(source.shape[1], device=source.device), real)
        return self.log_probs(self.decode(previous, memory, mask)[0])

    def initialise(self, seed: int) -> None:
        """Initialise weights like the references: Xavier for projections, std d^-0.5 for embeddings."""
        torch.manual_seed(seed)
        for module in self.modules():
            if isinstance(module, Model) and module is not self:
                continue
            self.initialise_module(module)

    def initialise_module(self, module: nn.Module) -> None:
        """Initialise the weights of one module; architectures extend this for their own modules."""
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
    """A model with one projection from features to logits."""

    @property
    @abstractmethod
    def output(self) -> tuple[Tensor, Tensor | None]:
        """Weight [target_vocab, dim] and bias [target_vocab] or None of the output projection."""

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
        """Return `log_probs` of a step over a list of tokens for each slot; other tokens have probability 0.

        features: [slots, beams, dim].
        temperature: [slots].
        among: int [slots, W], listed tokens, padded with -1 (`project_among`).
        """
        heat = temperature[:, None, None]
        cooled, logits_heat = self._apply_temperature(features, heat)
        logits = project_among(cooled, self.output, among, self.config.eos)
        return F.log_softmax(logits if logits_heat is None else logits / logits_heat, dim=-1)

    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return log-probabilities by one projection and a log-softmax."""
        if temperature is None:
            return F.log_softmax(self.project(features), dim=-1)
        cooled, logits_heat = self._apply_temperature(features, temperature[:, None, None])
        logits = self.project(cooled)
        return F.log_softmax(logits if logits_heat is None else logits / logits_heat, dim=-1)

    def _apply_temperature(self, features: Tensor, heat: Tensor) -> tuple[Tensor, Tensor | None]:
        """Divide the features by the temperature where that equals a division of the (larger) logits.

        A bias belongs to undivided logits, and alphas to undivided features: then the logits must be divided.

        features: [slots, beams, dim].
        heat: temperatures, broadcastable to the features.

        Returns the features and the temperature by which the caller must divide the logits, or None.
        """
        divides_features = self.output[1] is None and self.config.quantization != "alphas"
        return (features / heat, None) if divides_features else (features, heat)
