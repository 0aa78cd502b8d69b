"""Recipes in the metadata of a graph: how each initializer is computed from the weights of the bundle.

A recipe is {"tensor": name in model.safetensors, "form": form}, or {table: its arguments} for a constant
table. Forms of int8 take the int8 values of the file, or round float weights with a scale for each row. A
recipe with "type" "fp16" or "bf16" is converted to that type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.bundle.tables import sinusoids, timing
from engine.bundle.weights import QuantizedWeight, Weights, packed_name, quantize_rows
from engine.errors import BundleError
from engine.native import pack, pack32

Array = NDArray[np.float32]
INT8: Final = (
    "rows",
    "quantized",
    "unsigned",
    "panels",
    "gated",
    "scales",
    "static_scales",
    "alpha",
)  # forms of int8 weights
ZERO_POINT: Final = 128  # of the form "unsigned": the byte that stands for 0
METADATA: Final = "convoy.initializers"  # metadata key of a graph's recipes, as JSON
# functions that compute constant tables, by their names in recipes
TABLES: Final[dict[str, Callable[..., Array]]] = {"sinusoids": sinusoids, "timing": timing}


def initializer(recipe: Mapping[str, Any], weights: Mapping[str, Array]) -> NDArray[Any]:
    """Compute the array of a recipe. Raises BundleError if the weights or this version don't support it."""
    array = _compute(recipe, weights)
    if recipe.get("type") == "bf16":
        from ml_dtypes import bfloat16  # part of the extra `convert`

        return array.astype(bfloat16)
    return array.astype(np.float16) if recipe.get("type") == "fp16" else array


def _compute(recipe: Mapping[str, Any], weights: Mapping[str, Array]) -> NDArray[Any]:
    """Return the array of a recipe before it is converted to the recipe's type."""
    for kind, make in TABLES.items():
        if kind in recipe:
            return make(*recipe[kind])
    name, form = recipe["tensor"], recipe["form"]
    if name not in weights:
        raise BundleError(f"the graph needs {name!r}, which model.safetensors lacks; run: convoy export")
    if form in INT8:
        quantized = quantize_weight(name, weights)
        packed = weights.packed.get(packed_name(name, form)) if isinstance(weights, Weights) else None
        # a packed array of another type or shape was made for other weights
        usable = packed is not None and packed.dtype == np.int8 and packed.shape == quantized.shape[::-1]
        return packed if packed is not None and usable else _int8(form, quantized)
    weight = np.asarray(weights[name], np.float32)
    if form == "plain":
        return np.ascontiguousarray(weight)
    if form == "transposed":
        return np.ascontiguousarray(weight.T)
    if form in ("panels32", "gated32"):
        return pack32(weight.T, gated=form == "gated32")
    raise BundleError(
        f"the graph needs {form!r} weights, which this version does not support; run: convoy export BUNDLE"
    )


def quantize_weight(name: str, weights: Mapping[str, Array]) -> QuantizedWeight:
    """Return a weight as int8: the int8 values of the file, or floats rounded with a scale for each row."""
    if isinstance(weights, Weights) and name in weights.quantized:
        return weights.quantized[name]
    return quantize_rows(weights[name])


def _int8(form: str, weight: QuantizedWeight) -> NDArray[Any]:
    """Return a part of an int8 weight, or its values in the layout of a form in `INT8`."""
    if form == "scales":
        return weight.scales
    if form in ("alpha", "static_scales"):
        if weight.alpha is None:
            raise BundleError(
                "the graph needs alphas, which model.safetensors lacks; convert the bundle again"
            )
        # one multiplication converts the integer sums to floats
        return weight.alpha if form == "alpha" else weight.scales / weight.alpha
    if form == "rows":
        return weight.values
    columns = np.ascontiguousarray(weight.values.T)
    if form == "unsigned":
        return columns.view(np.uint8) ^ np.uint8(ZERO_POINT)  # value + 128
    return columns if form == "quantized" else pack(columns, gated=form == "gated")
