"""DynamicConv and LightConv encoder-decoders ("Pay Less Attention", Wu et al. 2019).

What is computed, to the letter: REFERENCE.md sections 1 and 2. Parameter names are those of fairseq main.

A model is two pure functions: `encode` turns sources into memory, `step` feeds one token per hypothesis.
`decode` is the teacher-forced form of `step` for training and scoring. Dropout acts in training mode only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.config import SOURCE, MemorySpec, ModelConfig, StackConfig, StateSpec
from engine.kernels.reference import dynamic_conv, dynamic_conv_step
from engine.models.layers import Attention, Positions


@dataclass(frozen=True, slots=True)
class Dropout:
    """Rates used in training only. `weight` is DropConnect on the kernels (section 3)."""

    residual: float = 0.0
    inputs: float = 0.0
    relu: float = 0.0
    attention: float = 0.0
    weight: float = 0.0


class Step(NamedTuple):
    """What one decoding step leaves: features [slots, beams, dim], the new column [slots, beams, dim] of each
    state, and the cross-attention of the last layer [slots, beams, source]."""

    features: Tensor
    columns: dict[str, Tensor]
    attention: Tensor


class Conv(nn.Module):
    """The kernel of one convolution: [heads, K], the same at each step, or a function of the input."""

    def __init__(self, stack: StackConfig, width: int) -> None:
        super().__init__()
        self.heads, self.width = stack.heads, width
        self.dynamic, self.softmax = stack.conv_type == "dynamic", stack.weight_softmax
        if self.dynamic:
            self.weight_linear = nn.Linear(stack.conv_dim, stack.heads * width, bias=False)
        else:
            self.weight = nn.Parameter(torch.empty(stack.heads, 1, width))

    def taps(self, x: Tensor) -> Tensor:
        """x: [..., conv_dim]. Returns [..., heads, K] (dynamic) or [heads, K] (lightweight)."""
        if self.dynamic:
            logits: Tensor = self.weight_linear(x).unflatten(-1, (self.heads, self.width))
        else:
            logits = self.weight.squeeze(1)
        return F.softmax(logits, dim=-1) if self.softmax else logits


class ConvLayer(nn.Module):
    """What encoder and decoder layers share: the convolution sub-block and the feed-forward sub-block."""

    def __init__(self, stack: StackConfig, width: int, dropout: Dropout) -> None:
        super().__init__()
        self.pre, self.glu, self.rates = stack.normalize_before, stack.glu, dropout
        self.linear1 = nn.Linear(stack.embed_dim, stack.conv_dim * (2 if stack.glu else 1))
        self.conv = Conv(stack, width)
        self.linear2 = nn.Linear(stack.conv_dim, stack.embed_dim)
        self.fc1 = nn.Linear(stack.embed_dim, stack.ffn_dim)
        self.fc2 = nn.Linear(stack.ffn_dim, stack.embed_dim)

    def sublayer(self, x: Tensor, norm: nn.LayerNorm, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Residual connection with the norm before `f` or after the sum."""
        x = x + self._drop(f(norm(x) if self.pre else x), self.rates.residual)
        normed: Tensor = x if self.pre else norm(x)
        return normed

    def gate(self, x: Tensor) -> Tensor:
        """linear1 and GLU: [..., embed_dim] -> [..., conv_dim]. This is the convolution's input."""
        y: Tensor = self.linear1(self._drop(x, self.rates.inputs))
        return F.glu(y, dim=-1) if self.glu else y

    def taps(self, x: Tensor) -> Tensor:
        return self._drop(self.conv.taps(x), self.rates.weight)

    def feed_forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(self._drop(F.relu(self.fc1(x)), self.rates.relu))
        return y

    def _drop(self, x: Tensor, rate: float) -> Tensor:
        return F.dropout(x, rate) if self.training and rate else x


