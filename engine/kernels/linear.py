"""Operations that are fused with a linear map, and linear maps by torch's own kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis, or without a shift a root-mean-square norm; gain and shift [dim]."""

    gain: Tensor
    shift: Tensor | None
    epsilon: float

    @property
    def tensors(self) -> list[Tensor]:
        """Gain and shift, without one that is None."""
        return [self.gain] if self.shift is None else [self.gain, self.shift]

    def plainly(self, x: Tensor) -> Tensor:
        """Compute the norm with standard operators, in the type of x."""
        gain, shape = self.gain.to(x.dtype), self.gain.shape
        if self.shift is None:
            return F.rms_norm(x, shape, gain, self.epsilon)
        return F.layer_norm(x, shape, gain, self.shift.to(x.dtype), self.epsilon)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Operations on the sums of a product, in this order.

    factor: factor of the sums.
    activation: one of `ACTIVATIONS`; "glu": the first half of the outputs is gated by the second.
    residual: tensor to add, in fp32 or in the type of the weights.
    float32: return the result in float32.
    """

    factor: float = 1.0
    activation: str | None = None
    residual: Tensor | None = None
    float32: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddingLookup:
    """Scaled rows of a table for tokens int64 [slots, beams]: the embeddings that a decoder reads.

    position_rows: row numbers int64 [slots, 1] and a table of positions; these rows are added.
    """

    tokens: Tensor
    table: Tensor
    scale: float = 1.0
    position_rows: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.tokens.shape, self.table.shape[1])


# numbers in common.cuh
ACTIVATIONS: Final = {None: 0, "relu": 1, "glu": 2, "gelu": 3, "gelu_tanh": 4, "silu": 5}
# activations after products of many rows; a GLU is a kernel of its own
PLAIN_ACTIVATIONS: Final[dict[str | None, Callable[[Tensor], Tensor]]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def is_constant(weight: Tensor) -> bool:
    """Return whether a weight is a parameter of the model or a view of one, so that no kernel writes it."""
    return isinstance(weight, Parameter) or isinstance(weight._base, Parameter)


def wide_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a linear map of inputs of any type with a float32 result.

    x: [..., dim].
    weight: [outputs, dim].
    bias: [outputs] or None.
    """
    if x.dtype == torch.float32:
        return F.linear(x, weight, bias)
    rows = x.flatten(0, -2)
    if x.is_cuda:  # float32 sums that are not rounded
        y = torch.mm(rows, weight.t(), out_dtype=torch.float32)
    else:  # not F.linear, whose inputs and sums `NarrowMode` rounds
        y = torch.mm(rows.float(), weight.float().t())
    y = y.view(*x.shape[:-1], -1)
    return y if bias is None else y + bias


def library_product(x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: Epilogue) -> Tensor:
    """Compute a product of many rows with torch's own kernels, and the factor and activation of its epilogue.

    x: [..., dim].
    weight: [outputs, dim].
    bias: [outputs] or None.
    epilogue: operations on the sums; its GLU and residual are left to the caller.
    """
    rows, factor, shape = x.flatten(0, -2), epilogue.factor, (*x.shape[:-1], -1)
    activate = PLAIN_ACTIVATIONS.get(epilogue.activation)
    if bias is None:
        y = F.linear(x, weight)
        y = y if factor == 1.0 else y * factor
        return y if activate is None else activate(y)
    if epilogue.activation == "relu" and factor == 1.0:  # one kernel with cuBLASLt
        return torch._addmm_activation(bias, rows, weight.t()).view(shape)
    # with a beta other than 1 torch would first copy the bias to all rows
    added = bias if factor == 1.0 else bias * factor
    y = torch.addmm(added, rows, weight.t(), alpha=factor).view(shape)
    return y if activate is None else activate(y)
