"""Graphs traced without torch equal graphs traced by torch to the byte."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from export.graphs.onnx import graphs, shortlisted_graphs
from tests.support.models import CONFIGS
from tests.support.thorough import THOROUGH

ROOT = Path(__file__).parents[3]
SOME = (
    "glu",
    "raw light kernels",
    "transformer pre-norm",
    "windowed",
    "aan as marian",
    "ssru of a file's int8",
    "cnn pre-norm",
    "convs2s skipping",
    "slicenet dilated groups",
    "lm adaptive",
)
LISTED = ("transformer pre-norm", "ssru of a file's int8")  # models with a shortlist
HIDDEN = """
import hashlib, json, sys
from export import shapes
shapes.find_spec = lambda name: None  # as where torch is not installed
shapes.stand_in()
from engine.bundle.config import ModelConfig
from export.graphs.onnx import graphs, shortlisted_graphs
made = {}
for name, values, listed in json.load(sys.stdin):
    config = ModelConfig.from_dict(values)
    every = graphs(config) | (shortlisted_graphs(config) if listed else {})
    made[name] = {path: hashlib.sha256(graph).hexdigest() for path, graph in every.items()}
assert not hasattr(sys.modules["torch"], "__version__")
print(json.dumps(made))
"""


def test_graphs_traced_without_torch_are_equal_to_the_byte():
    names = CONFIGS if THOROUGH else SOME
    asked = json.dumps([(name, CONFIGS[name].to_dict(), name in LISTED) for name in names])
    ended = subprocess.run(
        [sys.executable, "-c", HIDDEN], input=asked, capture_output=True, text=True, cwd=ROOT
    )
    assert not ended.returncode, ended.stderr
    made = json.loads(ended.stdout)
    for name in names:
        every = graphs(CONFIGS[name]) | (shortlisted_graphs(CONFIGS[name]) if name in LISTED else {})
        assert made[name] == {path: hashlib.sha256(graph).hexdigest() for path, graph in every.items()}
