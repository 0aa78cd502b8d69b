"""Weights renamed to our names, and checks that they fit a model of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from engine.bundle.config import ModelConfig
from engine.bundle.weights import LazyWeight, QuantizedWeight, Stored
from engine.models import build, shape_errors, weight_shapes

Weights = dict[str, NDArray[np.float32]]
Array = NDArray[np.float32] | QuantizedWeight
Tensor = NDArray[Any]  # numbers in a file: floats (bf16 is ml_dtypes' type) or others

IMPOSSIBLE: Final = -1e4  # the logit of a token that is never chosen; fp16 holds it
# limit of every width and number of positions: the importer allocates tables of these sizes
LARGEST_SIZE: Final = 65_536
MOST_LAYERS: Final = 1_000
CHECKED_ROWS: Final = 4096  # rows of a weight that are checked at once
PLAIN_TABLES: Final = re.compile(r"\.(embed_positions|relative)\.weight$")  # int8 graphs read them as floats
JOINT: Final = re.compile(r"\.in_proj_(weight|bias)$")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a family's weights in files of all versions.

    renamed: pairs of a pattern and its replacement, applied in order.
    dropped: pattern of the names of unused weights.
    """

    renamed: tuple[tuple[re.Pattern[str], str], ...]
    dropped: re.Pattern[str]


def read_weights(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    names: Names,
    ties: Iterable[tuple[str, str]] = (),
) -> tuple[Weights, list[str]]:
    """Return a state dictionary under our names, and the problems of its weights.

    A problem is a weight that is missing, left over, of another shape, not finite, or a copy of a shared
    weight that differs from its original.

    state: tensors by the file's names.
    config: configuration of the model.
    names: names of the family's weights.
    ties: pairs (copy, original); older files leave the copy out.
    """
    named, problems = rename(state, names)
    return fit_weights(named, config, problems + untie(named, ties))


def untie(named: dict[str, Tensor], ties: Iterable[tuple[str, str]]) -> list[str]:
    """Drop the copies of shared tables, and return a problem for each copy that differs.

    named: weights by our names; copies are removed from it.
    ties: pairs (copy, original); a copy of a copy comes last.
    """
    pairs = [(copy, original) for copy, original in ties if original in named]
    problems = [
        f"{copy} differs from {original}, although the options say they are shared"
        for copy, original in pairs
        if copy in named and not same(named[copy], named[original])
    ]
    for copy, _ in pairs:
        named.pop(copy, None)
    return problems


def fit_weights(
    named: Mapping[str, Tensor], config: ModelConfig, problems: list[str]
) -> tuple[Weights, list[str]]:
    """Return weights as arrays, and `problems` with a problem for each weight that does not fit.

    named: tensors by our names.
    config: configuration of the model.
    problems: problems found before.
    """
    problems = [*problems, *_shape_problems(named, config), *_value_problems(named)]
    return {name: np.asarray(weight, np.float32) for name, weight in named.items()}, problems


def fit_lazily(
    named: Mapping[str, Tensor], config: ModelConfig, problems: list[str]
) -> tuple[dict[str, LazyWeight], list[str]]:
    """Return weights and problems like `fit_weights`, but convert each weight only when it is written.

    named: tensors by our names.
    config: configuration of the model; its `quantization` decides whether matrices are stored in int8.
    problems: problems found before.
    """
    problems = [*problems, *_shape_problems(named, config), *_value_problems(named)]
    return {name: _lazy_weight(name, weight, config) for name, weight in named.items()}, problems


def _lazy_weight(name: str, weight: Tensor, config: ModelConfig) -> LazyWeight:
    """Return a weight that is converted when it is written; tables of positions are never int8."""
    whole = config.quantization == "rows" and weight.ndim == 2 and not PLAIN_TABLES.search(name)
    narrow = weight.dtype in (np.float16, np.float32)
    return LazyWeight(weight.shape, lambda: weight if narrow else weight.astype(np.float32), whole)


