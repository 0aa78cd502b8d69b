"""Residual encoder-decoders: token embeddings, a stack of layers on each side, an output projection.

DynamicConv, LightConv, the Transformer, averaged attention and full convolutions differ in one sub-block of a
layer, the mixer, which combines positions of a sequence. An architecture defines its layers; everything else
is in this module. docs/reference.md 1, 2 and 5 define the arithmetic. Parameters have fairseq's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.specs import SOURCE, MemorySpec
from engine.bundle.stacks import StackConfig
from engine.models.layers import Attention, Positions, RelativeBias
from engine.models.model import Dropout, Past, ProjectionModel, Step
from engine.models.residual import DecoderLayer, EncoderLayer, LayerContext, make_norm


class Encoder(nn.Module):
    def __init__(self, config: ModelConfig, layers: list[EncoderLayer], dropout: Dropout) -> None:
        super().__init__()
        stack = config.encoder
        assert isinstance(stack, StackConfig)
        self.scale, self.rate = stack.embed_dim**0.5 if config.scale_embeddings else 1.0, dropout.residual
        self.embed_tokens = nn.Embedding(config.source_vocab, stack.embed_dim)
        self.bias = nn.Parameter(torch.empty(stack.embed_dim)) if config.source_bias else None
        self.embed_positions, self.layernorm_embedding = _positions_and_norm(config, config.max_source, stack)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = _final_norm(stack)

    def forward(self, tokens: Tensor, positions: Tensor, real: Tensor) -> Tensor:
        """Return the encoded sources [batch, source, embed_dim].

        tokens: int [batch, source].
        positions: int [source].
        real: float [batch, source], 1 for tokens and 0 for padding.
        """
        x = F.embedding(tokens, self.embed_tokens.weight) * self.scale
        if self.bias is not None:
            x = x + self.bias
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        if self.training:
            x = F.dropout(x, self.rate)
        for layer in self.layers:
            x = layer(x, real)
        return x if self.layer_norm is None else self.layer_norm(x)


class Decoder(nn.Module):
    def __init__(
        self,
        config: ModelConfig,
        layers: list[DecoderLayer],
        dropout: Dropout,
        embedding: nn.Module | None = None,
        softmax: nn.Module | None = None,
    ) -> None:
        """config: configuration of the model.
        layers: layers of the decoder.
        dropout: rates for training.
        embedding: token embedding if it is shared or adaptive; None: a table of its own.
        softmax: adaptive softmax that replaces the output projection, or None.
        """
        super().__init__()
        stack = config.decoder
        assert isinstance(stack, StackConfig)
        self.scale, self.rate = stack.embed_dim**0.5 if config.scale_embeddings else 1.0, dropout.residual
        self.tied, self.zero_start = config.share_output, config.zero_start
        table = embedding is None or isinstance(embedding, nn.Embedding)
        self.embed_tokens = embedding or nn.Embedding(config.target_vocab, stack.token_dim)
        self.project_in_dim = _projection(stack.token_dim, stack.embed_dim) if table else None
        self.embed_positions, self.layernorm_embedding = _positions_and_norm(config, config.max_target, stack)
        self.layers = nn.ModuleList(layers)
        self.aligned = stack.layers - 1 if stack.alignment_layer is None else stack.alignment_layer
        if stack.alignment_heads:
            layers[self.aligned].encoder_attn.mean_heads = stack.alignment_heads
        self.layer_norm = _final_norm(stack)
        self.project_out_dim = _projection(stack.embed_dim, stack.feature_dim)
        self.adaptive_softmax = softmax
        self.output_projection: nn.Linear | None = None
        if softmax is None and not self.tied:
            self.output_projection = nn.Linear(stack.feature_dim, config.target_vocab, bias=False)
        self.output_bias = nn.Parameter(torch.empty(config.target_vocab)) if config.output_bias else None

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        memory: Mapping[str, Tensor],
        mask: Tensor | None,
        mix: Callable[[DecoderLayer, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor | None]:
        """Run the layers.

        tokens: int [batch, queries].
        positions: int, broadcastable to the tokens.
        memory: tensors by the names of `memory_spec`.
        mask: [batch, source], 0 or -inf; None: there is no source.
        mix: function that runs the mixer of a layer.

        Returns features [batch, queries, dim] and the attention of the alignment layer.
        """
        x = self.embed(tokens, positions)
        if self.training:
            x = F.dropout(x, self.rate)
        attention: Tensor | None = None
        for i, layer in enumerate(self.layers):
            source = (memory[f"keys.{i}"], memory[f"values.{i}"]) if memory else None
            x, weights = layer(x, source, mask, lambda y, layer=layer: mix(layer, y))
            attention = weights if i == self.aligned else attention
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        return x, attention

    def attentions(self) -> list[Attention]:
        """Return the attention of each layer over the source."""
        return [layer.encoder_attn for layer in self.layers if isinstance(layer, DecoderLayer)]

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the scaled embeddings [batch, queries, dim] of tokens, with their positions and norm."""
        x: Tensor = self.embed_tokens(tokens) * self.scale
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.zero_start:
            x = torch.where((positions > 0)[..., None], x, 0.0)
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return x

    @property
    def output(self) -> tuple[Tensor, Tensor | None]:
        projection: Any = self.embed_tokens if self.tied else self.output_projection
        return projection.weight, self.output_bias


