"""What a kernel asks memory for ahead: another one reads it later, from the second-level cache then."""

from __future__ import annotations

from typing import Final

from torch import Tensor

MAX_MEMORY_AHEAD: Final = 16 * 2**20  # bytes of keys and values that are asked for ahead; 0: none


def remembered(
    ahead: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor | None, Tensor | None, int, int, int, int]:
    """Return keys and values of as many slots as are asked for ahead, and their sizes, as of add_norm.cu.

    ahead: keys and values, as of `Kernels.attend`.
    """
    if ahead is None or ahead[0].dtype != ahead[1].dtype:
        return None, None, 0, 0, 0, 0
    keys, values = ahead
    slots, heads, width, source = keys.shape
    pitch = keys.stride(2)
    if not is_memory(keys, values):
        return None, None, 0, 0, 0, 0
    each = 2 * heads * width * source * keys.element_size()  # bytes of a slot
    return keys, values, min(slots, MAX_MEMORY_AHEAD // max(each, 1)) * heads, width, source, pitch


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
