"""A CUDA kernel and one launch of it, as data: whatever runs launches compiles the kernel for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import Array, addressof, c_float, c_int32, c_void_p
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

ELEMENTS: Final = {torch.float32: "float", torch.float16: "fp16", torch.bfloat16: "bf16"}
WARP: Final = 32
LOAD_BYTES: Final = 16  # bytes that a thread loads at once
# entries of products
PRODUCTS: Final = ("product", "tiled_product", "tiled_glu", "tiled_long", "tiled_unstaged")
HEAD_PRODUCTS: Final = ("attend_product", "dynamic_conv_tiled")  # with what a head does with its outputs
# by entry: what `size` is of
SIZE_DEFINES: Final = dict.fromkeys(("attend", "attend_packed"), "CONVOY_BEAMS") | dict.fromkeys(
    (*PRODUCTS, *HEAD_PRODUCTS), "CONVOY_ROWS"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry of a .cu file, compiled for one type of element and one number of elements loaded at once."""

    file: str
    entry: str
    element: str
    vector: int
    size: int | None = None  # what else its loops are unrolled for: rows, or beams

    @property
    def defines(self) -> dict[str, str]:
        more = {} if self.size is None else {SIZE_DEFINES[self.entry]: str(self.size)}
        return {"CONVOY_ELEMENT": self.element, "CONVOY_VECTOR": str(self.vector)} | more


class Address(int):
    """An address of the device, where no tensor stands for it."""


Argument = c_int32 | c_float | c_void_p
CONVERTED: Final = (c_int32, c_float, c_void_p)


@dataclass(frozen=True, slots=True)
class Call:
    """One launch.

    shared: bytes of dynamic shared memory.
    arguments: in the kernel's order; a tensor stands for its address and None for a null one, any other int
        is a 32-bit integer and float a 32-bit float; what `argument` made stands for itself.
    addresses: of the arguments, where `argument` made them all and they are launched again and again.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Tensor | Argument | int | float | None, ...]
    addresses: Array[c_void_p] | None = None


Run = Callable[[Call], None]


def argument(value: Tensor | Argument | float | None) -> Argument:
    """Convert an argument to what a kernel takes: an address, a 32-bit integer or a 32-bit float."""
    if isinstance(value, CONVERTED):
        return value
    if isinstance(value, Tensor):
        return c_void_p(value.data_ptr())
    if value is None or isinstance(value, Address):
        return c_void_p(value)
    return c_int32(value) if isinstance(value, int) else c_float(value)


def addresses_of(arguments: Sequence[Argument]) -> Array[c_void_p]:
    """List where the arguments of a launch lie, as the driver takes them."""
    return (c_void_p * len(arguments))(*map(addressof, arguments))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def load_form(
    axis: int, *tensors: Tensor | None, most: int = LOAD_BYTES, contiguous: bool = True
) -> tuple[str, int]:
    """Find the element type and vector of a kernel that loads along an axis.

    axis: its size.
    tensors: that are loaded, of one type.
    most: elements at once.
    contiguous: whether all must be.
    """
    there = [t for t in tensors if t is not None]
    size = there[0].element_size()
    assert all((not contiguous or t.is_contiguous()) and t.dtype == there[0].dtype for t in there)
    vector = min(LOAD_BYTES // size, most)
    while axis % vector or any(t.data_ptr() % (vector * size) for t in there):
        vector //= 2
    return ELEMENTS[there[0].dtype], vector


def bucket_of(ladder: Sequence[int], size: int) -> int:
    """Find the first of a ladder that is not below a size, or its last."""
    return next((rung for rung in ladder if rung >= size), ladder[-1])
