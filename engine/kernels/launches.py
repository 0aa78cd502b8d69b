"""A CUDA kernel and one launch of it, as data: whatever runs launches compiles the kernel for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import Tensor

SIZE_DEFINES: Final = {"product": "CONVOY_ROWS", "attend": "CONVOY_BEAMS"}  # by entry: what `size` is of


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


@dataclass(frozen=True, slots=True)
class Call:
    """One launch.

    shared: bytes of dynamic shared memory.
    arguments: in the kernel's order; a tensor stands for its address and None for a null one, int is a 32-bit
        integer and float a 32-bit float.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Tensor | int | float | None, ...]


Run = Callable[[Call], None]