def _positions_and_norm(
    config: ModelConfig, positions: int, stack: StackConfig
) -> tuple[Positions | None, nn.LayerNorm | None]:
    """Return the position embedding of a side and the norm of the embeddings, each None if unused."""
    table = Positions(config, positions, stack) if config.token_positions else None
    return table, nn.LayerNorm(stack.embed_dim, eps=stack.norm_eps) if stack.embedding_norm else None


def _final_norm(stack: StackConfig) -> nn.LayerNorm | nn.RMSNorm | None:
    """Return the norm after the last layer; None if norms follow the sub-blocks or it is switched off."""
    ends = stack.normalize_before and stack.final_norm
    return make_norm(stack.embed_dim, stack.norm_eps, rms=stack.rms_norm) if ends else None


def _relatives(stack: StackConfig, *, causal: bool) -> list[RelativeBias | None]:
    """Return the bias by distance of each layer's self-attention: shared, one for each layer, or None."""
    span = stack.relative_span  # largest distance with a bias of its own
    if not span:
        return [None] * stack.layers
    biases = [RelativeBias(stack.heads, 0 if causal else -span, span) for _ in range(stack.layers)]
    return list(biases) if stack.relative_each else [biases[0]] * stack.layers


def _projection(width: int, target_width: int) -> nn.Linear | None:
    """Return a projection between two widths, or None if they are equal."""
    return None if width == target_width else nn.Linear(width, target_width, bias=False)


class StackModel(ProjectionModel):
    """A model with a residual decoder, with or without an encoder."""

    decoder: Decoder

    def step(
        self, tokens: Tensor, positions: Tensor, memory: Mapping[str, Tensor], mask: Tensor, past: Past
    ) -> Step:
        columns: dict[str, Tensor] = {}

        def mix(layer: DecoderLayer, x: Tensor) -> Tensor:
            y, new = layer.mix_step(x, positions, past)
            columns.update(new)
            return y

        features, attention = self.decoder(tokens, positions, memory, mask, mix)
        return Step(features, columns, attention)

    def decode(
        self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        decoded: tuple[Tensor, Tensor | None] = self.decoder(
            tokens, positions, memory, mask, lambda layer, x: layer.mix(x)
        )
        return decoded

    @property
    def output(self) -> tuple[Tensor, Tensor | None]:
        return self.decoder.output

    def initialise(self, seed: int) -> None:
        super().initialise(seed)
        projection = self.decoder.output_projection
        if projection is not None:  # initialised like the embeddings, not like the other projections
            nn.init.normal_(projection.weight, std=projection.weight.shape[1] ** -0.5)

    def initialise_module(self, module: nn.Module) -> None:
        """Initialise a module as in `Model`, the biases of each side to zero, and biases by distance."""
        super().initialise_module(module)
        if isinstance(module, RelativeBias):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        if isinstance(module, Encoder) and module.bias is not None:
            nn.init.zeros_(module.bias)
        elif isinstance(module, Decoder) and module.output_bias is not None:
            nn.init.zeros_(module.output_bias)


class EncoderDecoder(StackModel):
    """A residual encoder-decoder. A subclass defines the layer class of each mixer."""

    ENCODERS: ClassVar[Mapping[str, type[EncoderLayer]]]
    DECODERS: ClassVar[Mapping[str, type[DecoderLayer]]]

    def __init__(self, config: ModelConfig, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.config = config
        rates = dropout or Dropout()
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, StackConfig)
        assert isinstance(decoder, StackConfig)
        encoder_class, decoder_class = self.ENCODERS[encoder.mixer], self.DECODERS[decoder.mixer]
        encoder_biases, decoder_biases = _relatives(encoder, causal=False), _relatives(decoder, causal=True)
        encoder_layers = [
            encoder_class(LayerContext(encoder, i, config, rates, bias))
            for i, bias in enumerate(encoder_biases)
        ]
        decoder_layers = [
            decoder_class(LayerContext(decoder, i, config, rates, bias))
            for i, bias in enumerate(decoder_biases)
        ]
        self.encoder = Encoder(config, encoder_layers, rates)
        shared = self.encoder.embed_tokens if config.share_embeddings else None
        self.decoder = Decoder(config, decoder_layers, rates, shared)
        self.state_spec = [state for layer in decoder_layers for state in layer.states]
        width = decoder.attention_width // decoder.heads
        self.memory_spec = [
            spec
            for i in range(decoder.layers)
            for spec in (
                MemorySpec(f"keys.{i}", (decoder.heads, width, SOURCE)),
                MemorySpec(f"values.{i}", (decoder.heads, SOURCE, width)),
            )
        ]

    @property
    def packs(self) -> bool:
        return all(isinstance(layer, EncoderLayer) and layer.packs for layer in self.encoder.layers)

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        # encode sources, and return keys and values of each decoder layer
        encoded = self.encoder(tokens, positions, real)
        memory = {}
        for i, attention in enumerate(self.decoder.attentions()):
            memory[f"keys.{i}"], memory[f"values.{i}"] = attention.memory(encoded)
        return memory
