"""The recipes of CONTRIBUTING.md work: an example made by their steps alone runs in a copy of the sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.project.recipes import RECIPES
from tests.project.rooms import PARTS, ROOT

# one process runs all proofs, because their imports take longer than their work
PROVE = """
import json, sys, traceback
import tests.conftest
faults = {}
for heading, proof in json.load(sys.stdin).items():
    try:
        exec(compile(proof, heading, "exec"), {})
    except Exception:
        faults[heading] = traceback.format_exc()
print("FAULTS", json.dumps(faults))
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory, compiled_kernels):
    """Follow all recipes in a copy of the sources; return the traceback of each failed proof by heading."""
    copy = tmp_path_factory.mktemp("house") / "convoy"
    # compiled files are copied too: compiling takes long
    ignored = shutil.ignore_patterns("runs", ".*")
    for part in (*PARTS, "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=ignored)
    (copy / "models").symlink_to(ROOT / "models")
    for recipe in RECIPES:
        for path, text in recipe.files.items():
            (copy / path).parent.mkdir(exist_ok=True)
            (copy / path).write_text(text.lstrip(), encoding="utf-8")
        for path, behind in recipe.lines.items():
            text = (copy / path).read_text(encoding="utf-8")
            for place, line in behind.items():
                assert text.count(place) == 1, f"{path}: {place!r}"
                text = text.replace(place, place + line)
            (copy / path).write_text(text, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    # no recipe changes a kernel
    environment["KERNELS"] = str(compiled_kernels)
    command = [sys.executable, "-W", "error", "-c", PROVE]
    proofs = json.dumps({recipe.heading: recipe.proof for recipe in RECIPES})
    done = subprocess.run(
        command, cwd=copy, env=environment, input=proofs, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.rpartition("FAULTS")[2])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.heading)
def test_example_of_each_recipe_runs(faults, recipe):
    section = _section(recipe.heading)
    for path in (*recipe.files, *recipe.lines):
        general = re.sub(r"\b(pooling|loop|echo|es)\b", "x", path)
        assert f"`{general}`" in section, f"CONTRIBUTING.md does not say to change {path}"
    assert recipe.heading not in faults, faults[recipe.heading]


def _section(heading: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.partition(f"### ... {heading}\n")[2].partition("### ")[0]
