"""CUDA kernels and their launches as data; the device that runs a launch compiles the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import Array, addressof, c_float, c_int32, c_void_p
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

ELEMENTS: Final = {torch.float32: "float", torch.float16: "fp16", torch.bfloat16: "bf16"}
WARP: Final = 32
LOAD_BYTES: Final = 16  # bytes that a thread loads with one instruction
# entries with products: product.cu, tiled_product.cu, wide_product.cu and dynamic_conv_tiled.cu
PRODUCTS: Final = (
    *("product", "tiled_product", "tiled_glu", "tiled_long", "tiled_unstaged", "tiled_listed"),
    *("wide_product", "wide_glu", "dynamic_conv_tiled"),
)
# macro that `Kernel.size` defines, by entry
SIZE_DEFINES: Final = {
    **dict.fromkeys(("attend", "attend_packed"), "CONVOY_BEAMS"),
    **dict.fromkeys(PRODUCTS, "CONVOY_ROWS"),
    "attend_cached": "CONVOY_WIDTH",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a .cu file, compiled for one type of element and one number of elements per load."""

    file: str
    entry: str
    element: str
    vector: int
    size: int | None = None  # number of rows, beams or channels of a head for which loops are unrolled
    int8: bool = False  # weights of 8 bits

    @property
    def defines(self) -> dict[str, str]:
        size_define = {} if self.size is None else {SIZE_DEFINES[self.entry]: str(self.size)}
        loads = {"CONVOY_ELEMENT": self.element, "CONVOY_VECTOR": str(self.vector)}
        return loads | size_define | ({"CONVOY_INT8": "1"} if self.int8 else {})


class Address(int):
    """An address on the device without a tensor."""


Argument = c_int32 | c_float | c_void_p
CONVERTED: Final = (c_int32, c_float, c_void_p)


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a kernel.

    shared: bytes of dynamic shared memory.
    arguments: arguments in the kernel's order: a tensor or `Address` is passed as a pointer, None as a null
        pointer, another int as a 32-bit integer, a float as a 32-bit float. `argument` converts them.
    addresses: addresses of the arguments, if all were converted by `argument` for repeated launches.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Tensor | Argument | int | float | None, ...]
    addresses: Array[c_void_p] | None = None


Run = Callable[[Call], None]


def argument(value: Tensor | Argument | float | None) -> Argument:
    """Convert an argument of a kernel to a pointer, a 32-bit integer or a 32-bit float."""
    if isinstance(value, CONVERTED):
        return value
    if isinstance(value, Tensor):
        return c_void_p(value.data_ptr())
    if value is None or isinstance(value, Address):
        return c_void_p(value)
    return c_int32(value) if isinstance(value, int) else c_float(value)


def addresses_of(arguments: Sequence[Argument]) -> Array[c_void_p]:
    """Return the array of argument addresses that the driver needs for a launch."""
    return (c_void_p * len(arguments))(*map(addressof, arguments))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def has_strides(tensor: Tensor, *strides: int) -> bool:
    """Return whether a tensor has these strides; the stride of an axis of size 1 is ignored.

    tensor: tensor to check.
    strides: stride of each axis in elements.
    """
    axes = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or have == want for size, have, want in axes)


def load_form(
    axis: int, *tensors: Tensor | None, most: int = LOAD_BYTES, contiguous: bool = True
) -> tuple[str, int]:
    """Return the element type and the number of elements per load of a kernel that loads along an axis.

    axis: size of the axis.
    tensors: tensors that are loaded, all of one type.
    most: largest number of elements per load.
    contiguous: check that all tensors are contiguous.
    """
    loaded = [t for t in tensors if t is not None]
    size = loaded[0].element_size()
    assert all((not contiguous or t.is_contiguous()) and t.dtype == loaded[0].dtype for t in loaded)
    vector = min(LOAD_BYTES // size, most)
    # smaller loads until the axis and all addresses are multiples of one
    while axis % vector or any(t.data_ptr() % (vector * size) for t in loaded):
        vector //= 2
    return ELEMENTS[loaded[0].dtype], vector


def bucket_of(ladder: Sequence[int], size: int) -> int:
    """Return the first entry of an ascending list that is at least `size`, or the last entry."""
    return next((rung for rung in ladder if rung >= size), ladder[-1])
