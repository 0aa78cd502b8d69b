"""Modes that change how a model runs on any device: in a narrow type, without the last log-softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engine.kernels.linear import wide_product
from engine.kernels.reference import (
    add_norm,
    attend,
    attend_cached,
    attend_cached_plainly,
    attend_plainly,
    attend_whole,
    attend_whole_plainly,
    dynamic_conv,
    dynamic_conv_step,
    project_among,
    project_among_plainly,
)

Table = dict[Callable[..., Any], Callable[..., Any]]


class Mode(TorchFunctionMode):
    # replacement of each function; all others run as they are
    table: Table

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


class NarrowMode(Mode):
    """Runs a model in fp16 or bf16: products convert their inputs to that type; softmax and log-softmax are
    computed and returned in float32, because they sum many values."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.table = {
            F.linear: self._narrow_inputs(F.linear),
            F.layer_norm: self._narrow_inputs(F.layer_norm),
            F.rms_norm: self._rms_norm,
            F.conv1d: self._narrow_inputs(F.conv1d),
            torch.matmul: self._narrow_inputs(torch.matmul),
            dynamic_conv: self._narrow_inputs(dynamic_conv),
            dynamic_conv_step: self._narrow_inputs(dynamic_conv_step),
            attend: self._within(attend_plainly),
            attend_cached: self._within(attend_cached_plainly),
            attend_whole: self._within(attend_whole_plainly),
            add_norm: self._narrow_inputs(add_norm),
            F.softmax: self._in_float32(F.softmax),
            F.log_softmax: self._in_float32(F.log_softmax),
            torch.logsumexp: lambda x, dim: torch.logsumexp(x.float(), dim),
        }

    def _narrow_inputs(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def narrow(*args: Any, **kwargs: Any) -> Any:
            return function(*map(self._narrow, args), **{k: self._narrow(v) for k, v in kwargs.items()})

        return narrow

    def _narrow(self, value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self.dtype) if floating else value

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor, eps: float | None = None) -> Tensor:
        """Normalise in the type of x: a float32 sum may exceed the range of fp16."""
        return F.rms_norm(x, shape, weight.to(x.dtype), eps).to(self.dtype)

    def _within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose operators run under this mode: torch leaves it for a replaced function."""

        def within(*args: Any) -> Any:
            with self:
                return function(*args)

        return within

    @staticmethod
    def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *args, **kwargs: function(x.float(), *args, **kwargs)


class UnnormalisedMode(Mode):
    """Skips log-softmax, which the caller applies."""

    table: Table = {F.log_softmax: lambda x, *args, **kwargs: x}  # noqa: RUF012


class LogitsProvider(Protocol):
    """A mode that computes linear maps with a float32 result."""

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

    def logits_among(
        self, x: Tensor, output: tuple[Tensor, Tensor | None], among: Tensor
    ) -> Tensor | None: ...


class LogitsMode(Mode):
    """Computes linear maps with a float32 result, because rounding logits to bf16 changes the best token of
    0.7 % of the rows."""

    def __init__(self, dtype: torch.dtype, fused: LogitsProvider | None) -> None:
        """dtype: type of the model.
        fused: mode under which the model runs, or None.
        """
        super().__init__()
        self.dtype, self.fused = dtype, fused
        self.table = {
            F.linear: fused.logits if fused else self._linear,
            project_among: self._project_among,
        }

    def _project_among(
        self, x: Tensor, output: tuple[Tensor, Tensor | None], among: Tensor, eos: int
    ) -> Tensor:
        """Compute the logits of listed tokens by the kernel for them, or compute all and mask most."""
        found = self.fused.logits_among(x, output, among) if self.fused else None
        if found is not None:
            return found
        with self:
            return project_among_plainly(x, output, among, eos)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return wide_product(x.to(self.dtype), weight, bias)
