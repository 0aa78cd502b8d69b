"""The weights of a bundle: floats, and int8 weights exactly as a quantised file had them.

An int8 weight is two or three tensors of model.safetensors: `NAME` (int8 [rows, columns]), `NAME.scale`
(fp32 [1], or [rows]) and optionally `NAME.alpha` (fp32 [1]). The weight is `NAME` times `NAME.scale`. The
activations that it multiplies are rounded to int8 after multiplication by `NAME.alpha`, or, without alpha,
row by row. `quantize_rows` stores float weights in the same form for a smaller file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.bundle.tensors import SharedArrays, Spec, TensorPart, write_tensors
from engine.errors import BundleError

Floats = NDArray[np.float32]
SCALE: Final = ".scale"
ALPHA: Final = ".alpha"
PIECE: Final = 1 << 22  # number of elements that are written at once
LARGEST_INT8: Final = 127  # -128 is not used, because +128 does not exist


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """An int8 weight with its scale and alpha, as described above."""

    values: NDArray[np.int8]
    scale: Floats
    alpha: Floats | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def T(self) -> QuantizedWeight:  # noqa: N802  (numpy's name)
        """Return the transposed weight; only valid with a single scale."""
        return replace(self, values=self.values.T)

    @property
    def scales(self) -> Floats:
        """Return the scale of each row, fp32 [rows]."""
        return np.ascontiguousarray(np.broadcast_to(self.scale, self.values.shape[:1]))

    @property
    def wide(self) -> Floats:
        """Return the weight as floats."""
        column = self.scale.reshape(-1, *[1] * (self.values.ndim - 1))
        return self.values.astype(np.float32) * column

    def problems(self) -> Iterator[str]:
        """Yield the errors of types, shapes and values."""
        if self.values.dtype != np.int8 or self.values.ndim != 2:
            yield f"holds {self.values.dtype} {self.values.shape}, not int8 of two dimensions"
        elif self.values.size and self.values.min() < -LARGEST_INT8:
            yield f"holds values below -{LARGEST_INT8}"
        if self.scale.shape not in ((1,), self.values.shape[:1]):
            yield f"has scales of shape {self.scale.shape}, not one or one per row"
        for part in (self.scale, *([] if self.alpha is None else [self.alpha])):
            if part.dtype != np.float32 or not (np.isfinite(part) & (part >= 0)).all():
                yield "has a scale that is not a finite number of at least 0"
        if self.alpha is not None and (self.alpha.shape != (1,) or not self.alpha.all()):
            yield "has an alpha that is not one positive number"


@dataclass(frozen=True, slots=True)
class LazyWeight:
    """A weight that is computed when it is written, so that only one at a time is in memory.

    shape: shape of the array that `make` returns.
    make: function that returns the weight as fp16 or fp32.
    int8: round the weight to int8, row by row.
    """

    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]
    int8: bool = False


Stored: TypeAlias = NDArray[Any] | QuantizedWeight | LazyWeight


class Weights(Mapping[str, Floats]):
    """All weights by name, converted to float32 at each access.

    quantized: int8 weights.
    packed: int8 weights in the order of native products.
    shared: arrays computed from weights that are shared with other processes, or None.
    """

    def __init__(
        self,
        stored: Mapping[str, NDArray[Any]],
        packed: Mapping[str, NDArray[Any]] | None = None,
        shared: SharedArrays | None = None,
    ) -> None:
        """stored: the tensors of a file.
        packed: int8 weights in the order of native products, by `packed_name`.
        shared: arrays that are shared with other processes, or None.

        Raises ValueError that names a tensor of the wrong type or shape.
        """
        int8 = {name for name, tensor in stored.items() if tensor.dtype == np.int8}
        # tensors that belong to an int8 weight
        parts = {name + end for name in int8 for end in (SCALE, ALPHA)}
        self.quantized = {name: _read_quantized(name, stored) for name in sorted(int8)}
        self.packed, self.shared = {} if packed is None else packed, shared
        self._floats = {name: stored[name] for name in stored if name not in int8 | parts}
        wrong = sorted(n for n, w in self._floats.items() if w.dtype not in (np.float16, np.float32))
        if wrong:
            raise ValueError(f"{wrong[0]} is {stored[wrong[0]].dtype}, not fp16, fp32 or int8")

    def __getitem__(self, name: str) -> Floats:
        if name in self.quantized:
            return self.quantized[name].wide
        return self._floats[name].astype(np.float32, copy=False)

    def __contains__(self, name: object) -> bool:
        return name in self._floats or name in self.quantized  # without converting the weight

    def __iter__(self) -> Iterator[str]:
        yield from self._floats
        yield from self.quantized

    def __len__(self) -> int:
        return len(self._floats) + len(self.quantized)


def quantize_rows(weight: NDArray[Any]) -> QuantizedWeight:
    """Return a weight [rows, columns] rounded to int8 with a scale for each row. A weight that was rounded in
    this way before keeps its values."""
    wide = np.asarray(weight, np.float32)
    scale: Floats = np.maximum(np.abs(wide).max(axis=1), np.float32(1e-30)) / np.float32(LARGEST_INT8)
    return QuantizedWeight(np.rint(wide / scale[:, None]).astype(np.int8), scale)


def packed_name(name: str, form: str) -> str:
    """Return the name of a weight in a form of `engine.bundle.recipes`."""
    return f"{name}:{form}"


def write_weights(out: Path, *, path: Path, weights: Mapping[str, Stored], half: bool) -> None:
    """Write the weights of a bundle, one at a time.

    out: file to write.
    path: folder of the bundle, for error messages.
    weights: weights by name, of any float type; int8 stays int8.
    half: store floats as fp16 instead of fp32.

    Raises BundleError on values that are not finite in the stored type.
    """
    floats, names = np.dtype(np.float16 if half else np.float32), sorted(weights)
    specs = {n: spec for name in names for n, spec in specs_of(name, weights[name], floats).items()}

    def parts() -> Iterator[TensorPart]:
        for name in names:
            try:
                yield from parts_of(name, weights[name], floats)
            except ValueError as error:
                raise BundleError(
                    f"{path / out.name}: {name} holds values that are not finite numbers: {error}"
                ) from None

    write_tensors(out, specs, parts())


def specs_of(name: str, weight: Stored, floats: np.dtype[Any]) -> dict[str, Spec]:
    """Return the types and shapes of the tensors in model.safetensors that represent a weight, by name.

    name: name of the weight.
    weight: floats, int8 or a lazy weight.
    floats: type in which floats are stored.
    """
    scale, int8 = np.dtype(np.float32), np.dtype(np.int8)
    if isinstance(weight, QuantizedWeight):
        specs = {name: Spec(int8, weight.shape), name + SCALE: Spec(scale, weight.scale.shape)}
        return specs if weight.alpha is None else specs | {name + ALPHA: Spec(scale, weight.alpha.shape)}
    if isinstance(weight, LazyWeight) and weight.int8:
        return {name: Spec(int8, weight.shape), name + SCALE: Spec(scale, weight.shape[:1])}
    return {name: Spec(floats, tuple(weight.shape))}


def parts_of(name: str, weight: Stored, floats: np.dtype[Any]) -> Iterator[TensorPart]:
    """Yield the contents of the tensors of `specs_of` in parts.

    Raises ValueError on values that are not finite in the stored type; the message is the remedy.

    name: name of the weight.
    weight: floats, int8 or a lazy weight.
    floats: type in which floats are stored.
    """
    if isinstance(weight, QuantizedWeight):
        yield TensorPart(name, weight.values)
        yield TensorPart(name + SCALE, weight.scale)
        if weight.alpha is not None:
            yield TensorPart(name + ALPHA, weight.alpha)
        return
    values = weight.make() if isinstance(weight, LazyWeight) else np.asarray(weight)
    rows = values.reshape(values.shape[0] if values.ndim else 1, -1)
    step = max(1, PIECE // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        piece = rows[first : first + step]
        if isinstance(weight, LazyWeight) and weight.int8:
            int8_rows = quantize_rows(piece)
            yield TensorPart(name, int8_rows.values, first * rows.shape[1])
            yield TensorPart(name + SCALE, int8_rows.scale, first)
            stored: NDArray[Any] = int8_rows.scale
        else:
            with np.errstate(over="ignore"):
                stored = np.ascontiguousarray(piece, floats)
            yield TensorPart(name, stored, first * rows.shape[1])
        if not np.isfinite(stored).all():
            raise ValueError("store it as fp32" if np.isfinite(piece).all() else "the checkpoint is damaged")


def _read_quantized(name: str, stored: Mapping[str, NDArray[Any]]) -> QuantizedWeight:
    """Return the int8 weight of a name. Raises ValueError, which names the wrong tensor."""
    if name + SCALE not in stored:
        raise ValueError(f"{name} is int8 without {name + SCALE}")
    weight = QuantizedWeight(stored[name], stored[name + SCALE], stored.get(name + ALPHA))
    for problem in weight.problems():  # the first error is enough
        raise ValueError(f"{name} {problem}")
    return weight
