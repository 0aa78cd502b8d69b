"""The non-separable convolution of "Pay Less Attention", Table 3, "CNN".

The mixer is one convolution of all channels, embed_dim to embed_dim, with a bias and without projections
before or after it (section 6.2; docs/reference.md 10). `dynamicconv` covers the depthwise rows of that table.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.models.layers import neighbours
from engine.models.model import Past
from engine.models.residual import DecoderLayer, EncoderLayer, LayerContext, Residual
from engine.models.stack import EncoderDecoder


class ConvolutionBlock(Residual):
    """A convolution as one projection of the concatenated inputs under the kernel, oldest first."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.width, dim = context.width, context.stack.embed_dim
        self.conv = nn.Linear(self.width * dim, dim)

    def convolve(self, x: Tensor, left: int) -> Tensor:
        """Convolve whole sequences [batch, time, dim]; `left` is the number of taps before a position."""
        y: Tensor = self.conv(neighbours(self.drop(x, self.rates.inputs), self.width, left))
        return y


class ConvolutionEncoderLayer(ConvolutionBlock, EncoderLayer):
    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        # padding acts like the zeros beyond the edges
        return self.convolve(x * real[:, :, None], self.width // 2)


class ConvolutionDecoderLayer(ConvolutionBlock, DecoderLayer):
    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = StateSpec(f"inputs.{context.number}", self.width - 1, context.stack.embed_dim)
        self.states = [self.spec] if self.spec.window else []

    def mix(self, x: Tensor) -> Tensor:
        return self.convolve(x, self.width - 1)

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.states:
            return self.conv(x), {}
        window = torch.cat([past.window(self.spec), x[:, :, None]], 2)
        return self.conv(window.flatten(2)), {self.spec.name: x}


class Cnn(EncoderDecoder):
    ENCODERS: ClassVar = {"convolution": ConvolutionEncoderLayer}
    DECODERS: ClassVar = {"convolution": ConvolutionDecoderLayer}
