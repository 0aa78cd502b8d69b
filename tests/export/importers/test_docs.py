"""The commands of docs/import.md run, and its table names every architecture."""

from __future__ import annotations

import re
import shlex

import pytest

from cli.main import app
from engine.bundle.bundle import open_bundle
from export.importers.fairseq.importer import FAMILIES
from tests.support.golden_fixtures import ROOT

TEXT = (ROOT.parent / "docs" / "import.md").read_text("utf-8")
COMMANDS = re.findall(r"^(convoy convert \w+ tests/golden.*?)(?: +#.*)?$", TEXT, re.MULTILINE)


def test_every_command_of_the_page_makes_a_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT.parent)
    assert len(COMMANDS) == 5
    kinds = []
    for command in COMMANDS:
        words = [word.replace("models/", f"{tmp_path}/") for word in shlex.split(command)[1:]]
        with pytest.raises(SystemExit) as ended:
            app([*words, "--no-onnx"])
        assert ended.value.code == 0, command
        bundle = open_bundle(tmp_path / words[3].rpartition("/")[2])
        kinds.append((bundle.config.architecture, len(bundle.config.members)))
    assert kinds == [("dynamicconv", 0), ("ensemble", 2), *[("dynamicconv", 0)] * 2, ("aan", 0)]


def test_page_names_every_architecture():
    table = TEXT.split("## What is imported")[1].split("\n\nFiles of")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(FAMILIES)
