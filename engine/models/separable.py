"""Depthwise, sub-separable and super-separable convolutions (SliceNet, sections 2.1 and 2.2, Table 1).

docs/models-slicenet.md, "Convolution block", defines the arithmetic. Channels are divided into contiguous
groups of equal size. Each convolution has two equivalent forms: for whole sequences and for one new position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.bundle.specs import StateSpec
from engine.models.layers import neighbours


class ConvolutionShape(NamedTuple):
    """One convolution: input and output channels, number of taps (weights over time), and their distance.

    separability: number and kind of groups, see `SliceStack`.
    """

    inputs: int
    outputs: int
    width: int
    dilation: int
    separability: int

    @property
    def reach(self) -> int:
        """Distance between the first and the last tap."""
        return (self.width - 1) * self.dilation


class SuperSeparable(nn.Module):
    """A depthwise convolution, then a pointwise one within each group (section 2.2); with one group it is
    depthwise separable (2.1). It has K * C + C * C / g weights and no bias."""

    def __init__(self, kernel: ConvolutionShape) -> None:
        super().__init__()
        self.kernel, groups = kernel, max(1, -kernel.separability)
        self.depthwise = nn.Parameter(torch.empty(kernel.width, kernel.inputs))
        parts = kernel.inputs // groups, kernel.outputs // groups
        self.pointwise = nn.ModuleList(nn.Linear(*parts, bias=False) for _ in range(groups))

    def whole(self, x: Tensor, left: int) -> Tensor:
        """Convolve whole sequences, with zeros beyond the edges; returns [batch, time, outputs].

        x: [batch, time, inputs].
        left: number of positions from the first tap to the current one: `reach` (causal) or half (centred).
        """
        k, taps = self.kernel, self.depthwise.transpose(0, 1).unsqueeze(1)
        y = F.conv1d(x.transpose(1, 2), taps, padding=left, dilation=k.dilation, groups=k.inputs)
        y = y.transpose(1, 2)
        # conv1d pads both edges: a causal convolution drops the outputs after the end
        return self._within_groups(y if 2 * left == k.reach else y[:, : x.shape[1]])

    def newest(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Convolve one new position; returns [slots, beams, outputs].

        x: [slots, beams, inputs].
        before: [slots, beams, K - 1, inputs], inputs under the earlier taps, oldest first; None if K is 1.
        """
        # the last tap weighs the new position, the others weigh `before`
        last = self.kernel.width - 1
        y = x * self.depthwise[last:]
        return self._within_groups(y if before is None else (before * self.depthwise[:last]).sum(2) + y)

    def _within_groups(self, x: Tensor) -> Tensor:
        """Apply the pointwise convolution of each group to its channels of x."""
        if len(self.pointwise) == 1:
            y: Tensor = self.pointwise[0](x)
            return y
        size = self.kernel.inputs // len(self.pointwise)
        parts = x.split([size] * len(self.pointwise), -1)
        return torch.cat([point(part) for point, part in zip(self.pointwise, parts, strict=True)], -1)


class SubSeparable(nn.Module):
    """A full convolution within each group, then a projection of all channels (section 2.1); with one group
    only a full convolution. It has K * C * C / g + C * C weights, and a bias in the projection only."""

    def __init__(self, kernel: ConvolutionShape) -> None:
        super().__init__()
        self.kernel, groups = kernel, kernel.separability
        # each row contains the taps in sequence, oldest first
        shape = kernel.width * kernel.inputs // groups, kernel.outputs // groups
        self.parts = nn.ModuleList(nn.Linear(*shape, bias=False) for _ in range(groups))
        self.mix = nn.Linear(kernel.outputs, kernel.outputs) if groups > 1 else None

    def whole(self, x: Tensor, left: int) -> Tensor:
        """Convolve whole sequences (`SuperSeparable.whole`)."""
        k = self.kernel
        return self._project(neighbours(x, k.width, left, k.dilation).unflatten(2, (k.width, k.inputs)))

    def newest(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Convolve one new position (`SuperSeparable.newest`)."""
        column = x.unsqueeze(2)
        return self._project(column if before is None else torch.cat([before, column], 2))

    def _project(self, window: Tensor) -> Tensor:
        """Apply each group's kernel to its channels of windows [batch, time, K, inputs], then `mix`."""
        size = self.kernel.inputs // len(self.parts)
        parts = window.split([size] * len(self.parts), -1) if len(self.parts) > 1 else [window]
        y = torch.cat([part(x.flatten(2)) for part, x in zip(self.parts, parts, strict=True)], -1)
        return y if self.mix is None else self.mix(y)


class ConvStep(nn.Module):
    """A convolution followed by a layer norm (section 3.1, ConvStep); the caller applies the ReLU before it.

    state: the decoder's state, the inputs under the earlier taps; None in the encoder.
    """

    def __init__(self, kernel: ConvolutionShape, eps: float, name: str | None) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = SubSeparable(kernel) if kernel.separability > 0 else SuperSeparable(kernel)
        self.norm = nn.LayerNorm(kernel.outputs, eps=eps)
        self.state = StateSpec(name, kernel.reach, kernel.inputs) if name and kernel.reach else None


class Block(nn.Module):
    """A sequence of `ConvStep`.

    name: prefix of the names of the decoder's states; None in the encoder.
    """

    def __init__(self, kernels: Iterable[ConvolutionShape], eps: float, name: str | None) -> None:
        super().__init__()
        self.steps = nn.ModuleList(
            ConvStep(kernel, eps, name and f"{name}.{i}") for i, kernel in enumerate(kernels)
        )

    def forward(self, x: Tensor, convolve: Callable[[ConvStep, Tensor], Tensor]) -> Tensor:
        """Run the steps.

        x: [batch, time, inputs].
        convolve: function that applies a ReLU and one step.
        """
        for step in self.steps:
            assert isinstance(step, ConvStep)
            x = convolve(step, x)
        return x