class EncoderLayer(ConvLayer):
    def __init__(self, stack: StackConfig, width: int, dropout: Dropout) -> None:
        super().__init__(stack, width, dropout)
        self.layer_norm1 = nn.LayerNorm(stack.embed_dim)
        self.layer_norm2 = nn.LayerNorm(stack.embed_dim)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x: [batch, source, dim]; real: [batch, source, 1], 1 for tokens and 0 for padding."""

        def convolve(x: Tensor) -> Tensor:
            # the mask sits right before the convolution, so padding acts as the zeros beyond the edges
            x = self.gate(x) * real
            y: Tensor = self.linear2(dynamic_conv(x, self.taps(x), self.conv.width // 2))
            return y

        x = self.sublayer(x, self.layer_norm1, convolve)
        return self.sublayer(x, self.layer_norm2, self.feed_forward)


class DecoderLayer(ConvLayer):
    def __init__(self, stack: StackConfig, width: int, dropout: Dropout) -> None:
        super().__init__(stack, width, dropout)
        self.conv_layer_norm = nn.LayerNorm(stack.embed_dim)
        self.encoder_attn = Attention(stack.embed_dim, stack.heads)
        self.encoder_attn_layer_norm = nn.LayerNorm(stack.embed_dim)
        self.final_layer_norm = nn.LayerNorm(stack.embed_dim)

    def forward(
        self,
        x: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        convolve: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x: [batch, queries, dim]. `convolve(inputs, taps)` is the full or the incremental convolution.

        Returns the layer's output, the convolution's inputs [batch, queries, conv_dim] (they are the state)
        and the attention [batch, queries, source].
        """
        column = attention = x

        def convolution(x: Tensor) -> Tensor:
            nonlocal column
            column = self.gate(x)
            y: Tensor = self.linear2(convolve(column, self.taps(column)))
            return y

        def attend(x: Tensor) -> Tensor:
            nonlocal attention
            context: Tensor
            context, attention = self.encoder_attn(x, keys, values, mask)
            return context

        x = self.sublayer(x, self.conv_layer_norm, convolution)
        x = self.sublayer(x, self.encoder_attn_layer_norm, attend)
        return self.sublayer(x, self.final_layer_norm, self.feed_forward), column, attention


class Encoder(nn.Module):
    def __init__(self, config: ModelConfig, dropout: Dropout) -> None:
        super().__init__()
        stack = config.encoder
        self.scale, self.rate = stack.embed_dim**0.5, dropout.residual
        self.embed_tokens = nn.Embedding(config.source_vocab, stack.embed_dim)
        if config.token_positions:
            self.embed_positions = Positions(
                config.max_source, stack.embed_dim, config.pad, learned=stack.learned_positions
            )
        self.layers = nn.ModuleList(EncoderLayer(stack, k, dropout) for k in stack.kernel_sizes)
        if stack.normalize_before:
            self.layer_norm = nn.LayerNorm(stack.embed_dim)

    def forward(self, tokens: Tensor, positions: Tensor, real: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embed_tokens.weight) * self.scale
        if hasattr(self, "embed_positions"):
            x = x + self.embed_positions(positions)
        if self.training:
            x = F.dropout(x, self.rate)
        for layer in self.layers:
            x = layer(x, real)
        normed: Tensor = self.layer_norm(x) if hasattr(self, "layer_norm") else x
        return normed


