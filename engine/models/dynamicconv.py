"""DynamicConv and LightConv encoder-decoders ("Pay Less Attention", Wu et al. 2019).

docs/reference.md 2 defines the arithmetic. The `mixer` of each side selects kernels that are a function of
the input ("dynamic") or the same at each step ("lightweight"). Table 3's depthwise convolutions are
lightweight with a kernel for each channel (`conv_heads`) and without the softmax.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.kernels.reference import dynamic_conv, dynamic_conv_step
from engine.models.model import Past
from engine.models.residual import DecoderLayer, EncoderLayer, LayerContext, Residual
from engine.models.stack import EncoderDecoder


class Conv(nn.Module):
    """The kernels [kernels, K] of one convolution, constant or a function of the input."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        stack = context.stack
        self.kernels, self.width = stack.kernels, context.width
        self.dynamic, self.softmax = stack.mixer == "dynamic", stack.weight_softmax
        if self.dynamic:
            self.weight_linear = nn.Linear(stack.conv_dim, stack.kernels * self.width, bias=False)
        else:
            self.weight = nn.Parameter(torch.empty(stack.kernels, 1, self.width))

    def taps(self, x: Tensor) -> Tensor:
        """Return kernel weights for x [..., conv_dim]: [..., kernels, K], or [kernels, K] if constant."""
        if self.dynamic:
            logits: Tensor = self.weight_linear(x).unflatten(-1, (self.kernels, self.width))
        else:
            logits = self.weight.squeeze(1)
        return F.softmax(logits, dim=-1) if self.softmax else logits


class ConvBlock(Residual):
    """The convolution sub-block: linear1, GLU, convolution, linear2 (the paper's Figure 2)."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        stack = context.stack
        self.glu = stack.glu
        self.linear1 = nn.Linear(stack.embed_dim, stack.conv_dim * (2 if stack.glu else 1))
        self.conv = Conv(context)
        self.linear2 = nn.Linear(stack.conv_dim, stack.embed_dim)

    def inputs(self, x: Tensor) -> Tensor:
        """Apply linear1 and GLU: [..., embed_dim] -> [..., conv_dim], the inputs of the convolution."""
        y: Tensor = self.linear1(self.drop(x, self.rates.inputs))
        return F.glu(y, dim=-1) if self.glu else y

    def taps(self, x: Tensor) -> Tensor:
        return self.drop(self.conv.taps(x), self.rates.weight)

    def convolve(self, x: Tensor, left: int) -> Tensor:
        """Convolve whole sequences.

        x: [batch, time, conv_dim].
        left: number of kernel weights before the current position.

        Returns [batch, time, embed_dim].
        """
        y: Tensor = self.linear2(dynamic_conv(x, self.taps(x), left))
        return y


class ConvEncoderLayer(ConvBlock, EncoderLayer):
    packs = True

    def mix(self, x: Tensor, real: Tensor) -> Tensor:
        # masked directly before the convolution, so that padding acts like the zeros beyond the edges
        return self.convolve(self.inputs(x) * real[:, :, None], self.conv.width // 2)


class ConvDecoderLayer(ConvBlock, DecoderLayer):
    def __init__(self, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = StateSpec(f"conv.{context.number}", context.width - 1, context.stack.conv_dim)
        self.states = [self.spec] if self.spec.window else []

    def mix(self, x: Tensor) -> Tensor:
        return self.convolve(self.inputs(x), self.conv.width - 1)

    def mix_step(self, x: Tensor, positions: Tensor, past: Past) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.inputs(x)
        # None for a kernel of width 1, which has no state
        ring, rows = past.rings.get(self.spec.name), past.rows.get(self.spec.window)
        y = self.linear2(dynamic_conv_step(x, self.taps(x), ring, rows))
        return y, {self.spec.name: x} if self.states else {}


class DynamicConv(EncoderDecoder):
    """DynamicConv or LightConv, by the mixer of each side."""

    ENCODERS: ClassVar = {"dynamic": ConvEncoderLayer, "lightweight": ConvEncoderLayer}
    DECODERS: ClassVar = {"dynamic": ConvDecoderLayer, "lightweight": ConvDecoderLayer}

    def initialise_module(self, module: nn.Module) -> None:
        super().initialise_module(module)
        if isinstance(module, Conv) and not module.dynamic:
            nn.init.xavier_uniform_(module.weight)
