"""Variants of a fixture's checkpoint (options, versions, contents), and imports that must fail."""

from __future__ import annotations

import argparse
import collections
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.errors import CheckpointError
from export.importers import convert
from export.importers.checkpoint import read_checkpoint
from export.importers.settings import FairseqImport
from tests.support.golden_fixtures import SELECTION

DYN = SELECTION / "dyn_noglu"
MARKERS = ("encoder_version", "decoder_version")


def namespace(path: Path = DYN, **changes: object) -> argparse.Namespace:
    """Return the options of a fixture's checkpoint with changes; the value "absent" removes an option."""
    given = {**read_checkpoint(path / "checkpoint.pt").arguments, **changes}
    return argparse.Namespace(**{k: v for k, v in given.items() if v != "absent" and k not in MARKERS})


def state(path: Path = DYN) -> collections.OrderedDict:
    stored = read_checkpoint(path / "checkpoint.pt").state
    return collections.OrderedDict((name, torch.from_numpy(w.copy())) for name, w in stored.items())


def folder_of(path: Path, content: object, *, old: bool = False, like: Path = DYN) -> Path:
    """Write a folder with a fixture's dictionaries and a checkpoint of this content."""
    path.mkdir(exist_ok=True)
    for name in ("dict.src.txt", "dict.tgt.txt"):
        shutil.copyfile(like / name, path / name)
    torch.save(content, path / "model.pt", _use_new_zipfile_serialization=not old)
    return path


def refused(path: Path, *patterns: str, settings: FairseqImport | None = None) -> str:
    """Assert that an import fails with one CheckpointError that has all patterns, and leaves no files."""
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(CheckpointError) as caught:
        convert("fairseq", path, path.parent / "out", settings)
    for pattern in patterns:
        assert re.search(pattern, str(caught.value)), str(caught.value)
    assert sorted(path.parent.rglob("*")) == before
    return str(caught.value)


def in_one(parts: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([parts[letter] for letter in "qkv"])


def joined(weights: dict[str, torch.Tensor]) -> collections.OrderedDict:
    """Return weights with the joint attention projections of fairseq 0.6 to 0.8, if widths allow it."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    old: collections.OrderedDict = collections.OrderedDict()
    for name, weight in weights.items():
        part = re.search(r"\.([qkv])_proj\.(weight|bias)$", name)
        if part:
            found.setdefault(f"{name[: part.start()]}.in_proj_{part[2]}", {})[part[1]] = weight
        else:
            old[name] = weight
    for name, parts in found.items():
        if len({part.shape for part in parts.values()}) == 1:
            old[name] = in_one(parts)
        else:
            old.update({name.replace("in_proj", f"{k}_proj"): part for k, part in parts.items()})
    return old


def same_weights(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert set(ours) == set(theirs)
    for name, weight in ours.items():
        np.testing.assert_array_equal(weight, theirs[name])
