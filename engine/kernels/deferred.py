"""Deferred results: operations whose kernel runs only when a later operator shows what can be fused with it.

Under `FusedMode` a DynamicConv layer runs like this in a step of few rows (x is [slots, beams, dim]) that
returns no attention weights:

    code of the layer                        deferred result                       kernels launched
    h = F.glu(linear1(x))                    Product(x, activation "glu")
    t = softmax(unflatten(weight_linear(h))) Softmax(UnflattenedProduct(Product))
    y = dynamic_conv_step(h, t, ring, index)                                       product (linear1, GLU)
                                                                                   dynamic_conv_tiled (taps,
                                                                                   softmax, convolution)
    x = add_norm(x, linear2(y))              Normalisation                         product (linear2, x + y)
    q = q_proj(x) * scale                    Product(x, factor scale)
    c = attend(q, keys, values, mask)                                              product (norm, q_proj)
                                                                                   attend_tiled
    x = add_norm(x, out_proj(c))             Normalisation                         product (out_proj, x + y)
    h = F.relu(fc1(x))                       Product(x, activation "relu")
    x = add_norm(x, fc2(h))                  Normalisation                         product (norm, fc1, ReLU)
                                                                                   product (fc2, x + y)

A product of many rows is computed by cuBLAS, and the additions, norms and gates around it by kernels of their
own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.kernels.linear import EmbeddingLookup, Epilogue, Norm


@dataclass(frozen=True, slots=True)
class Product:
    """A linear map of x [..., dim] by weight [outputs, dim], with an epilogue."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    epilogue: Epilogue = Epilogue()  # noqa: RUF009 (frozen)

    @property
    def plain(self) -> bool:
        """Whether the epilogue is at most a factor."""
        return self.epilogue.activation is None


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Norm of x.

    temperature: float32 [slots], divisor of the rows of each slot after the norm, or None.
    """

    x: Tensor
    norm: Norm
    temperature: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NormalisedSum:
    """Norm of x + added, or of x, for many rows.

    temperature: float32 [slots], divisor of the rows of each slot after the norm, or None.
    total: deferred x + added, if others may read it.
    """

    x: Tensor
    added: Tensor | None
    norm: Norm
    temperature: Tensor | None = None
    total: DeferredTensor | None = None


@dataclass(frozen=True, slots=True)
class ResidualSum:
    """x + added, for many rows: a residual connection in front of a norm."""

    x: Tensor
    added: Tensor


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax over the last axis of logits."""

    logits: Tensor


@dataclass(frozen=True, slots=True)
class ShiftedRows:
    """Row numbers of a table, int64, plus an offset."""

    rows: Tensor
    offset: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """Attention mask of caches (`engine.models.model.Past.lineage`); kernels follow the writers instead.

    writers: int64 [slots, beams, columns], the beam that wrote each column of a hypothesis.
    positions: int64 [slots, 1], column of the new position.
    mask: function that returns the mask.
    """

    writers: Tensor
    positions: Tensor
    mask: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class UnflattenedProduct:
    """A product whose last axis is split into two."""

    product: DeferredTensor


Operation = (
    Product
    | Normalisation
    | NormalisedSum
    | ResidualSum
    | EmbeddingLookup
    | Softmax
    | ShiftedRows
    | Lineage
    | UnflattenedProduct
)


class DeferredTensor(Tensor):
    """The result of an operation, with its shape and type but without values until `FusedMode.value` computes
    `value`. The mode computes the arguments of all operators that it can't fuse."""

    op: Operation
    value: Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(
        cls: type[DeferredTensor],
        op: Operation,
        shape: tuple[int, ...],
        like: Tensor,
    ) -> DeferredTensor:
        """op: the operation.
        shape: shape of the result.
        like: any tensor with the type and device of the result.
        """
        tensor: DeferredTensor = Tensor._make_wrapper_subclass(
            cls, shape, dtype=like.dtype, device=like.device
        )
        tensor.op, tensor.value = op, None
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{func} needs the value of a deferred tensor: call FusedMode.value first")


def pending_operation(x: Tensor) -> Operation | None:
    """Return the operation of a deferred tensor that is not computed yet; None for any other tensor."""
    return x.op if isinstance(x, DeferredTensor) and x.value is None else None


def split_factor(x: Tensor) -> tuple[Tensor, float]:
    """Return a deferred product without the factor of its epilogue, and the factor.

    Returns any other tensor unchanged, and the factor 1.
    """
    op = pending_operation(x)
    if not isinstance(op, Product) or not op.plain:
        return x, 1.0
    plain = replace(op, epilogue=replace(op.epilogue, factor=1.0))
    return DeferredTensor(plain, tuple(x.shape), x), op.epilogue.factor


# Fusing functions stand in for torch operators. They return NotImplemented if they can't fuse.


def fuse_activation(x: Tensor, name: str) -> Any:
    """Add an activation to the epilogue of a product.

    x: tensor to which the activation is applied.
    name: one of `engine.kernels.linear.ACTIVATIONS`.
    """
    op = x.op if isinstance(x, DeferredTensor) else None
    if not isinstance(op, Product) or not op.plain:
        return NotImplemented
    width = x.shape[-1] // 2 if name == "glu" else x.shape[-1]
    epilogue = replace(op.epilogue, activation=name)
    return DeferredTensor(replace(op, epilogue=epilogue), (*x.shape[:-1], width), x)


def fuse_scale(x: Any, factor: Any) -> Any:
    """Multiply the factor of a product or of an embedding lookup."""
    if not isinstance(x, DeferredTensor) or not isinstance(factor, (int, float)):
        return NotImplemented
    if isinstance(x.op, EmbeddingLookup) and x.op.position_rows is None:
        return DeferredTensor(replace(x.op, scale=x.op.scale * factor), tuple(x.shape), x)
    if isinstance(x.op, Product) and x.op.plain:
        epilogue = replace(x.op.epilogue, factor=x.op.epilogue.factor * factor)
        return DeferredTensor(replace(x.op, epilogue=epilogue), tuple(x.shape), x)
    return NotImplemented


def fuse_positions(x: Any, signal: EmbeddingLookup) -> Any:
    """Add a position embedding to an embedding lookup.

    x: deferred embeddings of tokens.
    signal: lookup of one position for each slot.
    """
    op = x.op if isinstance(x, DeferredTensor) else None
    # the kernel adds one unscaled position to all beams of a slot
    simple = signal.scale == 1.0 and signal.position_rows is None and signal.tokens.shape[1] == 1
    if not isinstance(op, EmbeddingLookup) or op.position_rows is not None or not simple:
        return NotImplemented
    if op.tokens.shape[0] != signal.tokens.shape[0]:
        return NotImplemented
    return DeferredTensor(replace(op, position_rows=(signal.tokens, signal.table)), tuple(x.shape), x)


def unflatten_product(x: Any, dim: int, sizes: tuple[int, ...]) -> Any:
    """Split the last axis of a deferred product, for example into the taps of each head.

    x: deferred product.
    dim: axis to split.
    sizes: two sizes of the new axes.
    """
    if not isinstance(x, DeferredTensor) or not isinstance(x.op, Product) or x.value is not None:
        return NotImplemented
    if dim not in (-1, x.dim() - 1) or -1 in sizes:
        return NotImplemented
    return DeferredTensor(UnflattenedProduct(x), (*x.shape[:-1], *sizes), x)
