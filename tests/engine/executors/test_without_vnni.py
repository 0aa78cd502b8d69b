"""int8 is exact on x86-64 processors without VNNI, where products of unsigned and signed bytes saturate.

The programs run on this processor and, if Debian's qemu-user-static is installed, on an emulated Haswell.
The reference is plain torch with exact sums (`engine.executors.torch.int8`) on this processor.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.bundle.bundle import Bundle, Description, write_bundle
from engine.executors.torch.int8 import Int8
from export.graphs.onnx import graphs
from export.graphs.standalone import write
from tests.support import served
from tests.support.int8_outputs import FEEDS, OUTPUT
from tests.support.models import CONFIGS, model, weights

ROOT = Path(__file__).parents[3]
EMULATOR = "qemu-x86_64-static"
# Haswell has AVX2; it has neither VNNI nor AVX-512
EMULATED = [EMULATOR, "-cpu", "Haswell-noTSX"]
LINES = ("Das ist ein Haus.", "Wo ist der Bahnhof?", "Ich habe das nicht gesagt, aber er.")

processors = pytest.mark.parametrize(
    "command",
    [
        pytest.param([], id="this processor"),
        pytest.param(
            EMULATED,
            id="Haswell",
            marks=pytest.mark.skipif(
                platform.machine() != "x86_64" or not shutil.which(EMULATOR),
                reason="needs x86-64 with Debian's qemu-user-static",
            ),
        ),
    ],
)


def run(command: list[str], *arguments: object, **pipes: object) -> str:
    """Run a Python program by `command`, from the sources of this tree; return its output."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    python = [*command, sys.executable, *map(str, arguments)]
    done = subprocess.run(python, env=environment, capture_output=True, text=True, timeout=300, **pipes)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> tuple[Bundle, Path]:
    """Return a bundle with neighbouring weights that need 8 bits, and its stand-alone int8 graphs."""
    folder = tmp_path_factory.mktemp("int8")
    about = Description("toy", "translate", "de", "en", CONFIGS["glu"], {"kind": "sentencepiece"})
    bundle = write_bundle(folder / "toy", about, weights("glu"), graphs(CONFIGS["glu"]), half=False)
    write(bundle, "int8", folder / "standalone")
    return bundle, folder / "standalone"


@processors
def test_int8_graphs_compute_exact_sums(command, wide, tmp_path) -> None:
    bundle, standalone = wide
    run(command, "-m", "tests.support.int8_outputs", bundle.path, standalone, tmp_path / "out.npz")
    reference = model("glu")
    with torch.no_grad(), Int8(reference, bundle.weights()):
        feeds = (torch.from_numpy(FEEDS[name]) for name in ("tokens", "positions", "real"))
        exact = reference.encode(*feeds)[OUTPUT].numpy()
    found = np.load(tmp_path / "out.npz")
    assert {"pure", "stand-alone"} <= set(found)
    for way, values in found.items():
        assert np.abs(values - exact).max() < 1e-3, way


@processors
def test_int8_translations_equal_exact_sums(command, tmp_path) -> None:
    bundle = served.bundles() / "toy-de-en"
    arguments = [
        "-m",
        "cli.main",
        "translate",
        "--model",
        bundle,
        "--precision",
        "int8",
        "--json",
        "--backend",
    ]
    text = "".join(f"{line}\n" for line in LINES)
    exact = [json.loads(line) for line in run([], *arguments, "torch", input=text).splitlines()]
    found = [json.loads(line) for line in run(command, *arguments, "onnx-pure", input=text).splitlines()]
    assert [answer["text"] for answer in found] == [answer["text"] for answer in exact]
    for answer, expected in zip(found, exact, strict=True):
        assert answer["token_scores"] == pytest.approx(expected["token_scores"], abs=2e-3)
