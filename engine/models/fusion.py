"""Shallow fusion: a translation model with a language model of its target vocabulary.

The score of a token is `log P(translation) + lm_weight * log P(language model)` (Gulcehre et al. 2015;
fairseq's `--lm-path` and `--lm-weight`, docs/reference.md 6, item 1). The weight is an input of
the step, one for each slot, like the temperature, which applies to the translation model only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from engine.bundle.config import ModelConfig
from engine.models.ensemble import parts_of
from engine.models.model import Model, Past, Step

LM_PREFIX: Final = "lm"  # prefix of the names of the language model's states


class Fusion(Model):
    """A model whose features are the translation model's followed by the language model's."""

    def __init__(self, config: ModelConfig, translation: Model, language_model: Model) -> None:
        super().__init__()
        self.config, self.translation, self.language_model = config, translation, language_model
        self.memory_spec = translation.memory_spec
        lm_states = (replace(spec, name=f"{LM_PREFIX}.{spec.name}") for spec in language_model.state_spec)
        self.state_spec = [*translation.state_spec, *lm_states]

    @property
    def packs(self) -> bool:
        return self.translation.packs

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        return self.translation.encode(tokens, positions, real)

    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        # decode one token of every hypothesis by both models, and concatenate their features
        step = self.translation.step(tokens, positions, memory, mask, past)
        lm_past = past._replace(
            rings=parts_of(LM_PREFIX, past.rings), caches=parts_of(LM_PREFIX, past.caches)
        )
        lm_step = self.language_model.step(tokens, positions, {}, mask, lm_past)
        columns = step.columns | {f"{LM_PREFIX}.{name}": column for name, column in lm_step.columns.items()}
        return Step(torch.cat([step.features, lm_step.features], -1), columns, step.attention)

    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        features, attention = self.translation.decode(tokens, memory, mask)
        lm_features, _ = self.language_model.decode(tokens, {}, mask)
        return torch.cat([features, lm_features], -1), attention

    def log_probs(
        self, features: Tensor, temperature: Tensor | None = None, lm_weight: Tensor | None = None
    ) -> Tensor:
        """Return the translation model's log-probabilities plus the weighted ones of the language model.

        The sums are not a distribution and must not be normalised.

        features: [slots, beams, dims of both models].
        temperature: [slots]; None: 1.
        lm_weight: [slots]; None: 0.
        """
        translation_features, lm_features = features.split(
            [self.translation.feature_dim, self.language_model.feature_dim], -1
        )
        scores = self.translation.log_probs(translation_features, temperature)
        if lm_weight is None:
            return scores
        return scores + self.language_model.log_probs(lm_features) * lm_weight[:, None, None]

    @property
    def feature_dim(self) -> int:
        return self.translation.feature_dim + self.language_model.feature_dim

    def initialise(self, seed: int) -> None:
        """Initialise random weights, with a seed for each model."""
        self.translation.initialise(seed)
        self.language_model.initialise(seed + 1)
