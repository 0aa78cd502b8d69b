"""int8 in plain torch: the readable reference of int8 graphs and native operators, with exact sums."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engine.bundle.recipes import quantize_weight
from engine.bundle.weights import LARGEST_INT8, Weights
from engine.executors.torch.executor import TorchExecutor
from engine.kernels.fused import FusedMode
from engine.models.model import Model


class Int8Product:
    """A linear map by an int8 weight.

    matrix: weight as float64 [in, out], in which sums of bytes are exact.
    scales: float32 [out], scale of each column.
    alpha: fixed scale of the input, or None for a scale per row.
    """

    def __init__(self, name: str, weights: Weights, *, alphas: bool) -> None:
        weight = quantize_weight(name, weights)
        self.matrix = torch.from_numpy(weight.values.T.astype("float64"))
        self.scales = torch.from_numpy(weight.scales.copy())
        self.alpha = float(weight.alpha[0]) if alphas and weight.alpha is not None else None

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return the product [..., out] of x [..., in]."""
        if self.alpha is not None:
            whole = torch.round(x * self.alpha).clamp(-LARGEST_INT8, LARGEST_INT8)
            sums = torch.matmul(whole.double(), self.matrix).float()
            y = sums * (self.scales / self.alpha)
        else:
            # the largest value of a row becomes 127; a row of zeros must not be divided by 0
            scale = (x.abs().amax(-1, keepdim=True) * (1 / LARGEST_INT8)).clamp(min=1e-30)
            sums = torch.matmul(torch.round(x / scale).double(), self.matrix).float()
            y = sums * self.scales * scale
        return y if bias is None else y + bias


class Int8(TorchFunctionMode):
    """A torch mode in which linear maps by a model's weights are int8."""

    def __init__(self, model: Model, weights: Weights) -> None:
        super().__init__()
        alphas = model.config.quantization == "alphas"
        self.names = {id(p): name for name, p in model.named_parameters() if p.dim() == 2}
        self.weights, self.alphas = weights, alphas
        # made on first use, because embedding tables are not multiplied
        self.products: dict[int, Int8Product] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is not F.linear or id(args[1]) not in self.names:
            return func(*args, **(kwargs or {}))
        return self._linear(*args, **(kwargs or {}))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        key = id(weight)
        if key not in self.products:
            self.products[key] = Int8Product(self.names[key], self.weights, alphas=self.alphas)
        return self.products[key](x, bias)


class Int8Executor(TorchExecutor):
    """One lane on the CPU.

    int8: mode that the lanes of a model share.
    """

    def __init__(self, model: Model, int8: Int8, beams: int, slots: int) -> None:
        super().__init__(model, beams, slots)
        self.int8 = int8

    def _enter_modes(self, stack: ExitStack, clock: Any = 0, **options: Any) -> FusedMode | None:
        stack.enter_context(self.int8)
        return super()._enter_modes(stack, clock, **options)
