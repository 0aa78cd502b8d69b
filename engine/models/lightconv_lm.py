"""The decoder-only DynamicConv and LightConv language model ("Pay Less Attention", section 5, Billion Word).

The decoder of `dynamicconv.py` without attention (docs/reference.md 3). Its source is only end-of-sentence
and is not read; text to continue or to score is a prefix of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.stacks import StackConfig
from engine.models.adaptive import AdaptiveInput, AdaptiveSoftmax, Rows
from engine.models.dynamicconv import Conv, ConvDecoderLayer
from engine.models.model import Dropout
from engine.models.residual import DecoderLayer, LayerContext
from engine.models.stack import Decoder, StackModel


class LightConvLM(StackModel):
    """A language model with dynamic or lightweight convolutions, by the mixer of the decoder."""

    DECODERS: ClassVar[Mapping[str, type[DecoderLayer]]] = {
        "dynamic": ConvDecoderLayer,
        "lightweight": ConvDecoderLayer,
    }

    def __init__(self, config: ModelConfig, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.config = config
        rates, stack, adaptive = dropout or Dropout(), config.decoder, config.adaptive
        assert isinstance(stack, StackConfig)
        kind, vocab = self.DECODERS[stack.mixer], config.target_vocab
        layers = [kind(LayerContext(stack, i, config, rates)) for i in range(stack.layers)]
        embedding: nn.Module | None = None
        if adaptive and adaptive.input:
            widths = stack.token_dim, stack.embed_dim
            embedding = AdaptiveInput(adaptive.input, vocab, widths, config.pad)
        softmax: AdaptiveSoftmax | None = None
        if adaptive and adaptive.softmax:
            tied = embedding if adaptive.tie_weights and isinstance(embedding, AdaptiveInput) else None
            softmax = AdaptiveSoftmax(
                adaptive.softmax, vocab, stack.feature_dim, tied, tie_projections=adaptive.tie_projections
            )
        self.decoder = Decoder(config, layers, rates, embedding, softmax)
        self.state_spec = [state for layer in layers for state in layer.states]
        self.memory_spec = []

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        return {}

    def log_probs(self, features: Tensor, temperature: Tensor | None = None) -> Tensor:
        """Return log-probabilities by the adaptive softmax, or by the projection if there is none."""
        softmax = self.decoder.adaptive_softmax
        if softmax is None:
            return super().log_probs(features, temperature)
        log_probs: Tensor = softmax(
            features if temperature is None else features / temperature[:, None, None]
        )
        return log_probs

    @property
    def feature_dim(self) -> int:
        assert isinstance(self.config.decoder, StackConfig)
        return self.config.decoder.feature_dim

    def initialise_module(self, module: nn.Module) -> None:
        super().initialise_module(module)
        if isinstance(module, Rows):
            module.initialise()
        elif isinstance(module, Conv) and not module.dynamic:
            nn.init.xavier_uniform_(module.weight)
