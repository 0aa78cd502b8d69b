"""Write int8 weights of large models in the order of native products, to a file that engines map.

Without the file each engine process would pack them at its start, into memory of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from engine.bundle.bundle import Bundle
from engine.bundle.recipes import METADATA, initializer
from engine.bundle.tensors import Spec, TensorPart, write_tensors
from engine.bundle.weights import Weights, packed_name

LARGE: Final = 1 << 26  # bytes of int8 weights; fewer are packed quickly at the start
FORMS: Final = ("panels", "gated")


def packed_writer(bundle: Bundle, graphs: Iterable[bytes]) -> Callable[[Path], None] | None:
    """Return a function that writes the file for a bundle's int8 graphs of native operators.

    None means that the model has no large int8 weights.
    """
    if bundle.config.quantization == "none":
        return None
    weights, tensors = bundle.weights(), dict[str, tuple[str, str]]()
    weights.packed = {}  # ignore the packed file of an earlier version
    for graph in graphs:
        metadata = {entry.key: entry.value for entry in onnx.load_from_string(graph).metadata_props}
        for recipe in json.loads(metadata[METADATA]).values():
            name, form = recipe.get("tensor"), recipe.get("form")
            if form in FORMS and name in weights.quantized:
                tensors[packed_name(name, form)] = name, form
    if sum(math.prod(weights.quantized[name].shape) for name, _ in tensors.values()) < LARGE:
        return None
    return partial(_write_packed, weights=weights, wanted=tensors)


def _write_packed(out: Path, *, weights: Weights, wanted: dict[str, tuple[str, str]]) -> None:
    """Write the packed form of each wanted weight (label to name and form) to a file."""

    def parts() -> Iterator[TensorPart]:
        for label, (name, form) in wanted.items():
            yield TensorPart(label, initializer({"tensor": name, "form": form}, weights))

    specs = {
        label: Spec(np.dtype(np.int8), weights.quantized[name].shape[::-1])
        for label, (name, _) in wanted.items()
    }
    write_tensors(out, specs, parts())
