"""Checkpoints and outputs of fairseq, each imported once per run.

A fixture is read from ../shared/golden (complete) if it exists, otherwise from tests/golden (a selection).
"""

from __future__ import annotations

import atexit
import json
import lzma
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.bundle.bundle import Bundle
from export.importers import convert
from export.importers.settings import FairseqImport

ROOT = Path(__file__).resolve().parents[1]
SELECTION = ROOT / "golden"
SHARED = ROOT.parent.parent / "shared" / "golden"
NAMES = (
    "cli_main_fconv",
    "dyn_glu",
    "dyn_glu_b",
    "dyn_glu_fp16",
    "dyn_noglu",
    "ens_dyn2",
    "fconv_base",
    "light_glu",
    "light_noglu",
    "old061_dyn_glu",
    "transformer_base",
)
ENSEMBLE = "ens_dyn2"
REAL = "real-de-en"


@dataclass(frozen=True)
class Fixture:
    """A fixture; tests/golden/README.md describes its files.

    name: name of the fixture.
    path: its folder.
    golden: content of golden.json.
    arrays: content of golden.npz.
    """

    name: str
    path: Path
    golden: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def bundle(self) -> Bundle:
        return imported(self.name)


def parameters(*names: str) -> list[Any]:
    """Return names (default: all) for pytest.mark.parametrize; missing fixtures are marked as skipped."""
    return [
        pytest.param(name, marks=[] if folder(name) else pytest.mark.skip(reason=f"no {SHARED.name}/{name}"))
        for name in names or NAMES
    ]


def folder(name: str) -> Path | None:
    """Return the folder of a fixture with its checkpoints, or None."""
    return next((p / name for p in (SHARED, SELECTION) if checkpoints(p / name)), None)


def checkpoints(path: Path) -> list[Path]:
    """Return the checkpoints of a fixture's folder; an ensemble's are in its members' folders."""
    if path.name != ENSEMBLE or not (path / "golden.json").is_file():
        return list(path.glob("*.pt"))
    members = read_golden(path)["members"]
    return [path / member for member in members if (path / member).is_file()]


def read_golden(path: Path) -> dict[str, Any]:
    """Return the outputs of fairseq in a fixture's folder."""
    packed = path / "golden.json.xz"
    text = lzma.decompress(packed.read_bytes()) if packed.is_file() else (path / "golden.json").read_bytes()
    return json.loads(text)


@cache
def fixture(name: str) -> Fixture:
    path = folder(name)
    assert path is not None
    with np.load(path / "golden.npz") as stored:
        arrays = dict(stored)
    return Fixture(name, path, read_golden(path), arrays)


@cache
def imported(name: str) -> Bundle:
    """Return the bundle of a fixture or of "real-de-en", in a folder that exists until the process ends."""
    path = folder(name)
    assert path is not None
    settings = FairseqImport(source="de", target="en") if name == REAL else FairseqImport()
    if name == ENSEMBLE:
        settings = FairseqImport(checkpoints=tuple(str(member) for member in checkpoints(path)))
    return convert("fairseq", path, _folder() / name, settings)


def real_golden() -> dict[str, Any]:
    """Return golden.json of real-de-en: `results[i]` has src, source_ids, hyps, text."""
    return read_golden(SELECTION / REAL)


def right_padded(source: NDArray[np.int64], pad: int = 1) -> NDArray[np.int64]:
    """Move the padding of sources, int [batch, source], from the left (fairseq) to the right."""
    moved = np.full_like(source, pad)
    for row, ids in zip(moved, source, strict=True):
        ids = ids[ids != pad]
        row[: len(ids)] = ids
    return moved


@cache
def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="convoy-golden-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
