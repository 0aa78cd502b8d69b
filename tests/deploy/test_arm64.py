"""The wheel for arm64 under an emulator translates like this processor."""

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = ROOT / "tests" / "containers" / "arm64.sh"
MODEL = ROOT / "models" / "tatoeba-de-en"
LINES = 12
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(
        platform.machine() != "x86_64" or not shutil.which("apt-get") or not KEYRING.exists(),
        reason="needs x86-64 with apt and Debian's keyring (the package debian-archive-keyring)",
    ),
]


@functools.cache
def made(folder):
    """Return the interpreter for arm64; CONVOY_ARM64_FOLDER stores it between runs."""
    python = folder / "python"
    if not python.exists():
        subprocess.run([MAKE, folder], check=True)
    return python


@pytest.fixture
def arm(tmp_path_factory):
    kept = os.environ.get("CONVOY_ARM64_FOLDER")
    return made(Path(kept) if kept else tmp_path_factory.getbasetemp() / "arm64")


def translate(folder, python, texts, *flags, **variables):
    """Return the answers of `convoy translate --json`, started in a folder without sources."""
    command = [python, "-m", "cli.main", "translate", "--model", MODEL, "--json", *flags]
    done = subprocess.run(
        command, input=texts, cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_arm64_translates_like_this_processor(arm, tmp_path, precision):
    """Words are equal, scores to the sixth digit; instruction sets of arm64 give equal bits."""
    lines = (ROOT / "tests" / "everyday" / "de-en.tsv").read_text("utf-8").splitlines()[:LINES]
    texts = "".join(line.split("\t")[0] + "\n" for line in lines)
    ours = translate(tmp_path, sys.executable, texts, "--precision", precision, PYTHONPATH=str(ROOT))
    fast, plain = (
        translate(tmp_path, arm, texts, "--precision", precision, CONVOY_KERNELS_ISA=name)
        for name in ("i8mm", "neon")
    )
    assert fast == plain
    assert [answer["text"] for answer in fast] == [answer["text"] for answer in ours]
    for theirs, answer in zip(fast, ours, strict=True):
        assert theirs["token_scores"] == pytest.approx(answer["token_scores"], abs=1e-5)


def test_arm64_has_the_native_operators(arm, tmp_path):
    script = "from engine.native import instruction_set, library; print(instruction_set(library()).name)"
    done = subprocess.run([arm, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "i8mm"
