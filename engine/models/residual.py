"""Layers of residual stacks: a mixer, attention over the source in a decoder, and a feed-forward.

An architecture defines the mixer, which combines positions of a sequence (docs/reference.md 1, 2 and 5).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.config import ModelConfig
from engine.bundle.specs import StateSpec
from engine.bundle.stacks import StackConfig
from engine.kernels.reference import add_norm
from engine.models.layers import Attention, RelativeBias, activation
from engine.models.model import Dropout, Past


class LayerContext(NamedTuple):
    """Arguments of a layer: the stack of its side, the layer's number there, the model's configuration,
    dropout rates, and the bias that self-attention adds by distance, which layers may share."""

    stack: StackConfig
    number: int
    config: ModelConfig
    dropout: Dropout
    relative: RelativeBias | None = None

    @property
    def width(self) -> int:
        """Kernel width of the layer; 0: it sees all positions."""
        return self.stack.kernel_sizes[self.number]


class Residual(nn.Module):
    """Base of all layers: residual sub-blocks with their norms, and the feed-forward sub-block."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        stack = context.stack
        self.pre, self.rates, self.eps = stack.normalize_before, context.dropout, stack.norm_eps
        self.activation, self.rms = activation(stack.activation), stack.rms_norm
        self.fc1 = nn.Linear(stack.embed_dim, stack.ffn_dim, bias=stack.biases)
        gated, shape = stack.ffn_gate, (stack.embed_dim, stack.ffn_dim)
        self.ffn_gate = nn.Linear(*shape, bias=stack.biases) if gated else None
        self.fc2 = nn.Linear(stack.ffn_dim, stack.embed_dim, bias=stack.biases)

    def norm(self, dim: int) -> nn.LayerNorm | nn.RMSNorm:
        return make_norm(dim, self.eps, rms=self.rms)

    def sublayer(self, x: Tensor, norm: nn.LayerNorm | nn.RMSNorm, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a sub-block with its residual connection, and the norm before `f` or after the sum.

        x: [batch, time, dim].
        norm: norm of the sub-block.
        f: function of the sub-block.
        """
        y = self.drop(f(norm(x) if self.pre else x), self.rates.residual)
        if self.pre:
            return x + y
        if isinstance(norm, nn.RMSNorm):
            summed: Tensor = norm(x + y)
            return summed
        return add_norm(x, y, norm.weight, norm.bias, norm.eps)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Apply fc1, the activation, which may gate, and fc2 to x [batch, time, dim]."""
        inner = self.fc1(x)
        gate = self.ffn_gate
        inner = self.activation(inner) if gate is None else self.activation(gate(x)) * inner
        y: Tensor = self.fc2(self.drop(inner, self.rates.relu))
        return y

    def drop(self, x: Tensor, rate: float) -> Tensor:
        """Apply dropout in training."""
        return F.dropout(x, rate) if self.training and rate else x


class EncoderLayer(Residual):
    """A mixer and a feed-forward. A subclass adds `mix` and its parameters."""

    @property
    def packs(self) -> bool:
        """Whether the layer accepts sequences packed one after another, because it combines positions only in
        `dynamic_conv` and `attend_whole`, which `FusedMode` limits to each sequence."""
        return False

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.layer_norm1 = self.norm(context.stack.embed_dim)
        self.layer_norm2 = self.norm(context.stack.embed_dim)

    @abstractmethod
    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        """Combine positions of the source.

        x: [batch, source, dim].
        real: [batch, source], 1 for tokens and 0 for padding.
        """

    def mixer_sublayer(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply the sub-block of the mixer: `mix` with its residual connection and norm."""
        return self.sublayer(x, self.layer_norm1, mix)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = self.mixer_sublayer(x, lambda y: self.mix(y, real))
        return self.sublayer(x, self.layer_norm2, self.feed_forward)


class DecoderLayer(Residual):
    """A causal mixer, attention over the source if there is one, and a feed-forward.

    A subclass adds the mixer: its parameters, its `states`, and its full and incremental forms.
    """

    states: list[StateSpec]  # state of the mixer for each hypothesis

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        stack, encoder = context.stack, context.config.encoder
        self.states = []
        self.conv_layer_norm = self.norm(stack.embed_dim)  # norm of any mixer, under LightConv's name
        if encoder is not None:
            self.encoder_attn = Attention(
                stack.embed_dim,
                stack.heads,
                encoder.embed_dim,
                context.dropout.attention,
                bias=stack.biases,
                inner=stack.attention_width,
            )
            self.encoder_attn_layer_norm = self.norm(stack.embed_dim)
        self.final_layer_norm = self.norm(stack.embed_dim)

    @abstractmethod
    def mix(self, x: Tensor) -> Tensor:
        """Combine each position of x [batch, target, dim] with itself and all earlier ones."""

    @abstractmethod
    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute `mix` for one new position.

        x: [slots, beams, dim].
        positions: int [slots, 1].
        past: state of the hypotheses, by the names of `states`.

        Returns the output at this position and the new column [slots, beams, dim] of each of `states`.
        """

    def mixer_sublayer(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply the sub-block of the mixer: `mix` with its residual connection and norm."""
        return self.sublayer(x, self.conv_layer_norm, mix)

    def forward(
        self,
        x: Tensor,
        memory: tuple[Tensor, Tensor] | None,
        mask: Tensor | None,
        mix: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor | None]:
        """Run the layer.

        x: [batch, queries, dim].
        memory: keys and values of the source, or None.
        mask: [batch, source], 0 or -inf; None: there is no source.
        mix: function that runs the mixer.

        Returns the layer's output and the attention [batch, queries, source].
        """
        attention: Tensor | None = None

        def attend(x: Tensor) -> Tensor:
            """Return the context, and keep the attention for the result of the layer."""
            nonlocal attention
            assert memory is not None
            assert mask is not None
            context: Tensor
            context, attention = self.encoder_attn(x, *memory, mask)
            return context

        x = self.mixer_sublayer(x, mix)
        if memory is not None:
            x = self.sublayer(x, self.encoder_attn_layer_norm, attend)
        return self.sublayer(x, self.final_layer_norm, self.feed_forward), attention


def make_norm(dim: int, eps: float, *, rms: bool) -> nn.LayerNorm | nn.RMSNorm:
    """Return a norm layer.

    dim: width of the inputs.
    eps: constant added to the variance.
    rms: divide by the root of the mean square, without biases.
    """
    return nn.RMSNorm(dim, eps=eps) if rms else nn.LayerNorm(dim, eps=eps)