def _value_problems(named: Mapping[str, Tensor]) -> list[str]:
    """Return a problem for each weight that is not float or not finite."""
    problems = type_problems(named)
    return problems + [
        f"{name} holds values that are not finite" for name, weight in named.items() if not _is_finite(weight)
    ]


def type_problems(named: Mapping[str, Tensor]) -> list[str]:
    """Return a problem for each weight that is not float."""
    return [
        f"{name} holds {weight.dtype}, not floats" for name, weight in named.items() if not is_float(weight)
    ]


def is_float(array: Tensor) -> bool:
    """Return whether an array holds floats: fp64, fp32, fp16 or bf16."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def _is_finite(weight: Tensor) -> bool:
    """Return whether all values are finite; a part at a time, because the check makes arrays."""
    rows = np.atleast_1d(weight)
    return all(
        bool(np.isfinite(rows[first : first + CHECKED_ROWS]).all())
        for first in range(0, len(rows), CHECKED_ROWS)
    )


def _shape_problems(named: Mapping[str, Tensor] | Mapping[str, Array], config: ModelConfig) -> list[str]:
    """Return a problem for each missing, extra or misshapen weight."""
    with torch.device("meta"):
        shapes = weight_shapes(build(config))
    return shape_errors(shapes, {name: tuple(weight.shape) for name, weight in named.items()})


def rename(state: Mapping[str, Tensor], names: Names) -> tuple[dict[str, Tensor], list[str]]:
    """Return the used weights under their newest names, and a problem for each that has two names."""
    named: dict[str, Tensor] = {}
    problems = []
    for old, weight in state.items():
        if names.dropped.search(old):
            continue
        new = old
        for pattern, replacement in names.renamed:
            new = pattern.sub(replacement, new)
        for name, part in _split_joint(new, weight):
            if name in named:
                problems.append(f"{name} occurs under two names")
            named[name] = part
    return named, problems


def tied_embeddings(config: ModelConfig) -> list[tuple[str, str]]:
    """List the pairs (copy, original) of a residual encoder-decoder's shared tables."""
    table = "decoder.embed_tokens.weight"
    ties = [("decoder.output_projection.weight", table)] if config.share_output else []
    return [*ties, (table, "encoder.embed_tokens.weight")] if config.share_embeddings else ties


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors hold the same numbers."""
    return a is b or np.array_equal(a, b)


def _split_joint(name: str, weight: Tensor) -> list[tuple[str, Tensor]]:
    """Split the joint weight of attention that fairseq had before 0.9 (rows q | k | v) into three."""
    match = JOINT.search(name)
    if not match or not weight.ndim or weight.shape[0] % 3:
        return [(name, weight)]
    base = name[: match.start()]
    parts = zip("qkv", np.split(weight, 3), strict=True)
    return [(f"{base}.{letter}_proj.{match[1]}", part) for letter, part in parts]


def weight_problems(weights: Mapping[str, Array], config: ModelConfig) -> list[str]:
    """Return the problems of a model's weights: missing or extra names, wrong shapes, values not finite."""
    problems = _shape_problems(weights, config)
    for name, weight in weights.items():
        if isinstance(weight, QuantizedWeight):
            problems += [f"{name} {problem}" for problem in weight.problems()]
        elif not np.isfinite(weight).all():
            problems.append(f"{name} holds values that are not finite")
    return problems


def all_half(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a file stores all its floats as fp16."""
    return all(tensor.dtype == np.float16 for tensor in tensors.values() if is_float(tensor))


def half_holds(weights: Mapping[str, Stored]) -> bool:
    """Return whether fp16 holds every weight exactly; weights that an importer computed may need fp32."""
    with np.errstate(over="ignore"):
        return all(_half_holds(weight) for weight in weights.values())


def _half_holds(weight: Stored) -> bool:
    """Return whether fp16 holds a weight exactly."""
    if isinstance(weight, QuantizedWeight) or (isinstance(weight, LazyWeight) and weight.int8):
        return True
    values = weight.make() if isinstance(weight, LazyWeight) else np.asarray(weight)
    return values.dtype == np.float16 or np.array_equal(values.astype(np.float16).astype(np.float32), values)
