"""What a graph's weights are made of: recipes, by which the metadata of a graph names each initialiser.

A recipe is {"tensor": name in model.safetensors, "form": form} or {table: its arguments}, a constant. With
"type" "fp16" or "bf16" it is stored in that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import BundleError
from engine.native import pack, pack32
from engine.tables import sinusoids, timing

Array = NDArray[np.float32]
METADATA: Final = "convoy.initializers"  # the key under which a graph keeps its recipes, as JSON
# constants that a graph names by what makes them
TABLES: Final[dict[str, Callable[..., Array]]] = {"sinusoids": sinusoids, "timing": timing}


def initializer(recipe: Mapping[str, Any], weights: Mapping[str, Array]) -> NDArray[Any]:
    """The array of a recipe. Raises BundleError for one that these weights or this version can't make."""
    made = _wide(recipe, weights)
    if recipe.get("type") == "bf16":
        from ml_dtypes import bfloat16  # numpy has none; whoever exports has this

        return made.astype(bfloat16)
    return made.astype(np.float16) if recipe.get("type") == "fp16" else made


def _wide(recipe: Mapping[str, Any], weights: Mapping[str, Array]) -> NDArray[Any]:
    for kind, make in TABLES.items():
        if kind in recipe:
            return make(*recipe[kind])
    name, form = recipe["tensor"], recipe["form"]
    if name not in weights:
        raise BundleError(f"the graph needs {name!r}, which model.safetensors lacks; run: convoy export")
    weight = np.asarray(weights[name], np.float32)
    if form == "plain":
        return np.ascontiguousarray(weight)
    if form == "transposed":
        return np.ascontiguousarray(weight.T)
    if form in ("panels32", "gated32"):
        return pack32(weight.T, gated=form == "gated32")
    scales: Array = np.maximum(np.abs(weight).max(axis=1), np.float32(1e-30)) / np.float32(127)
    if form == "scales":
        return scales
    if form in ("quantized", "panels", "gated", "rows"):
        rows: NDArray[np.int8] = np.rint(weight / scales[:, None]).astype(np.int8)
        if form == "rows":
            return rows
        whole = np.ascontiguousarray(rows.T)
        return whole if form == "quantized" else pack(whole, gated=form == "gated")
    raise BundleError(
        f"the graph asks for {form!r} weights, unknown to this version; run: convoy export BUNDLE"
    )
