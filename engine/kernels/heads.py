"""Products of few rows fused with attention or convolution, one block for each head; fp16 and bf16 only."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from engine.kernels.launches import ELEMENTS, LOAD_BYTES, WARP, Call, Kernel, bucket_of
from engine.kernels.linear import Norm, is_constant
from engine.kernels.products import MAX_TILED_BYTES, ROW_BUCKETS, TILE_PAD, Products

# as in attend_tiled.cu and dynamic_conv_tiled.cu
MAX_HEAD_WIDTH: Final = 64  # width of an attention head, a multiple of 16
MAX_HEAD_TAPS: Final = 64  # number of taps of a convolution head
ATTEND_PRODUCT_WARPS: Final = 8
CONVOLUTION_PRODUCT_WARPS: Final = 16
CHANNELS_AT_ONCE: Final = 8  # the channels of a head must be a multiple of this

Weights = tuple[Tensor, Tensor | None]
Memory = tuple[Tensor, Tensor, Tensor]


def can_attend_by_tiles(dtype: torch.dtype, keys: Tensor, values: Tensor, mask: Tensor) -> bool:
    """Return whether tensor cores can attend: heads of at most 64 channels, and loads of 16 aligned bytes.

    dtype: type of the model.
    keys, values, mask: memory of `reference.attend`.
    """
    width, source, pitch = keys.shape[2], keys.shape[3], keys.stride(2)
    return (
        dtype in (torch.float16, torch.bfloat16)
        and width % 16 == 0
        and width <= MAX_HEAD_WIDTH
        and source % 8 == 0
        and pitch % 8 == 0
        and not any(t.data_ptr() % LOAD_BYTES for t in (keys, values, mask))
    )


class HeadProducts(Products):
    """Kernels that compute the queries or taps of up to 8 rows themselves."""

    def takes_queries(self, x: Tensor, weight: Tensor, norm: Norm | None, memory: Memory) -> bool:
        """Return whether `attend_product` accepts these arguments.

        x: inputs of the query projection [slots, beams, dim].
        weight: [heads * width, dim].
        norm: layer norm of x, or None.
        memory: keys, values and mask of `reference.attend`.
        """
        heads, width = memory[0].shape[1:3]
        return (
            self._takes_rows(x, weight, norm)
            and weight.shape[0] == heads * width
            and can_attend_by_tiles(weight.dtype, *memory)
        )

    def attend_product(
        self, x: Tensor, weights: Weights, scale: float, norm: Norm | None, memory: Memory
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the queries and `reference.attend` without weights, if `takes_queries` accepts them.

        x: [slots, beams, dim], in fp32 or in the type of the weights.
        weights: weight [heads * width, dim] and bias or None of the query projection.
        scale: factor of the queries.
        norm: layer norm of x, or None.
        memory: keys, values and mask of `reference.attend`.

        Returns the context and the normalised x, or None without a norm.
        """
        (weight, bias), (keys, values, mask) = weights, memory
        (slots, beams, dim), (heads, width, source) = x.shape, keys.shape[1:]
        rows, element_bytes, pitch = slots * beams, weight.element_size(), keys.stride(2)
        size = bucket_of(ROW_BUCKETS, rows)
        shared = size * (dim + TILE_PAD + MAX_HEAD_WIDTH) * element_bytes
        memory_bytes = slots * (width * (source + 8) + source * (width + 8) + source * 2) * element_bytes
        # copy keys and values to shared memory too if they fit
        copies_memory = int(shared + memory_bytes <= MAX_TILED_BYTES)
        context = x.new_empty((slots, beams, heads * width), dtype=weight.dtype)
        normed = torch.empty_like(x, dtype=weight.dtype) if norm else None
        parts = (norm.gain, norm.shift, norm.epsilon) if norm else (None, None, 0.0)
        scalars = rows, dim, beams, int(x.dtype != weight.dtype), float(parts[2]), float(scale)
        sizes = heads, width, source, pitch, copies_memory
        inputs = x, weight, bias, *parts[:2], *scalars, normed
        kernel = Kernel(
            "attend_tiled.cu", "attend_product", ELEMENTS[weight.dtype], LOAD_BYTES // element_bytes, size
        )
        block = ATTEND_PRODUCT_WARPS * WARP, 1, 1
        arguments = *inputs, keys, values, mask, *sizes, context
        self.run(Call(kernel, (heads, 1, 1), block, shared + memory_bytes * copies_memory, arguments))
        return context, normed

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
            self._takes_rows(x, weight, None)
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

    def _takes_rows(self, x: Tensor, weight: Tensor, norm: Norm | None) -> bool:
        """Return whether tensor cores can multiply the rows, in shared memory, by a constant weight."""
        rows = x.shape[0] * x.shape[1]
        return (
            0 < rows <= ROW_BUCKETS[-1]
            and is_constant(weight)
            and x.is_contiguous()
            and x.data_ptr() % LOAD_BYTES == 0
            and self._tile_entry(rows, weight, norm, glu=False) in ("tiled_product", "tiled_long")
        )


def _convolution_bytes(rows: int, channels: int, kernels: tuple[int, int], element_bytes: int) -> int:
    """Return the bytes of shared memory of a block: all input rows, and the windows of one head."""
    size = bucket_of(ROW_BUCKETS, rows)
    return size * (channels + TILE_PAD + kernels[1] * (channels // kernels[0])) * element_bytes
