"""Averaged attention networks (Zhang, Xiong and Su 2018); docs/models.md has the configurations.

A position reads the average of the inputs up to itself (decoder) or of all inputs (encoder), through an
optional feed-forward and a gate. The fields of `StackConfig` cover the authors' model, Marian's, and the
model of Table 3 of "Pay Less Attention".

Marian's `--transformer-aan-depth D` of width W is `average_depth` D - 1 of `average_ffn` W (D = 1: width 0),
without `average_projection` if W is the width of the model; its gates are "separate", or "none".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.models.layers import activation
from engine.models.model import Past
from engine.models.residual import DecoderLayer, EncoderLayer, LayerContext, Residual
from engine.models.stack import EncoderDecoder
from engine.models.transformer import AttentionDecoderLayer, AttentionEncoderLayer


class AverageBlock(Residual):
    """Norm, feed-forward and gate of an average.

    With `normalize_before` the average is normalised, and not the input.
    """

    NORM: ClassVar[str]  # name of the sub-block's norm

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        stack = context.stack
        dim, width = stack.embed_dim, stack.average_ffn
        self.average_activation, self.gate = activation(stack.average_activation), stack.gate
        if stack.normalize_before and not stack.average_norm:
            setattr(self, self.NORM, None)
        self.average_hidden: nn.ModuleList | None = None
        self.average_out: nn.Linear | None = None
        if width:
            widths = [dim] + [width] * stack.average_depth
            self.average_hidden = nn.ModuleList(
                nn.Linear(before, after) for before, after in zip(widths, widths[1:], strict=False)
            )
            if stack.average_projection:
                self.average_out = nn.Linear(width, dim)
        if self.gate == "joint":
            self.gates = nn.Linear(2 * dim, 2 * dim)
        elif self.gate == "separate":
            self.input_gate, self.forget_gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def mixer_sublayer(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """Add `mix` of x to x, and normalise the sum unless `mix` normalises the average."""
        x = x + self.drop(mix(x), self.rates.residual)
        return x if self.pre else self._apply_norm(x)

    def position_forward(self, average: Tensor) -> Tensor:
        """Apply the norm and the feed-forward, if the model has them, to an average [..., dim]."""
        y = average
        if self.pre:
            y = self._apply_norm(y)
        for layer in self.average_hidden or ():
            y = self.drop(self.average_activation(layer(y)), self.rates.relu)
        return y if self.average_out is None else self.average_out(y)

    def _apply_norm(self, x: Tensor) -> Tensor:
        norm: nn.LayerNorm | None = getattr(self, self.NORM)
        return x if norm is None else norm(x)

    def apply_gate(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the gated sum of the input x and its average y after `position_forward`, both [..., dim]."""
        if self.gate == "none":
            return y
        if self.gate == "joint":
            logits: Tensor = self.gates(torch.cat([x, y], -1))
            x_gate, y_gate = logits.split([x.shape[-1], x.shape[-1]], -1)
        else:
            x_gate, y_gate = self.input_gate(x), self.forget_gate(y)
        return torch.sigmoid(x_gate) * x + torch.sigmoid(y_gate) * y


class AverageEncoderLayer(AverageBlock, EncoderLayer):
    NORM: ClassVar = "layer_norm1"

    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        """Gate each position with the average of all tokens."""
        # ONNX Runtime's cumulative sum adds in a fixed order; its ReduceSum depends on the batch size
        total = (x * real[:, :, None]).cumsum(1)[:, -1:]
        average = total / real.sum(1)[:, None, None]
        averages = self.position_forward(average) + torch.zeros_like(x)  # the same for every position
        return self.apply_gate(x, averages)


class AverageDecoderLayer(AverageBlock, DecoderLayer):
    """The state is the sum of all inputs so far; the average divides it by the position + 1."""

    NORM: ClassVar = "conv_layer_norm"

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = StateSpec(f"sum.{context.number}", 1, context.stack.embed_dim, exact=True)
        self.states = [self.spec]

    def mix(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return self.apply_gate(x, self.position_forward(x.cumsum(1) / count[:, None]))

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        # add x to the running sum, and gate x with the average
        total = past.window(self.spec).squeeze(2) + x
        count = (positions + 1).to(torch.float32)[:, :, None]
        return self.apply_gate(x, self.position_forward(total / count)), {self.spec.name: total}


class AverageAttention(EncoderDecoder):
    ENCODERS: ClassVar = {"average": AverageEncoderLayer, "attention": AttentionEncoderLayer}
    DECODERS: ClassVar = {"average": AverageDecoderLayer, "attention": AttentionDecoderLayer}
