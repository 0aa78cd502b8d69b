"""Modes under which a model runs: with our CUDA kernels in the place of the torch reference, and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engine.kernels.calls import Kernels
from engine.kernels.reference import add_norm, attend, attend_plainly, dynamic_conv, dynamic_conv_step

Table = dict[Callable[..., Any], Callable[..., Any]]


class _Mode(TorchFunctionMode):
    table: Table

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


class Narrow(_Mode):
    """For a model in fp16 or bf16: products take that type, whatever their inputs grew to, and what sums over
    many values (softmax, log-softmax) is computed and given in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.table = {
            F.linear: self._all(F.linear),
            F.layer_norm: self._all(F.layer_norm),
            F.conv1d: self._all(F.conv1d),
            torch.matmul: self._all(torch.matmul),
            dynamic_conv: self._all(dynamic_conv),
            dynamic_conv_step: self._all(dynamic_conv_step),
            attend: self._attend,
            add_norm: self._all(add_norm),
            F.softmax: self._wide(F.softmax),
            F.log_softmax: self._wide(F.log_softmax),
            torch.logsumexp: lambda x, dim: torch.logsumexp(x.float(), dim),
        }

    def _all(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def narrow(*args: Any, **kwargs: Any) -> Any:
            return function(*map(self._narrow, args), **{k: self._narrow(v) for k, v in kwargs.items()})

        return narrow

    def _narrow(self, value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self.dtype) if floating else value

    def _attend(self, *args: Any) -> Any:
        with self:
            return attend_plainly(*args)

    @staticmethod
    def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *args, **kwargs: function(x.float(), *args, **kwargs)


class Unnormalised(_Mode):
    """Within it a log-softmax is left to who takes its result."""

    table: Table = {F.log_softmax: lambda x, *args, **kwargs: x}  # noqa: RUF012


class Fused(_Mode):
    """Within it the reference's operators run as kernels. For inference: without gradients or dropout.

    weights: whether those of attention are wanted. clock: int64 [1], of rings that the step's convolutions
    append to themselves; they note those in `appended`, by their addresses.
    """

    def __init__(
        self, kernels: Kernels, dtype: torch.dtype, clock: Tensor | None = None, *, weights: bool = True
    ) -> None:
        super().__init__()
        self.kernels, self.dtype, self.clock, self.weights = kernels, dtype, clock, weights
        self.appended: set[int] = set()
        self.table = {
            dynamic_conv_step: self._step,
            dynamic_conv: self._whole,
            attend: self._attend,
            add_norm: self._add_norm,
        }

    def _step(self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None) -> Tensor:
        x, taps = self._own(x), self._own(taps)
        if ring is None or index is None:
            return self.kernels.dynamic_conv_step(x, taps, None, None)
        if self.clock is None:
            return self.kernels.dynamic_conv_step(x, taps, ring.contiguous(), index.contiguous())
        self.appended.add(ring.data_ptr())
        past = ring, index.contiguous(), self.clock  # a ring that is not in one piece is refused there
        return self.kernels.dynamic_conv_step_append(x, taps, past, softmax=False, glu=False)

    def _whole(self, x: Tensor, taps: Tensor, left: int) -> Tensor:
        return self.kernels.dynamic_conv(self._own(x), self._own(taps), left)

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        assert not dropout
        return self.kernels.attend(self._own(q), keys, values, mask, weights=self.weights)

    def _add_norm(self, x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        norm = gain, bias, epsilon
        return self.kernels.add_norm(self._own(x), self._own(added), norm, total=False)[1]

    def _own(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).contiguous()
