"""Steps of the dynamic convolution that compute their taps, one block for each head; fp16 and bf16 only."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from engine.kernels.int8 import bytes_of
from engine.kernels.launches import ELEMENTS, LOAD_BYTES, WARP, Call, Kernel, bucket_of
from engine.kernels.linear import is_constant
from engine.kernels.products import MAX_TILED_BYTES, ROW_BUCKETS, TILE_PAD, Products

# as in dynamic_conv_tiled.cu
MAX_HEAD_TAPS: Final = 64  # number of taps of a convolution head
CONVOLUTION_PRODUCT_WARPS: Final = 16
CHANNELS_AT_ONCE: Final = 8  # the channels of a head must be a multiple of this


class TapProducts(Products):
    """The kernel that computes the taps of up to 8 rows itself."""

    def takes_taps(self, x: Tensor, weight: Tensor, ring: Tensor, kernels: tuple[int, int]) -> bool:
        """Return whether `dynamic_conv_product` can compute this step: few rows of fp16 or bf16 that fit into
        a block's shared memory, with aligned loads. Otherwise taps and convolution run separately.

        x: newest inputs [slots, beams, channels].
        weight: [heads * width, channels].
        ring: earlier inputs, as in `reference.dynamic_conv_step`.
        kernels: pair (heads, width): number of convolution heads, and number of taps of each head.
        """
        heads, width = kernels
        rows, channels = x.shape[0] * x.shape[1], x.shape[2]
        return (
            0 < rows <= ROW_BUCKETS[-1]
            and is_constant(weight)
            and bytes_of(weight) is None
            and x.is_contiguous()
            and x.data_ptr() % LOAD_BYTES == 0
            and self._tile_entry(rows, weight, None, glu=False) in ("tiled_product", "tiled_long")
            and weight.shape[0] == heads * width
            and x.dtype == ring.dtype == weight.dtype
            and 1 < width <= MAX_HEAD_TAPS
            and channels % (heads * CHANNELS_AT_ONCE) == 0
            and ring.is_contiguous()
            and ring.data_ptr() % LOAD_BYTES == 0
            and _convolution_bytes(rows, channels, kernels, x.element_size()) <= MAX_TILED_BYTES
        )

    def dynamic_conv_product(
        self,
        x: Tensor,
        weight: Tensor,
        past: tuple[Tensor, Tensor, Tensor],
        kernels: tuple[int, int],
        *,
        softmax: bool,
    ) -> Tensor:
        """Compute the taps and `dynamic_conv_step_append` for arguments accepted by `takes_taps`.

        x: newest inputs [slots, beams, channels].
        weight: weight of the taps [heads * width, channels].
        past: ring, index and clock of `dynamic_conv_step_append`.
        kernels: pair (heads, width): number of convolution heads, and number of taps of each head.
        softmax: normalise the taps of each head by a softmax.
        """
        (slots, beams, channels), (ring, index, clock), element_bytes = x.shape, past, x.element_size()
        rows, y = slots * beams, torch.empty_like(x)
        size = bucket_of(ROW_BUCKETS, rows)
        kernel = Kernel(
            "dynamic_conv_tiled.cu",
            "dynamic_conv_tiled",
            ELEMENTS[x.dtype],
            LOAD_BYTES // element_bytes,
            size,
        )
        shared = _convolution_bytes(rows, channels, kernels, element_bytes)
        scalars = rows, beams, channels, *kernels, int(softmax)
        block = CONVOLUTION_PRODUCT_WARPS * WARP, 1, 1
        arguments = x, weight, index, clock, *scalars, ring, y
        self.run(Call(kernel, (kernels[0], 1, 1), block, shared, arguments))
        return y


def _convolution_bytes(rows: int, channels: int, kernels: tuple[int, int], element_bytes: int) -> int:
    """Return the bytes of shared memory of a block: all input rows, and the windows of one head."""
    size = bucket_of(ROW_BUCKETS, rows)
    return size * (channels + TILE_PAD + kernels[1] * (channels // kernels[0])) * element_bytes
