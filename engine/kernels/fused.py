"""`FusedMode`: run a model with our CUDA kernels instead of the torch operators of its code.

`engine.kernels.deferred` shows how one layer runs under it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.kernels.calls import Kernels, PackedSequences
from engine.kernels.deferred import (
    DeferredTensor,
    Lineage,
    Product,
    Softmax,
    UnflattenedProduct,
    pending_operation,
    split_factor,
)
from engine.kernels.fused_products import ProductMode
from engine.kernels.linear import Epilogue
from engine.kernels.reference import (
    QKV,
    attend,
    attend_cached,
    attend_cached_plainly,
    attend_whole,
    attend_whole_plainly,
    dynamic_conv,
    dynamic_conv_step,
    ssru_step,
)


class FusedMode(ProductMode):
    """Runs the operators of `reference.py` as kernels, and fuses products of few rows with their neighbours.

    A new mixer needs an operator in `reference.py`, a kernel, and a line in `table`.

    appended_states: addresses of the rings and caches to which a kernel has appended their new column.
    """

    def __init__(
        self,
        kernels: Kernels,
        dtype: torch.dtype,
        clock: Tensor | None = None,
        *,
        weights: bool = True,
        packed: PackedSequences | None = None,
    ) -> None:
        """kernels: the kernels of a device.
        dtype: type of the model.
        clock: int64 [1], number of the step; with it convolutions append to their rings.
        weights: compute the weights of attention over the source.
        packed: bounds of packed sequences, or None.
        """
        super().__init__(kernels, dtype)
        self.packed, self.clock, self.weights = packed, clock, weights
        self.appended_states: set[int] = set()
        self.table |= {
            dynamic_conv_step: self._dynamic_conv_step,
            dynamic_conv: self._dynamic_conv,
            ssru_step: self._ssru_step,
            attend: self._attend,
            attend_cached: self._attend_cached,
            attend_whole: self._attend_whole,
        }

    def _dynamic_conv_step(
        self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None
    ) -> Tensor:
        """Run a step of the convolution; with a clock the kernel also appends x to the ring."""
        if ring is None or index is None:
            x, (taps, softmax) = self._computed(x), self._split_softmax(taps)
            return self.kernels.dynamic_conv_step(x, taps, None, None, softmax=softmax)
        index = index.contiguous()
        y = self._step_with_taps(x, taps, ring, index)
        if y is not None:
            return y
        x, (taps, softmax) = self._computed(x), self._split_softmax(taps)
        if self.clock is None:
            return self.kernels.dynamic_conv_step(x, taps, ring.contiguous(), index, softmax=softmax)
        self.appended_states.add(ring.data_ptr())
        window = ring, index, self.clock  # the kernel refuses a ring that is not contiguous
        return self.kernels.dynamic_conv_step_append(x, taps, window, softmax=softmax)

    def _step_with_taps(self, x: Tensor, taps: Tensor, ring: Tensor, index: Tensor) -> Tensor | None:
        """Run the kernel that also computes the taps: an unflattened product of x, perhaps with a softmax.
        Return None if the taps are anything else, or the kernel does not accept them."""
        split, softmax = pending_operation(taps), False
        if isinstance(split, Softmax):
            split, softmax = pending_operation(split.logits), True
        product = pending_operation(split.product) if isinstance(split, UnflattenedProduct) else None
        if not isinstance(product, Product) or product.x is not x or self.clock is None or taps.dim() != 4:
            return None
        if product.bias is not None or product.epilogue != Epilogue():
            return None
        inputs, kernels = self._computed(x), (taps.shape[2], taps.shape[3])
        if not self.kernels.takes_taps(inputs, product.weight, ring, kernels):
            return None
        self.appended_states.add(ring.data_ptr())
        window = ring, index, self.clock
        return self.kernels.dynamic_conv_product(inputs, product.weight, window, kernels, softmax=softmax)

    def _split_softmax(self, taps: Tensor) -> tuple[Tensor, bool]:
        """Return the taps before a deferred softmax, and whether the kernel must apply it."""
        if isinstance(taps, DeferredTensor) and isinstance(taps.op, Softmax) and taps.value is None:
            return self._computed(taps.op.logits), True
        return self._computed(taps), False

    def _dynamic_conv(self, x: Tensor, taps: Tensor, left: int) -> Tensor:
        taps, softmax = self._split_softmax(taps)
        return self.kernels.dynamic_conv(self._computed(x), taps, left, self.packed, softmax=softmax)

    def _ssru_step(self, candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor) -> Any:
        if ring.dtype != torch.float32 or not ring.is_contiguous():
            return NotImplemented
        append = self.clock is not None
        if append:
            self.appended_states.add(ring.data_ptr())
        past = ring, index.contiguous()
        return self.kernels.ssru_step(self._computed(candidate), self._computed(gate), *past, append=append)

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0, mean_heads: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """Run attention over the source; its kernel applies the factor of the queries."""
        assert not dropout
        (q, scale), memory = split_factor(q), (keys, values, mask)
        q = self._computed(q)
        return self.kernels.attend(q, memory, weights=self.weights, mean_heads=mean_heads, scale=scale)

    def _attend_cached(
        self,
        qkv: QKV,
        past: tuple[Tensor, Tensor],
        lineage: Tensor,
        bias: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Run the kernel that follows the writers and appends to the caches, or the plain operators."""
        followed = lineage.op if isinstance(lineage, DeferredTensor) else None
        if not isinstance(followed, Lineage) or not self.kernels.takes_caches(past):
            with self:
                return attend_cached_plainly(qkv, past, lineage, bias)
        q, scale = split_factor(qkv.q)
        q, key, value = map(self._computed, (q, qkv.key, qkv.value))
        self.appended_states |= {block.data_ptr() for block in past}
        order = followed.writers, followed.positions
        return self.kernels.attend_cached(QKV(q, key, value), past, order, bias, scale=scale)

    def _attend_whole(
        self, qkv: QKV, mask: Tensor, heads: int, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        """Run the kernel for packed sources, or the plain operators for padded ones."""
        if self.packed is None:
            with self:
                return attend_whole_plainly(qkv, mask, heads, bias, dropout)
        assert bias is None and not dropout
        q, scale = split_factor(qkv.q)
        q, keys, values = map(self._computed, (q, qkv.key, qkv.value))
        return self.kernels.attend_packed(QKV(q, keys, values), self.packed, heads, scale=scale)
