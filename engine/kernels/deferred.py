"""Results that are not computed yet, so that what follows them in a layer can be computed in the same
kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.kernels.linear import Finish, Lookup, Norm


@dataclass(frozen=True, slots=True)
class Product:
    """A linear map of x [..., dim] by weight [outputs, dim], and what becomes of its sums."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    finish: Finish = Finish()  # noqa: RUF009 (frozen)

    @property
    def plain(self) -> bool:
        """Whether nothing but a factor has become of the sums."""
        return self.finish.activation is None


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Layer norm of x.

    heat: float32 [slots], by which each slot's rows are divided then.
    """

    x: Tensor
    norm: Norm
    heat: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NormalisedSum:
    """Layer norm of x + added, of many rows.

    heat: as of `Normalisation`.
    """

    x: Tensor
    added: Tensor
    norm: Norm
    heat: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax over the last axis of logits."""

    logits: Tensor


@dataclass(frozen=True, slots=True)
class Shifted:
    """Rows of a table, int64, counted from another of its rows."""

    rows: Tensor
    by: int


@dataclass(frozen=True, slots=True)
class Unflattened:
    """A product, its last axis split in two."""

    whole: DeferredTensor


Deferred = Product | Normalisation | NormalisedSum | Lookup | Softmax | Shifted | Unflattened


class DeferredTensor(Tensor):
    """A result that has its shape and type, but no values yet. An operator that knows nothing of deferred
    tensors has them computed; they are then its `value`."""

    what: Deferred
    value: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(
        cls: type[DeferredTensor],
        what: Deferred,
        shape: tuple[int, ...],
        like: Tensor,
    ) -> DeferredTensor:
        """like: a tensor of its type and device."""
        tensor: DeferredTensor = Tensor._make_wrapper_subclass(
            cls, shape, dtype=like.dtype, device=like.device
        )
        tensor.what, tensor.value = what, None
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{func} of a result that is not computed yet: ask the mode that deferred it")


def deferred_of(x: Tensor) -> Deferred | None:
    """Return what was deferred of a tensor and is not computed yet, if anything is.

    x: of any shape.
    """
    return x.what if isinstance(x, DeferredTensor) and x.value is None else None


def without_factor(x: Tensor) -> tuple[Tensor, float]:
    """Return a product without its factor, and the factor, for whoever multiplies by it anyway; 1 for what is
    computed already and what is no product.

    x: of any shape.
    """
    what = deferred_of(x)
    if not isinstance(what, Product) or not what.plain:
        return x, 1.0
    plain = replace(what, finish=replace(what.finish, factor=1.0))
    return DeferredTensor(plain, tuple(x.shape), x), what.finish.factor
