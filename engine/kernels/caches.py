"""Self-attention over caches, and the order of their entries, as functions of torch tensors."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from engine.kernels.launches import LOAD_BYTES, WARP, Call, Kernel, ceil_div, has_strides, load_form
from engine.kernels.products import Products
from engine.kernels.reference import QKV

# as in attend_cached.cu
BEAMS_AT_ONCE: Final = 8  # largest number of beams of a block
CACHE_WARPS: Final = 16  # largest number of warps of a block
LEAST_WARPS: Final = 8  # warps of a block with few beams, which share the columns
MAX_CACHED_WIDTH: Final = 512  # largest width of a head, limited by registers
MAX_LOADS: Final = 4 * WARP  # largest number of loads for an entry of a head
COLUMN_THREADS: Final = 64  # threads of a block in advance_caches.cu

Caches = tuple[Tensor, Tensor]


class CacheKernels(Products):
    """Kernels of models that keep keys and values of all earlier positions."""

    def advance_caches(self, writers: Tensor, parents: Tensor, positions: Tensor) -> None:
        """Let hypotheses continue other hypotheses, as `engine.executors.history.Caches.advance`.

        writers: int64 [slots, beams, columns], the beam that wrote each column of a hypothesis, possibly the
            first columns of a larger block; columns before the position are replaced.
        parents: int64 [slots, beams], beam that each hypothesis continues.
        positions: int64 [slots, 1], column of the new position.
        """
        slots, beams, columns = writers.shape
        pitch = writers.stride(1)
        assert has_strides(writers, beams * pitch, pitch, 1)
        assert parents.is_contiguous() and positions.is_contiguous()
        grid, block = (ceil_div(columns, COLUMN_THREADS), slots, 1), (COLUMN_THREADS, 1, 1)
        arguments = parents, positions, beams, columns, pitch, writers
        kernel = Kernel("advance_caches.cu", "advance_caches", "float", 1)
        self.run(Call(kernel, grid, block, beams * COLUMN_THREADS * 4, arguments))

    def takes_caches(self, past: Caches) -> bool:
        """Return whether `attend_cached` accepts the caches: heads of few loads, and the layout."""
        keys, values = past
        _, heads, columns, beams, width = keys.shape
        pitch = keys.stride(1) // max(beams * width, 1)
        strides = heads * pitch * beams * width, pitch * beams * width, beams * width, width, 1
        loads = width // min(width & -width, LOAD_BYTES // keys.element_size())
        return (
            width <= MAX_CACHED_WIDTH
            and loads <= MAX_LOADS
            and pitch >= columns
            and all(has_strides(block, *strides) for block in (keys, values))
        )

    def attend_cached(
        self,
        qkv: QKV,
        past: Caches,
        lineage: tuple[Tensor, Tensor],
        bias: tuple[Tensor, Tensor] | None = None,
        *,
        scale: float = 1.0,
    ) -> Tensor:
        """Compute `reference.attend_cached`, and write the new key and value into caches of `takes_caches`.

        qkv: query, key and value of the new position.
        past: cached keys and values of the reference, possibly the first columns of larger blocks.
        lineage: writers of `advance_caches`, after it, and positions int64 [slots, 1].
        bias: biases of the reference, or None.
        scale: factor of the query.
        """
        (keys, values), (writers, positions) = past, lineage
        slots, heads, columns, beams, width = keys.shape
        pitch = keys.stride(1) // (beams * width)
        assert has_strides(writers, beams * pitch, pitch, 1) and writers.shape == (slots, beams, columns)
        assert positions.is_contiguous() and all(y.is_contiguous() for y in qkv)
        element, vector = load_form(width, *qkv, keys, values, contiguous=False)
        kernel = Kernel("attend_cached.cu", "attend_cached", element, vector, width)
        before, now = (None, None) if bias is None else (part.to(keys.dtype).contiguous() for part in bias)
        group = min(beams, BEAMS_AT_ONCE)
        splits = max(LEAST_WARPS // group, CACHE_WARPS // BEAMS_AT_ONCE)  # warps that share a beam's columns
        context = torch.empty_like(qkv.q)
        sizes = beams, heads, columns, pitch, splits, float(scale)
        grid, block = (heads, ceil_div(beams, group), slots), (group * splits * WARP, 1, 1)
        shared = group * splits * (width + 2) * 4
        arguments = *qkv, writers, positions, before, now, *sizes, keys, values, context
        self.run(Call(kernel, grid, block, shared, arguments))
        return context
