"""A small bundle with its graphs."""

from __future__ import annotations

from pathlib import Path

from engine.bundle.bundle import Bundle, Description, write_bundle
from export.graphs.onnx import graphs
from tests.support.models import CONFIGS, weights


def toy(folder: Path, name: str = "glu") -> Bundle:
    """Write a small random model with its graphs into a folder."""
    about = Description("toy", "translate", "de", "en", CONFIGS[name], {"kind": "sentencepiece"})
    return write_bundle(folder / "toy", about, weights(name), graphs(CONFIGS[name]), half=False)
