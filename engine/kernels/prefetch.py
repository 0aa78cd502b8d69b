"""What a kernel asks memory for ahead: another one reads it later, from the second-level cache then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from engine.kernels.launches import LOAD_BYTES

# bytes that are asked for ahead, at most; 0: none. Caches hold a few times as much
MAX_MEMORY_AHEAD: Final = 24 * 2**20  # of keys and values
MAX_WINDOWS_AHEAD: Final = 32 * 2**20  # of windows, counted for each beam: beams share half of them or more


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys and values, as of `Kernels.attend`."""

    keys: Tensor
    values: Tensor

    def blocks(self) -> int:
        """Count the heads of as many slots as are asked for."""
        slots, heads, width, source = self.keys.shape
        if self.keys.dtype != self.values.dtype or not is_memory(self.keys, self.values):
            return 0
        each = 2 * heads * width * source * self.keys.element_size()  # bytes of a slot
        return min(slots, MAX_MEMORY_AHEAD // max(each, 1)) * heads


@dataclass(frozen=True, slots=True)
class Windows:
    """A ring and its index, as of `Kernels.dynamic_conv_step`: what a step of the convolution reads."""

    ring: Tensor
    index: Tensor

    def hypotheses(self, threads: int) -> int:
        """Count the rows of as many slots as are asked for.

        threads: of a block that asks for a window, one for each of its columns.
        """
        slots, beams, older = self.index.shape
        row_size = self.ring.shape[-1] * self.ring.element_size()
        whole = self.ring.is_contiguous() and self.index.is_contiguous() and self.index.dtype == torch.int64
        if not whole or row_size % LOAD_BYTES or self.ring.data_ptr() % LOAD_BYTES or older > threads:
            return 0
        return min(slots, MAX_WINDOWS_AHEAD // max(beams * older * row_size, 1)) * beams


Prefetch = KeysValues | Windows


def prefetch_arguments(prefetch: Prefetch | None, threads: int) -> tuple[Tensor | int | None, ...]:
    """List what add_norm.cu takes of what is asked for ahead: its `Remembered`, then its `Windows`.

    ahead: what is asked for, if anything is.
    threads: of a block that asks.
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
    """Tell whether keys and values lie as `Kernels.attend` takes them: first positions of blocks of one size.

    keys: [slots, heads, width, source].
    values: [slots, heads, source, width].
    """
    _, heads, width, _ = keys.shape
    pitch = keys.stride(2)
    whole = heads * width * pitch, width * pitch
    return has_strides(keys, *whole, pitch, 1) and has_strides(values, *whole, width, 1)


def has_strides(tensor: Tensor, *strides: int) -> bool:
    """Tell whether a tensor lies in memory like that; of an axis with one entry its stride does not matter.

    tensor: of as many axes as strides.
    strides: in elements.
    """
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or have == want for size, have, want in axes)
