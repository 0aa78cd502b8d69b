"""What comes before and after a linear map in one launch with it, and one whose result is float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis; gain and shift [dim]."""

    gain: Tensor
    shift: Tensor
    epsilon: float


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of a product's sums, in this order.

    factor: multiplies them.
    activation: "relu", "glu" (the first half of the outputs is gated by the second) or none.
    residual: added, in fp32 or as the weights.
    wide: the result is fp32.
    """

    factor: float = 1.0
    activation: str | None = None
    residual: Tensor | None = None
    float32: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddingLookup:
    """Rows of a table for tokens int64 [slots, beams], scaled: what a decoder is fed.

    signals: positions [slots, 1] and the table whose rows for them are added.
    """

    tokens: Tensor
    table: Tensor
    scale: float = 1.0
    position_rows: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.tokens.shape, self.table.shape[1])


ACTIVATIONS: Final = {None: 0, "relu": 1, "glu": 2}


def is_constant(weight: Tensor) -> bool:
    """Tell whether no kernel writes a weight: a model's own, or a part of one."""
    return isinstance(weight, Parameter) or isinstance(weight._base, Parameter)


def wide_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a linear map in float32, of inputs of any type.

    x: [..., dim].
    weight: [outputs, dim].
    bias: [outputs], or none.
    """
    if x.dtype == torch.float32:
        return F.linear(x, weight, bias)
    if x.is_cuda:  # the sums are float32 already: they are not rounded
        y = torch.mm(x.flatten(0, -2), weight.t(), out_dtype=torch.float32).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float())


def library_product(x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: Epilogue) -> Tensor:
    """Compute a product of many rows by torch's own kernels, and what is behind it but a GLU and a residual.

    x: [..., dim].
    weight: [outputs, dim].
    bias: [outputs], or none.
    finish: what becomes of the sums.
    """
    rows, factor, shape = x.flatten(0, -2), epilogue.factor, (*x.shape[:-1], -1)
    relu = epilogue.activation == "relu"
    if bias is None:
        y = F.linear(x, weight)
        y = y if factor == 1.0 else y * factor
        return F.relu(y) if relu else y
    if relu and factor == 1.0:  # one kernel too, where cuBLASLt has the epilogue
        return torch._addmm_activation(bias, rows, weight.t()).view(shape)
    # rounded once; with another beta than 1 torch would copy the bias to all rows before
    added = bias if factor == 1.0 else bias * factor
    y = torch.addmm(added, rows, weight.t(), alpha=factor).view(shape)
    return F.relu(y) if relu else y
