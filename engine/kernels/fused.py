"""The mode under which a model runs with our CUDA kernels in the place of the torch reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from engine.kernels.ahead import Ahead, Remembered, Windows
from engine.kernels.calls import Kernels, PackedSequences
from engine.kernels.deferred import (
    Deferred,
    DeferredTensor,
    Normalisation,
    NormalisedSum,
    Product,
    Shifted,
    Softmax,
    Unflattened,
    deferred_of,
    without_factor,
)
from engine.kernels.linear import Finish, Lookup, Norm, is_constant, library_product, wide_product
from engine.kernels.modes import Mode
from engine.kernels.reference import (
    QKV,
    add_norm,
    attend,
    attend_whole,
    attend_whole_plainly,
    dynamic_conv,
    dynamic_conv_step,
    ssru_step,
)


class FusedMode(Mode):
    """Within it the reference's operators run as kernels, and products of few rows together with what stands
    before and behind them. For inference: without gradients or dropout.

    A result that a later operator may take in is deferred (`engine.kernels.deferred`); `value` computes it.
    For a new mixer add its operator to `reference.py`, a kernel, and a line to `table`.

    clock: int64 [1], of rings that the step's convolutions append to themselves; they note those in
        `appended`, by their addresses.
    weights: whether those of attention are wanted.
    packed: of sequences that lie packed one behind the other.
    """

    def __init__(
        self,
        kernels: Kernels,
        dtype: torch.dtype,
        clock: Tensor | None = None,
        *,
        weights: bool = True,
        packed: PackedSequences | None = None,
    ) -> None:
        super().__init__()
        self.packed = packed
        self.kernels, self.dtype, self.clock, self.weights = kernels, dtype, clock, weights
        self.appended: set[int] = set()
        self.table = {
            dynamic_conv_step: self._step,
            dynamic_conv: self._whole,
            ssru_step: self._ssru_step,
            attend: self._attend,
            attend_whole: self._attend_whole,
            add_norm: self._add_norm,
            F.linear: self._linear,
            F.relu: lambda x, inplace=False: self._fuse_activation(x, "relu"),
            F.glu: lambda x, dim=-1: self._fuse_activation(x, "glu"),
            F.softmax: self._softmax,
            F.layer_norm: self._layer_norm,
            F.embedding: self._embedding,
            Tensor.unflatten: self._unflatten,
            Tensor.mul: self._fuse_scale,
            Tensor.add: self._fuse_addition,
            Tensor.div: self._fuse_temperature,
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "__get__":  # a shape, a type: they are known
            return func(*args)
        if func in self.table:
            result = self.table[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        args, kwargs = tree_map(self.value, (args, kwargs))
        return func(*args, **kwargs)

    def value(self, x: Any) -> Any:
        """Return a tensor itself, or compute what was deferred of it."""
        if not isinstance(x, DeferredTensor):
            return x
        if x.value is None:
            x.value = self._compute(x.what).view(x.shape)
        return x.value

    def settle(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute all values of what leaves the mode."""
        with torch._C.DisableTorchFunction():
            return {name: self.value(part) for name, part in parts.items()}

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute a linear map in float32, of inputs and weights of the model's type.

        x: [..., dim].
        weight: [outputs, dim].
        bias: [outputs], or none.
        """
        with torch._C.DisableTorchFunction():  # another mode calls: this one must not see the deferred
            if self._few(x, weight):
                return self._product(Product(x, weight, bias, Finish(wide=True)))
            return wide_product(self._own(x), weight, bias)

    # --- deferring

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        if weight.dtype != self.dtype or not weight.is_contiguous():
            return NotImplemented
        return DeferredTensor(Product(x, weight, bias), (*x.shape[:-1], weight.shape[0]), weight)

    def _fuse_activation(self, x: Tensor, name: str) -> Any:
        what = x.what if isinstance(x, DeferredTensor) else None
        if not isinstance(what, Product) or not what.plain:
            return NotImplemented
        width = x.shape[-1] // 2 if name == "glu" else x.shape[-1]
        finish = replace(what.finish, activation=name)
        return DeferredTensor(replace(what, finish=finish), (*x.shape[:-1], width), x)

    def _fuse_scale(self, x: Any, factor: Any) -> Any:
        if not isinstance(x, DeferredTensor) or not isinstance(factor, (int, float)):
            return NotImplemented
        if isinstance(x.what, Lookup) and x.what.signals is None:
            return DeferredTensor(replace(x.what, scale=x.what.scale * factor), tuple(x.shape), x)
        if isinstance(x.what, Product) and x.what.plain:
            finish = replace(x.what.finish, factor=x.what.finish.factor * factor)
            return DeferredTensor(replace(x.what, finish=finish), tuple(x.shape), x)
        return NotImplemented

    def _unflatten(self, x: Any, dim: int, sizes: tuple[int, ...]) -> Any:
        """The taps of each head."""
        if not isinstance(x, DeferredTensor) or not isinstance(x.what, Product) or x.value is not None:
            return NotImplemented
        if dim not in (-1, x.dim() - 1) or -1 in sizes:
            return NotImplemented
        return DeferredTensor(Unflattened(x), (*x.shape[:-1], *sizes), x)

    def _embedding(self, tokens: Tensor, table: Tensor, *_: Any, **__: Any) -> Any:
        shifted = deferred_of(tokens)
        if isinstance(shifted, Shifted) and shifted.by >= 0:
            tokens, table = shifted.rows, table[shifted.by :]
        if tokens.dim() != 2 or tokens.dtype != torch.int64 or table.dtype != self.dtype:
            return NotImplemented
        return DeferredTensor(Lookup(tokens, table), (*tokens.shape, table.shape[1]), table)

    def _fuse_addition(self, x: Any, y: Any, *, alpha: float = 1) -> Any:
        """A position's signal to a token's embedding, or a residual connection around a product."""
        if alpha != 1:
            return NotImplemented
        if isinstance(x, Tensor) and x.dtype == torch.int64 and isinstance(y, int):
            return DeferredTensor(Shifted(self.value(x), y), tuple(x.shape), x)
        if isinstance(y, DeferredTensor) and isinstance(y.what, Lookup):
            return self._fuse_positions(x, y.what)
        if isinstance(y, DeferredTensor) and isinstance(x, Tensor) and x.shape == y.shape:
            return self._residual(y, x)
        return NotImplemented

    def _fuse_positions(self, x: Any, signal: Lookup) -> Any:
        what = x.what if isinstance(x, DeferredTensor) else None
        simple = signal.scale == 1.0 and signal.signals is None and signal.tokens.shape[1] == 1
        if not isinstance(what, Lookup) or what.signals is not None or not simple:
            return NotImplemented
        if what.tokens.shape[0] != signal.tokens.shape[0]:
            return NotImplemented
        return DeferredTensor(replace(what, signals=(signal.tokens, signal.table)), tuple(x.shape), x)

    def _residual(self, y: Tensor, x: Tensor) -> Any:
        """x + y in float32, where y is a product of few rows."""
        what = y.what if isinstance(y, DeferredTensor) else None
        if not isinstance(what, Product) or not what.plain or not self._few(what.x, what.weight):
            return NotImplemented
        if not (isinstance(what.x, DeferredTensor) and isinstance(what.x.what, Normalisation)):
            what = replace(what, x=self.value(what.x))  # first: it may compute the norm that x is
        finish = replace(what.finish, residual=self.value(x).contiguous(), wide=True)
        return self._product(replace(what, finish=finish))

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
        x, norm = self.value(x), Norm(weight, bias, eps)
        if not self._few(x, weight[None], norm):
            return NotImplemented
        return DeferredTensor(Normalisation(x.contiguous(), norm), tuple(x.shape), weight)

    def _fuse_temperature(self, x: Any, heat: Any) -> Any:
        what = deferred_of(x)
        slots = isinstance(heat, Tensor) and heat.shape == (x.shape[0], 1, 1) and heat.dtype == torch.float32
        if slots and not isinstance(x, DeferredTensor) and x.dtype == self.dtype != torch.float32:
            return torch.div(x, heat, out=torch.empty_like(x))  # in one kernel, for a product
        if not isinstance(what, Normalisation | NormalisedSum) or what.heat is not None or not slots:
            return NotImplemented
        return DeferredTensor(replace(what, heat=heat.reshape(-1)), tuple(x.shape), x)

    def _softmax(
        self, logits: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Any:
        if dim != -1 or dtype is not None or logits.dtype != self.dtype:
            return NotImplemented
        if not isinstance(logits, DeferredTensor) and not logits.is_contiguous():
            return NotImplemented
        return DeferredTensor(Softmax(logits), tuple(logits.shape), logits)

    # --- computing

    def _compute(self, what: Deferred) -> Tensor:
        match what:
            case Product():
                return self._product(what)
            case Lookup():
                return self.kernels.embed(what.tokens, what.table, what.scale, what.signals)
            case Softmax():
                return F.softmax(self.value(what.logits), dim=-1)
            case Unflattened():
                whole: Tensor = self.value(what.whole)
                return whole
            case Shifted():
                return what.rows + what.by
            case Normalisation():
                x, norm = what.x, what.norm
                if x.dtype == self.dtype:
                    y = self.kernels.add_norm(x, None, norm)[1]
                else:
                    gain, shift = norm.gain.to(x.dtype), norm.shift.to(x.dtype)
                    y = torch.layer_norm(x, gain.shape, gain, shift, norm.epsilon).to(self.dtype)
                return y if what.heat is None else y / what.heat[:, None, None]

            case NormalisedSum():
                return self._normalised_sum(what)

    def _normalised_sum(self, what: NormalisedSum, ahead: Ahead | None = None) -> Tensor:
        return self.kernels.add_norm(what.x, what.added, what.norm, heat=what.heat, ahead=ahead)[1]

    def _product(self, what: Product) -> Tensor:
        x, weights, finish = what.x, (what.weight, what.bias), what.finish
        glu = finish.activation == "glu"
        if not self._few(x, what.weight, glu=glu):
            y = library_product(self._own(x), *weights, finish)
            return self.kernels.glu(y) if glu else y
        constant, fed = is_constant(what.weight), deferred_of(x)
        if constant and isinstance(fed, Lookup) and self.kernels.takes_lookup(fed, what.weight, glu=glu):
            y, value = self.kernels.product(fed, weights, finish, constant=True)
        else:
            rows, norm, heat = self._rows(x)
            y, value = self.kernels.product(rows, weights, finish, norm, heat, constant=constant)
        # whoever wants the norm itself, or the embeddings, finds them there
        if isinstance(x, DeferredTensor) and value is not None:
            x.value = value
        return y

    def _ask_ahead(self, product: Tensor, ahead: Ahead) -> None:
        """Compute the norm of many rows that a product is of, and have it ask for what is read behind that.

        Of anything else nothing is computed, and nothing asked for.
        """
        made = deferred_of(product)
        x = made.x if isinstance(made, Product) else None
        summed = None if x is None else deferred_of(x)
        if isinstance(x, DeferredTensor) and isinstance(summed, NormalisedSum):
            x.value = self._normalised_sum(summed, ahead)

    def _rows(self, x: Tensor) -> tuple[Tensor, Norm | None, Tensor | None]:
        """Return the rows of a product, and the norm and the divisors that are in front of it."""
        what = deferred_of(x)
        if isinstance(what, Normalisation):
            return what.x, what.norm, what.heat
        rows = self.value(x)
        return (rows if rows.dtype == torch.float32 else rows.to(self.dtype)).contiguous(), None, None

    def _few(self, x: Tensor, weight: Tensor, norm: Norm | None = None, *, glu: bool = False) -> bool:
        if isinstance(what := deferred_of(x), Normalisation):
            norm = what.norm
        return x.dim() == 3 and self.kernels.fits(x, weight, norm, constant=is_constant(weight), glu=glu)

    def _step(self, x: Tensor, taps: Tensor, ring: Tensor | None, index: Tensor | None) -> Tensor:
        if ring is None or index is None:
            x, (taps, softmax) = self._own(x), self._taps(taps)
            return self.kernels.dynamic_conv_step(x, taps, None, None, softmax=softmax)
        index = index.contiguous()
        self._ask_ahead(x, Windows(ring, index))
        found = self._tapped_step(x, taps, ring, index)
        if found is not None:
            return found
        x, (taps, softmax) = self._own(x), self._taps(taps)
        if self.clock is None:
            return self.kernels.dynamic_conv_step(x, taps, ring.contiguous(), index, softmax=softmax)
        self.appended.add(ring.data_ptr())
        window = ring, index, self.clock  # a ring that is not in one piece is refused there
        return self.kernels.dynamic_conv_step_append(x, taps, window, softmax=softmax)

    def _tapped_step(self, x: Tensor, taps: Tensor, ring: Tensor, index: Tensor) -> Tensor | None:
        """Do a step that makes its own taps, a product of few rows of x; None where it can't."""
        heads, softmax = deferred_of(taps), False
        if isinstance(heads, Softmax):
            heads, softmax = deferred_of(heads.logits), True
        made = deferred_of(heads.whole) if isinstance(heads, Unflattened) else None
        if (
            not isinstance(made, Product)
            or made.x is not x
            or made.bias is not None
            or made.finish != Finish()
        ):
            return None
        if self.clock is None or taps.dim() != 4:
            return None
        own, kernels = self._own(x), (taps.shape[2], taps.shape[3])
        if not self.kernels.takes_taps(own, made.weight, ring, kernels):
            return None
        self.appended.add(ring.data_ptr())
        window = ring, index, self.clock
        return self.kernels.dynamic_conv_product(own, made.weight, window, kernels, softmax=softmax)

    def _whole(self, x: Tensor, taps: Tensor, left: int) -> Tensor:
        own, softmax = self._taps(taps)
        return self.kernels.dynamic_conv(self._own(x), own, left, self.packed, softmax=softmax)

    def _attend_whole(
        self, own: QKV, mask: Tensor, heads: int, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        if self.packed is None:
            with self:
                return attend_whole_plainly(own, mask, heads, bias, dropout)
        assert bias is None and not dropout
        q, scale = without_factor(own.q)
        q, keys, values = map(self._own, (q, own.key, own.value))
        return self.kernels.attend_packed(QKV(q, keys, values), self.packed, heads, scale=scale)

    def _taps(self, taps: Tensor) -> tuple[Tensor, bool]:
        """Taps, and whether their softmax is left to the kernel."""
        if isinstance(taps, DeferredTensor) and isinstance(taps.what, Softmax) and taps.value is None:
            return self._own(taps.what.logits), True
        return self._own(taps), False

    def _ssru_step(self, candidate: Tensor, gate: Tensor, ring: Tensor, index: Tensor) -> Any:
        if ring.dtype != torch.float32 or not ring.is_contiguous():
            return NotImplemented
        append = self.clock is not None
        if append:
            self.appended.add(ring.data_ptr())
        past = ring, index.contiguous()
        return self.kernels.ssru_step(self._own(candidate), self._own(gate), *past, append=append)

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float = 0.0, shown: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        assert not dropout
        (q, scale), memory = without_factor(q), (keys, values, mask)
        self._ask_ahead(q, Remembered(keys, values))
        made = deferred_of(q)
        if not self.weights and isinstance(made, Product) and made.finish == Finish() and q.dim() == 3:
            rows, norm, heat = self._rows(made.x)
            if heat is None and self.kernels.takes_queries(rows, made.weight, norm, memory):
                weights = made.weight, made.bias
                context, value = self.kernels.attend_product(rows, weights, scale, norm, memory)
                if isinstance(made.x, DeferredTensor) and value is not None:
                    made.x.value = value
                return context, None
        q = self._own(q)
        return self.kernels.attend(q, memory, weights=self.weights, shown=shown, scale=scale)

    def _add_norm(self, x: Tensor, added: Tensor, gain: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        total = self._residual(added, x)
        if total is not NotImplemented:
            return DeferredTensor(Normalisation(total, Norm(gain, bias, epsilon)), tuple(total.shape), gain)
        what = NormalisedSum(self._own(x), self._own(added), Norm(gain, bias, epsilon))
        return DeferredTensor(what, tuple(x.shape), gain)

    def _own(self, x: Tensor) -> Tensor:
        own: Tensor = self.value(x)
        return own.to(self.dtype).contiguous()
