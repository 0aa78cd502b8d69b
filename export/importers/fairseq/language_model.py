"""A language model for shallow fusion with a translation model (fairseq's `--lm-path`), from a bundle."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from engine.bundle.bundle import Bundle, open_bundle
from engine.bundle.config import ModelConfig
from engine.bundle.manifest import MANIFEST
from engine.errors import CheckpointError
from engine.text.tokenizers.dictionary import Dictionary, read_dictionary
from export.importers.weights import Weights

SAME_DICTIONARY = "it must have the model's target dictionary"


def read(path: Path, target: Dictionary) -> Bundle:
    """Open the bundle of a language model that has the model's target dictionary.

    Raises BundleError if the bundle can't be opened; CheckpointError if it is no language model or has
    another dictionary.
    """
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"{path}: is not a bundle; convert it first: convoy convert fairseq {path} OUT")
    bundle = open_bundle(path)
    name = bundle.text.get("target_dictionary")
    if bundle.config.reads_source or bundle.text["kind"] != "fairseq" or not isinstance(name, str):
        raise CheckpointError(f"{path}: is not a language model of fairseq; {SAME_DICTIONARY}")
    symbols = read_dictionary(bundle.file(name)).symbols
    for i, (theirs, ours) in enumerate(zip_longest(symbols, target.symbols)):
        if theirs != ours:
            raise CheckpointError(
                f"{path}: its dictionary differs from the model's target dictionary ({len(symbols)} symbols "
                f"and {len(target.symbols)}; number {i} is {theirs!r} and {ours!r}): train it on data that "
                "fairseq-preprocess --srcdict made with the dictionary of the model"
            )
    return bundle


def add_language_model(model: tuple[ModelConfig, Weights], lm_bundle: Bundle) -> tuple[ModelConfig, Weights]:
    """Return a model with a language model for shallow fusion. Raises ConfigError if they don't fit."""
    config, weights = model
    together = {f"translation.{name}": weight for name, weight in weights.items()}
    own = lm_bundle.weights().items()
    together |= {f"language_model.{name}": np.asarray(weight, np.float32) for name, weight in own}
    return replace(config, language_model=lm_bundle.config), together
