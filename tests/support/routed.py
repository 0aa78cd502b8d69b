"""Two translators of one direction: a shipped model and its copy under another name."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.project.rooms import ROOT

FIRST, SECOND = "tatoeba-de-en", "second"
SHIPPED = ROOT / "models" / FIRST


def renamed(folder: Path) -> Path:
    """Copy the shipped model under the name `second`; skips the test if the model is missing."""
    if not SHIPPED.is_dir():
        pytest.skip("the shipped models are missing")
    copy = folder / SECOND
    shutil.copytree(SHIPPED, copy)
    config = json.loads((copy / "config.json").read_text("utf-8")) | {"name": SECOND}
    content = json.dumps(config).encode()
    (copy / "config.json").write_bytes(content)
    manifest = json.loads((copy / "manifest.json").read_text("utf-8"))
    manifest["files"]["config.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (copy / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return copy
