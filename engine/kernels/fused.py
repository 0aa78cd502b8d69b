"""Puts the CUDA kernels in the place of the torch reference while a model runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from engine.kernels.calls import Kernels
from engine.kernels.reference import attend, dynamic_conv, dynamic_conv_step


class Fused(TorchFunctionMode):
    """Within it the reference's operators run as kernels. For inference: without gradients or dropout."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.table: dict[Callable[..., Any], Callable[..., Any]] = {
            dynamic_conv_step: self._step,
            dynamic_conv: self._whole,
            attend: self._attend,
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))

    def _step(self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None) -> Tensor:
        past = (None, None) if ring is None or index is None else (ring.contiguous(), index.contiguous())
        return self.kernels.dynamic_conv_step(x.contiguous(), taps.contiguous(), *past)

    def _whole(self, x: Tensor, taps: Tensor, left: int) -> Tensor:
        return self.kernels.dynamic_conv(x.contiguous(), taps.contiguous(), left)

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        assert not dropout
        memory = keys.contiguous(), values.contiguous(), mask.contiguous()
        return self.kernels.attend(q.contiguous(), *memory, weights=True)