class Decoder(nn.Module):
    def __init__(self, config: ModelConfig, dropout: Dropout, shared: nn.Embedding | None) -> None:
        super().__init__()
        stack = config.decoder
        self.scale, self.rate, self.tied = stack.embed_dim**0.5, dropout.residual, config.share_output
        self.embed_tokens = shared or nn.Embedding(config.target_vocab, stack.token_dim)
        if stack.token_dim != stack.embed_dim:
            self.project_in_dim = nn.Linear(stack.token_dim, stack.embed_dim, bias=False)
        if config.token_positions:
            self.embed_positions = Positions(
                config.max_target, stack.embed_dim, config.pad, learned=stack.learned_positions
            )
        self.layers = nn.ModuleList(DecoderLayer(stack, k, dropout) for k in stack.kernel_sizes)
        if stack.normalize_before:
            self.layer_norm = nn.LayerNorm(stack.embed_dim)
        if stack.feature_dim != stack.embed_dim:
            self.project_out_dim = nn.Linear(stack.embed_dim, stack.feature_dim, bias=False)
        if not self.tied:
            self.output_projection = nn.Linear(stack.feature_dim, config.target_vocab, bias=False)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        memory: Mapping[str, Tensor],
        mask: Tensor,
        convolve: Callable[[int, Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """tokens: [batch, queries]; positions: broadcastable to them. `convolve(layer, inputs, taps)`.

        Returns features [batch, queries, dim], each layer's convolution inputs, the last layer's attention.
        """
        x = F.embedding(tokens, self.embed_tokens.weight) * self.scale
        if hasattr(self, "project_in_dim"):
            x = self.project_in_dim(x)
        if hasattr(self, "embed_positions"):
            x = x + self.embed_positions(positions)
        if self.training:
            x = F.dropout(x, self.rate)
        columns, attention = [], x
        for i, layer in enumerate(self.layers):
            keys, values = memory[f"keys.{i}"], memory[f"values.{i}"]
            x, column, attention = layer(x, keys, values, mask, lambda u, taps, i=i: convolve(i, u, taps))
            columns.append(column)
        if hasattr(self, "layer_norm"):
            x = self.layer_norm(x)
        if hasattr(self, "project_out_dim"):
            x = self.project_out_dim(x)
        return x, columns, attention

    def attentions(self) -> list[Attention]:
        return [m for m in self.modules() if isinstance(m, Attention)]

    def project(self, features: Tensor) -> Tensor:
        """Logits over the target vocabulary."""
        return F.linear(features, self.embed_tokens.weight if self.tied else self.output_projection.weight)


class DynamicConv(nn.Module):
    """The model. Also LightConv: `conv_type` of each side decides."""

    def __init__(self, config: ModelConfig, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.config = config
        rates = dropout or Dropout()
        self.encoder = Encoder(config, rates)
        self.decoder = Decoder(config, rates, self.encoder.embed_tokens if config.share_embeddings else None)

    @property
    def memory_spec(self) -> list[MemorySpec]:
        stack = self.config.decoder
        width = stack.embed_dim // stack.heads
        return [
            spec
            for i in range(stack.layers)
            for spec in (
                MemorySpec(f"keys.{i}", (stack.heads, width, SOURCE)),
                MemorySpec(f"values.{i}", (stack.heads, SOURCE, width)),
            )
        ]

    @property
    def state_spec(self) -> list[StateSpec]:
        stack = self.config.decoder
        return [
            StateSpec(f"conv.{i}", k - 1, stack.conv_dim) for i, k in enumerate(stack.kernel_sizes) if k > 1
        ]

    def encode(self, tokens: Tensor, positions: Tensor, real: Tensor) -> dict[str, Tensor]:
        """tokens: int [batch, source], padded anywhere; positions: int [source], 0 for the first; real: float
        [batch, source], 1 for tokens and 0 for padding. Returns memory by the names of `memory_spec`.
        """
        encoded = self.encoder(tokens, positions, real[:, :, None])
        memory = {}
        for i, attention in enumerate(self.decoder.attentions()):
            memory[f"keys.{i}"], memory[f"values.{i}"] = attention.memory(encoded)
        return memory

    def step(
        self,
        tokens: Tensor,
        positions: Tensor,
        memory: Mapping[str, Tensor],
        mask: Tensor,
        rings: Mapping[str, Tensor],
        index: Mapping[int, Tensor],
    ) -> Step:
        """Feed one token to every hypothesis.

        tokens: int [slots, beams]; positions: int [slots, 1], 0 at the first step; mask: float [slots,
        source], 0 or -inf; rings: [slots, window, beams, dim] by the names of `state_spec`; index: by
        window, int [slots, beams, window] (see `dynamic_conv_step`).
        """
        names = [f"conv.{i}" for i in range(self.config.decoder.layers)]

        def convolve(layer: int, inputs: Tensor, taps: Tensor) -> Tensor:
            window = self.config.decoder.kernel_sizes[layer] - 1
            return dynamic_conv_step(inputs, taps, rings.get(names[layer]), index.get(window))

        features, columns, attention = self.decoder(tokens, positions, memory, mask, convolve)
        kept = {n: c for n, c in zip(names, columns, strict=True) if n in rings}
        return Step(features, kept, attention)

    def decode(self, tokens: Tensor, memory: Mapping[str, Tensor], mask: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher-forced pass. tokens: int [batch, target], end-of-sentence first, padded right.

        Returns features [batch, target, dim] and attention [batch, target, source].
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device)

        def convolve(layer: int, inputs: Tensor, taps: Tensor) -> Tensor:
            return dynamic_conv(inputs, taps, self.config.decoder.kernel_sizes[layer] - 1)

        features, _, attention = self.decoder(tokens, positions, memory, mask, convolve)
        return features, attention

    def project(self, features: Tensor) -> Tensor:
        """Logits [..., target_vocab] of features [..., dim]."""
        return self.decoder.project(features)

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        """Teacher-forced logits [batch, target, target_vocab]; both inputs int, padded right with pad."""
        real = (source != self.config.pad).to(torch.float32)
        mask = torch.zeros_like(real).masked_fill(real == 0, float("-inf"))
        memory = self.encode(source, torch.arange(source.shape[1], device=source.device), real)
        return self.project(self.decode(previous, memory, mask)[0])

    def initialise(self, seed: int) -> None:
        """Random weights as the reference draws them (Xavier for projections, d^-0.5 for embeddings)."""
        torch.manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
                with torch.no_grad():
                    module.weight[self.config.pad].zero_()
            elif isinstance(module, Conv) and not module.dynamic:
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, Positions) and isinstance(module.weight, nn.Parameter):
                nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        if not self.config.share_output:
            nn.init.normal_(self.decoder.output_projection.weight, std=self.config.decoder.feature_dim**-0.5)
