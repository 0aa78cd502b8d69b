"""Models are imported, and answer, without torch; their bundles equal those made where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.bundle.bundle import open_bundle
from engine.bundle.manifest import MANIFEST
from export.importers import SOURCES, convert
from tests.support import marian_models
from tests.support.golden_fixtures import SELECTION
from tests.support.hf_models import FAMILIES, imported
from tests.support.thorough import some_of
from tests.support.without_torch import HIDE

ROOT = Path(__file__).parents[3]
IMPORT = """
import json
from pathlib import Path
from export.importers import SOURCES, convert
from export.importers.proving import add_graphs, prove_answer
for source, folder, out, values, answers in json.load(sys.stdin):
    stages = [add_graphs, prove_answer] if answers else []
    convert(source, Path(folder), Path(out), SOURCES[source].settings(**values), stages=stages)
"""
PAIR = {"source": "en", "target": "de"}
FAIRSEQ = ("dyn_glu", "old061_dyn_glu")
SOME = some_of(list(FAMILIES), 3)
KINDS = ("bf16", "zip", "old")


def variant(source, place, kind):
    """Return a folder with the weights of another one in bf16, or in a file of torch."""
    place.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            (place / path.name).write_bytes(path.read_bytes())
    tensors = load_file(place / "model.safetensors")
    if kind == "bf16":
        save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, place / "model.safetensors")
        return place
    (place / "model.safetensors").unlink()
    torch.save(tensors, place / "pytorch_model.bin", _use_new_zipfile_serialization=kind == "zip")
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return each folder, its source and settings, and its bundle made without torch, by name."""
    place = tmp_path_factory.mktemp("made")
    folders = {name: imported(name, next(iter(FAMILIES[name].settings)))[0].path for name in SOME}
    asked = {name: ("hf", path, PAIR) for name, path in folders.items()}
    asked |= {kind: ("hf", variant(folders[SOME[0]], place / kind, kind), PAIR) for kind in KINDS}
    asked["marian"] = ("hf", marian_models.make(place / "marian", "relu").path, PAIR)
    asked |= {name: ("fairseq", SELECTION / name, {}) for name in FAIRSEQ}
    answering = {*SOME[::2], "marian"}
    jobs = [
        (source, str(path), str(place / f"out-{name}"), values, name in answering)
        for name, (source, path, values) in asked.items()
    ]
    ended = subprocess.run(
        [sys.executable, "-c", HIDE + IMPORT],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert not ended.returncode, ended.stderr
    return {name: (*what, place / f"out-{name}") for name, what in asked.items()}


@pytest.mark.parametrize("name", [*SOME, *KINDS, "marian", *FAIRSEQ])
def test_bundle_made_without_torch_is_the_same(made, tmp_path, name):
    source, folder, values, without = made[name]
    out = tmp_path / without.name
    convert(source, folder, out, SOURCES[source].settings(**values))
    ours, theirs = contents(without), contents(out)
    assert {path: entry for path, entry in ours.items() if not path.startswith("onnx/")} == theirs


def contents(path):
    """Return size and hash of each file of a bundle, without those that differ with its graphs."""
    entries = open_bundle(path).manifest
    return {name: entry for name, entry in entries.items() if name != MANIFEST}
