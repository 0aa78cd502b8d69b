"""Recorded outputs of tensor2tensor's SliceNet, and models made of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.bundle.config import ModelConfig
from export.importers.tensorflow import slicenet

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "slicenet"


NAMES = sorted(path.name for path in GOLDEN.glob("*/")) if GOLDEN.is_dir() else []


@cache
def fixture(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return config.json, variables and recorded outputs of tensor2tensor."""
    folder = GOLDEN / name
    with np.load(folder / "weights.npz") as weights, np.load(folder / "io.npz") as io:
        return json.loads((folder / "config.json").read_text()), dict(weights), dict(io)


@cache
def converted(name: str) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    given, variables, _ = fixture(name)
    config, problems = slicenet.model_config(given)
    assert config is not None, problems
    weights, problems = slicenet.weights(variables, config)
    assert not problems
    return config, weights
