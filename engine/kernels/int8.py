"""Weights of 8 bits with a scale for each row, in products whose inputs have 16 bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Bytes(NamedTuple):
    """The parts of a weight that kernels read.

    values: int8 [outputs, dim].
    scales: float32 [outputs].
    """

    values: Tensor
    scales: Tensor


class Int8Weight(Tensor):
    """A parameter [outputs, dim] of int8 numbers with a scale for each output. Only `ProductMode` can use it.

    parts: the numbers.
    table: the same rows in the type of the model, if the model also looks them up; None otherwise.
    """

    parts: Bytes
    table: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(
        cls: type[Int8Weight], parts: Bytes, dtype: torch.dtype, table: Tensor | None = None
    ) -> Int8Weight:
        """parts: the numbers, on the device of the model.
        dtype: type of the model.
        table: rows that are looked up, or None.
        """
        values = parts.values
        weight: Int8Weight = Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=dtype, device=values.device
        )
        weight.parts, weight.table, weight._is_param = parts, table, True
        return weight

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{func} has no version for weights of 8 bits")


def bytes_of(weight: Tensor) -> Bytes | None:
    """Return the numbers of a weight of 8 bits; None for any other weight."""
    return weight.parts if isinstance(weight, Int8Weight) else None


def stored(weight: Tensor) -> Tensor:
    """Return the tensor whose memory a kernel reads for a weight."""
    return weight.parts.values if isinstance(weight, Int8Weight) else weight
