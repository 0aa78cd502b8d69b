"""How every import ends: what was read and checked becomes a bundle, with a model card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from engine.bundle.bundle import Bundle, Description, write_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.weights import Later, QuantizedWeight, Stored
from engine.errors import BundleError, CheckpointError
from engine.models import build, misfits, weight_shapes

Array = NDArray[np.float32] | QuantizedWeight

IMPOSSIBLE: Final = -1e4  # the logit of a token that is never chosen; fp16 holds it


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A foreign model, read and checked.

    origin: what the card says of where the model comes from.
    files: of the text pipeline, by their names in the bundle.
    half: store fp16.
    notes: further lines of the card.
    """

    origin: str
    description: Description
    weights: Mapping[str, Stored]
    files: Mapping[str, bytes | Path]
    half: bool
    notes: tuple[str, ...] = ()


def check_folders(folder: Path, out: Path, *, overwrite: bool) -> None:
    """Raise CheckpointError when there is no `folder`, BundleError when `out` is there already."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder")
    if out.exists() and not overwrite:
        raise BundleError(f"{out}: already exists; choose another name or ask to overwrite it")


def misfitting(weights: Mapping[str, Array], config: ModelConfig) -> list[str]:
    """List all that keeps weights from being a model's: missing ones, shapes, values that are no numbers."""
    with torch.device("meta"):
        shapes = weight_shapes(build(config))
    problems = misfits(shapes, {name: tuple(weight.shape) for name, weight in weights.items()})
    for name, weight in weights.items():
        if isinstance(weight, QuantizedWeight):
            problems += [f"{name} {problem}" for problem in weight.problems()]
        elif not np.isfinite(weight).all():
            problems.append(f"{name} holds values that are not finite")
    return problems


def write(imported: ImportedModel, out: Path, *, overwrite: bool) -> Bundle:
    """Write the bundle `out`, with its card."""
    files = {**imported.files, "README.md": _card(imported)}
    return write_bundle(
        out, imported.description, imported.weights, files, half=imported.half, overwrite=overwrite
    )


def _card(imported: ImportedModel) -> bytes:
    model = imported.description
    parameters = sum(math.prod(weight.shape) for weight in imported.weights.values())
    quantized = any(
        isinstance(weight, QuantizedWeight) or (isinstance(weight, Later) and weight.int8)
        for weight in imported.weights.values()
    )
    floats = "fp16" if imported.half else "fp32"
    lines = (
        f"Parameters: {parameters:,}, stored as {f'int8, the rest as {floats}' if quantized else floats}",
        f"Vocabulary: {model.config.source_vocab:,} source and {model.config.target_vocab:,} target symbols",
        *imported.notes,
    )
    title = (
        f"# {model.name}\n\n{model.task} {model.source} -> {model.target}. Imported by {imported.origin}.\n\n"
    )
    return (title + "".join(f"- {line}\n" for line in lines)).encode()
