"""Memory that a kernel loads into the second-level cache for a later kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from engine.kernels.launches import LOAD_BYTES

# maximum numbers of bytes to prefetch; 0: none. Caches are a few times as large
MAX_MEMORY_AHEAD: Final = 24 * 2**20  # keys and values
MAX_WINDOWS_AHEAD: Final = 32 * 2**20  # windows, counted for each beam, though beams share at least half


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys and values of attention over the source (`Kernels.attend`)."""

    keys: Tensor
    values: Tensor

    def blocks(self) -> int:
        """Return the number of blocks to prefetch: one for each head of as many slots as the limit allows."""
        slots, heads, width, source = self.keys.shape
        if self.keys.dtype != self.values.dtype or not is_memory(self.keys, self.values):
            return 0
        slot_bytes = 2 * heads * width * source * self.keys.element_size()
        return min(slots, MAX_MEMORY_AHEAD // max(slot_bytes, 1)) * heads


@dataclass(frozen=True, slots=True)
class Windows:
    """The ring and index that a step of the convolution reads (`Kernels.dynamic_conv_step`)."""

    ring: Tensor
    index: Tensor

    def hypotheses(self, threads: int) -> int:
        """Return the number of hypotheses to prefetch: those of as many slots as the limit allows.

        threads: number of threads of a block; each prefetches one column of a window.
        """
        slots, beams, older = self.index.shape
        row_size = self.ring.shape[-1] * self.ring.element_size()
        supported = (
            self.ring.is_contiguous() and self.index.is_contiguous() and self.index.dtype == torch.int64
        )
        if not supported or row_size % LOAD_BYTES or self.ring.data_ptr() % LOAD_BYTES or older > threads:
            return 0
        return min(slots, MAX_WINDOWS_AHEAD // max(beams * older * row_size, 1)) * beams


Prefetch = KeysValues | Windows


def prefetch_arguments(prefetch: Prefetch | None, threads: int) -> tuple[Tensor | int | None, ...]:
    """Return the arguments of add_norm.cu for prefetching: those of `KeysValues`, then those of `Windows`.

    prefetch: memory to prefetch, or None.
    threads: number of threads of a block.
    """
    memory: tuple[Tensor | int | None, ...] = None, None, 0, 0, 0, 0
    windows: tuple[Tensor | int | None, ...] = None, None, 0, 0, 0
    match prefetch:
        case KeysValues(keys, values) if blocks := prefetch.blocks():
            memory = keys, values, blocks, *keys.shape[2:], keys.stride(2)
        case Windows(ring, index) if hypotheses := prefetch.hypotheses(threads):
            windows = ring, index, hypotheses, index.shape[2], ring.shape[-1] * ring.element_size()
    return *memory, *windows


def is_memory(keys: Tensor, values: Tensor) -> bool:
    """Return whether `Kernels.attend` accepts the layout: the first positions of blocks of one size.

    keys: [slots, heads, width, source].
    values: [slots, heads, source, width].
    """
    _, heads, width, _ = keys.shape
    pitch = keys.stride(2)
    whole = heads * width * pitch, width * pitch
    return has_strides(keys, *whole, pitch, 1) and has_strides(values, *whole, width, 1)


def has_strides(tensor: Tensor, *strides: int) -> bool:
    """Return whether a tensor has these strides; the stride of an axis of size 1 is ignored.

    tensor: tensor to check.
    strides: stride of each axis in elements.
    """
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or have == want for size, have, want in axes)
