"""An ensemble: several models of one vocabulary, used as one model.

Probabilities and attention are averaged (docs/reference.md 6, item 1). Members may differ in architecture and
size; the names of their memory and state begin with the number of the member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.models.model import Model, Past, Step


class Ensemble(Model):
    """A model whose features are those of its members, concatenated along the last axis."""

    def __init__(self, config: ModelConfig, members: Sequence[Model]) -> None:
        super().__init__()
        self.config = config
        self.members = nn.ModuleList(members)
        self.memory_spec = [
            replace(s, name=f"{i}.{s.name}") for i, m in self._indexed() for s in m.memory_spec
        ]
        self.state_spec = [replace(s, name=f"{i}.{s.name}") for i, m in self._indexed() for s in m.state_spec]

    @property
    def packs(self) -> bool:
        return all(member.packs for _, member in self._indexed())

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        encoded = ((i, member.encode(tokens, positions, real)) for i, member in self._indexed())
        return {f"{i}.{name}": part for i, memory in encoded for name, part in memory.items()}

    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        # decode one token by every member; concatenate their features and average their attention
        columns: dict[str, Tensor] = {}
        features, attentions = [], []
        for i, member in self._indexed():
            member_past = past._replace(rings=parts_of(i, past.rings), caches=parts_of(i, past.caches))
            step = member.step(tokens, positions, parts_of(i, memory), mask, member_past)
            columns |= {f"{i}.{name}": column for name, column in step.columns.items()}
            features.append(step.features)
            attentions.append(step.attention)
        return Step(torch.cat(features, -1), columns, _mean(attentions))

    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        decoded = [member.decode(tokens, parts_of(i, memory), mask) for i, member in self._indexed()]
        return torch.cat([features for features, _ in decoded], -1), _mean(
            [weights for _, weights in decoded]
        )

    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return the logarithm of the members' mean probability."""
        parts = features.split([m.feature_dim for _, m in self._indexed()], -1)
        log_probs = [
            m.log_probs(part, temperature) for (_, m), part in zip(self._indexed(), parts, strict=True)
        ]
        return torch.logsumexp(torch.stack(log_probs), 0) - math.log(len(log_probs))

    @property
    def feature_dim(self) -> int:
        return sum(member.feature_dim for _, member in self._indexed())

    def initialise(self, seed: int) -> None:
        """Initialise random weights, with a seed for each member."""
        for i, member in self._indexed():
            member.initialise(seed + i)

    def _indexed(self) -> list[tuple[int, Model]]:
        return [(i, member) for i, member in enumerate(self.members) if isinstance(member, Model)]


def parts_of(member: int | str, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one member by its own names, without the prefix of the ensemble."""
    start = f"{member}."
    return {name.removeprefix(start): part for name, part in parts.items() if name.startswith(start)}


def _mean(attentions: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mean over the members, or None if no member has attention."""
    weights = [attention for attention in attentions if attention is not None]
    return torch.stack(weights).mean(0) if weights else None
