"""`ProductMode`: run a model's products of few rows as kernels, with the operators before and after them.

`engine.kernels.deferred` shows how one layer runs under it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from engine.kernels.calls import Kernels
from engine.kernels.deferred import (
    DeferredTensor,
    Lineage,
    Normalisation,
    NormalisedSum,
    Operation,
    Product,
    ResidualSum,
    ShiftedRows,
    Softmax,
    UnflattenedProduct,
    fuse_activation,
    fuse_positions,
    fuse_scale,
    pending_operation,
    unflatten_product,
)
from engine.kernels.int8 import Int8Weight
from engine.kernels.linear import EmbeddingLookup, Epilogue, Norm, is_constant, library_product, wide_product
from engine.kernels.modes import Mode
from engine.kernels.products import FIRST_WIDE_ROWS
from engine.kernels.reference import add_norm

GELUS: Final = {"none": "gelu", "tanh": "gelu_tanh"}  # activations by torch's names of their approximation


class ProductMode(Mode):
    """Defers operators until the next one is known, and fuses products of few rows with their neighbours.

    For inference only: no gradients, no dropout. `value` computes a deferred result.
    """

    def __init__(self, kernels: Kernels, dtype: torch.dtype) -> None:
        """kernels: the kernels of a device.
        dtype: type of the model.
        """
        super().__init__()
        self.kernels, self.dtype = kernels, dtype
        self.table = {
            add_norm: self._add_norm,
            F.linear: self._linear,
            F.relu: lambda x, inplace=False: fuse_activation(x, "relu"),
            F.glu: lambda x, dim=-1: fuse_activation(x, "glu"),
            F.gelu: lambda x, approximate="none": fuse_activation(x, GELUS[approximate]),
            F.silu: lambda x, inplace=False: fuse_activation(x, "silu"),
            F.softmax: self._softmax,
            F.layer_norm: self._layer_norm,
            F.rms_norm: self._rms_norm,
            F.embedding: self._embedding,
            Tensor.unflatten: unflatten_product,
            Tensor.mul: fuse_scale,
            Tensor.add: self._fuse_addition,
            Tensor.div: self._fuse_temperature,
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator by `table`, or on the computed values of its arguments as in torch."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "__get__":  # a shape or a type, known without computing
            return func(*args)
        if func in self.table:
            result = self.table[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        args, kwargs = tree_map(self.value, (args, kwargs))
        return func(*args, **kwargs)

    def value(self, x: Any) -> Any:
        """Compute `x` if it is a deferred tensor or a weight of 8 bits, else return it."""
        if isinstance(x, Int8Weight):
            return self.kernels.expand(x) if x.table is None else x.table
        if not isinstance(x, DeferredTensor):
            return x
        if x.value is None:
            x.value = self._compute(x.op).view(x.shape)
        return x.value

    def compute_all(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the tensors that leave the mode."""
        with torch._C.DisableTorchFunction():
            return {name: self.value(part) for name, part in parts.items()}

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute a linear map with a float32 result from inputs and weights of the model's type.

        x: [..., dim].
        weight: [outputs, dim].
        bias: [outputs] or None.
        """
        with torch._C.DisableTorchFunction():  # another mode is the caller
            if self._takes_product(x, weight):
                return self._product(Product(x, weight, bias, Epilogue(float32=True)))
            return wide_product(self._computed(x), self.value(weight), bias)

    def logits_among(self, x: Tensor, output: tuple[Tensor, Tensor | None], among: Tensor) -> Tensor | None:
        """Compute `project_among` with a float32 result by its kernel; return None if the kernel can't.

        x: hidden states.
        output: weight and bias of the output projection.
        among: tokens of each row's shortlist.
        """
        weight, op = output[0], pending_operation(x)
        norm = op.norm if isinstance(op, Normalisation) else None
        if not is_constant(weight) or not self.kernels.takes_list(x, weight, norm):
            return None
        with torch._C.DisableTorchFunction():  # another mode is the caller
            rows, norm, temperature = self._split_norm(x)
            y, value = self.kernels.listed_product(rows, output, among, norm, temperature)
        if isinstance(x, DeferredTensor) and value is not None:
            x.value = value
        return y

    # --- operators that defer their result, or return NotImplemented to run as in torch

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        """Defer a product, for a contiguous weight of the model's type."""
        if weight.dtype != self.dtype or not weight.is_contiguous():
            return NotImplemented
        return DeferredTensor(Product(x, weight, bias), (*x.shape[:-1], weight.shape[0]), weight)

    def _embedding(self, tokens: Tensor, table: Tensor, *_: Any, **__: Any) -> Any:
        """Defer an embedding lookup; an offset of its rows becomes a slice of the table."""
        shifted, table = pending_operation(tokens), self.value(table)
        if isinstance(shifted, ShiftedRows) and shifted.offset >= 0:
            tokens, table = shifted.rows, table[shifted.offset :]
        if tokens.dim() != 2 or tokens.dtype != torch.int64 or table.dtype != self.dtype:
            return NotImplemented
        return DeferredTensor(EmbeddingLookup(tokens, table), (*tokens.shape, table.shape[1]), table)

    def _fuse_addition(self, x: Any, y: Any, *, alpha: float = 1) -> Any:
        """Fuse adding a position embedding, a residual connection, or an offset of rows."""
        if alpha != 1:
            return NotImplemented
        if isinstance(x, Tensor) and x.dtype == torch.int64 and isinstance(y, int):
            return DeferredTensor(ShiftedRows(self.value(x), y), tuple(x.shape), x)
        if isinstance(y, DeferredTensor) and isinstance(y.op, EmbeddingLookup):
            return fuse_positions(x, y.op)
        if isinstance(y, DeferredTensor) and isinstance(x, Tensor) and x.shape == y.shape:
            return self._residual_sum(y, x)
        return NotImplemented

    def _residual_sum(self, y: DeferredTensor, x: Tensor) -> Any:
        """Compute x + y in the kernel of y, or defer it, for many rows, to the norm that reads it."""
        total = self._residual(y, x)
        if (
            total is not NotImplemented
            or x.dim() != 3
            or x.dtype != self.dtype
            or not isinstance(y.op, Product)
        ):
            return total
        added = self._computed(y)  # computes the norm of x too, which may provide x
        return DeferredTensor(ResidualSum(self._computed(x), added), tuple(x.shape), x)

    def _residual(self, y: Tensor, x: Tensor) -> Any:
        """Compute x + y in float32 in the kernel of y, a product of few rows."""
        op = y.op if isinstance(y, DeferredTensor) else None
        if not isinstance(op, Product) or not op.plain or not self._takes_product(op.x, op.weight):
            return NotImplemented
        if math.prod(op.x.shape[:-1]) >= FIRST_WIDE_ROWS:  # the norm behind it takes the sum instead
            return NotImplemented
        if not (isinstance(op.x, DeferredTensor) and isinstance(op.x.op, Normalisation)):
            op = replace(op, x=self.value(op.x))  # may also compute the norm of which x is the value
        epilogue = replace(op.epilogue, residual=self.value(x).contiguous(), float32=True)
        return self._product(replace(op, epilogue=epilogue))

    def _layer_norm(
        self,
        x: Tensor,
        shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Any:
        if weight is None or bias is None or len(shape) != 1 or weight.dtype != self.dtype:
            return NotImplemented
        return self._norm(x, Norm(weight, bias, eps))

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Any:
        if weight is None or eps is None or len(shape) != 1 or weight.dtype != self.dtype:
            return NotImplemented
        return self._norm(x, Norm(weight, None, eps))

    def _norm(self, x: Tensor, norm: Norm) -> Any:
        """Defer a norm: of few rows, for the product that reads it, and of many with the sum before it."""
        gain, summed = norm.gain, pending_operation(x)
        if isinstance(summed, ResidualSum) and isinstance(x, DeferredTensor):
            op = NormalisedSum(summed.x, summed.added, norm, total=x)
            return DeferredTensor(op, tuple(x.shape), gain)
        x = self.value(x)
        if self._takes_product(x, gain[None], norm):
            return DeferredTensor(Normalisation(x.contiguous(), norm), tuple(x.shape), gain)
        if x.dtype != self.dtype or x.dim() != 3 or not x.is_contiguous():
            return NotImplemented
        return DeferredTensor(NormalisedSum(x, None, norm), tuple(x.shape), gain)

    def _add_norm(self, x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        """Defer the norm of x + added: the product that makes `added` adds x, if it has few rows."""
        total = self._residual(added, x)
        if total is not NotImplemented:
            return DeferredTensor(Normalisation(total, Norm(gain, bias, epsilon)), tuple(total.shape), gain)
        op = NormalisedSum(self._computed(x), self._computed(added), Norm(gain, bias, epsilon))
        return DeferredTensor(op, tuple(x.shape), gain)

    def _fuse_temperature(self, x: Any, temperature: Any) -> Any:
        """Fuse the division by each slot's temperature [slots, 1, 1] with the norm before it."""
        op = pending_operation(x)
        per_slot = (
            isinstance(temperature, Tensor)
            and temperature.shape == (x.shape[0], 1, 1)
            and temperature.dtype == torch.float32
        )
        if per_slot and not isinstance(x, DeferredTensor) and x.dtype == self.dtype != torch.float32:
            return torch.div(x, temperature, out=torch.empty_like(x))  # in one kernel, for a product
        if not isinstance(op, Normalisation | NormalisedSum) or op.temperature is not None or not per_slot:
            return NotImplemented
        return DeferredTensor(replace(op, temperature=temperature.reshape(-1)), tuple(x.shape), x)

    def _softmax(
        self, logits: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Any:
        if dim != -1 or dtype is not None or logits.dtype != self.dtype:
            return NotImplemented
        if not isinstance(logits, DeferredTensor) and not logits.is_contiguous():
            return NotImplemented
        return DeferredTensor(Softmax(logits), tuple(logits.shape), logits)

    # --- computing deferred results

    def _compute(self, op: Operation) -> Tensor:
        """Run the kernels of a deferred operation."""
        match op:
            case Product():
                return self._product(op)
            case EmbeddingLookup():
                return self.kernels.embed(op.tokens, op.table, op.scale, op.position_rows)
            case Softmax():
                return F.softmax(self.value(op.logits), dim=-1)
            case UnflattenedProduct():
                product: Tensor = self.value(op.product)
                return product
            case ShiftedRows():
                return op.rows + op.offset
            case Normalisation():
                x, norm = op.x, op.norm
                if x.dtype == self.dtype:
                    y = self.kernels.add_norm(x, None, norm)[1]
                else:
                    y = norm.plainly(x).to(self.dtype)
                return y if op.temperature is None else y / op.temperature[:, None, None]
            case NormalisedSum():
                return self._normalised_sum(op)
            case ResidualSum():
                return op.x + op.added
            case Lineage():
                return op.mask()

    def _normalised_sum(self, op: NormalisedSum) -> Tensor:
        """Return the norm of x + added; the same kernel computes the sum if others may read it."""
        x, added, norm, total = op.x, op.added, op.norm, op.total
        wanted = total is not None and total.value is None
        summed, y = self.kernels.add_norm(x, added, norm, total=wanted, temperature=op.temperature)
        if total is not None and summed is not None:
            total.value = summed
        return y

    def _product(self, op: Product) -> Tensor:
        """Compute a product and its epilogue: by our kernel if that accepts it, otherwise by torch's."""
        x, weights, epilogue = op.x, (op.weight, op.bias), op.epilogue
        glu = epilogue.activation == "glu"
        if not self._takes_product(x, op.weight, glu=glu):
            y = library_product(self._computed(x), self.value(op.weight), op.bias, epilogue)
            return self.kernels.glu(y) if glu else y
        constant, lookup = is_constant(op.weight), pending_operation(x)
        if (
            constant
            and isinstance(lookup, EmbeddingLookup)
            and self.kernels.takes_lookup(lookup, op.weight, glu=glu)
        ):
            y, value = self.kernels.product(lookup, weights, epilogue, constant=True)
        else:
            rows, norm, temperature = self._split_norm(x)
            y, value = self.kernels.product(rows, weights, epilogue, norm, temperature, constant=constant)
        # the kernel also returns the norm or the embeddings in front of it, for other readers
        if isinstance(x, DeferredTensor) and value is not None:
            x.value = value
        return y

    def _split_norm(self, x: Tensor) -> tuple[Tensor, Norm | None, Tensor | None]:
        """Return the input rows of a product, and the norm and temperature in front of it, if deferred."""
        op = pending_operation(x)
        if isinstance(op, Normalisation):
            return op.x, op.norm, op.temperature
        rows = self.value(x)
        return (rows if rows.dtype == torch.float32 else rows.to(self.dtype)).contiguous(), None, None

    def _takes_product(
        self, x: Tensor, weight: Tensor, norm: Norm | None = None, *, glu: bool = False
    ) -> bool:
        """Return whether our kernel takes a product: few rows, or any number that tensor cores take."""
        if isinstance(op := pending_operation(x), Normalisation):
            norm = op.norm
        return x.dim() == 3 and self.kernels.fits(x, weight, norm, constant=is_constant(weight), glu=glu)

    def _computed(self, x: Tensor) -> Tensor:
        """Return the value of x, contiguous and in the type of the model."""
        value: Tensor = self.value(x)
        return value.to(self.dtype).contiguous()
