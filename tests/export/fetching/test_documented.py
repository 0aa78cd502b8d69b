"""The commands of the section Fetching of docs/import.md run, in their order, against local servers."""

from __future__ import annotations

import re
import shlex

import huggingface_hub.constants
import pytest

from cli.main import app
from engine.bundle.bundle import open_bundle
from tests.export.fetching.test_fetching import argos
from tests.support import marian_models
from tests.support.golden_fixtures import ROOT
from tests.support.model_servers import publish, remote_settings, repository
from tests.support.thorough import THOROUGH

PAGE = (ROOT.parent / "docs" / "import.md").read_text("utf-8").partition("\n## Fetching\n")[2]
COMMANDS = re.findall(r"^(convoy fetch .*?)(?: +#.*)?$", PAGE.partition("\n## ")[0], re.MULTILINE)
PAIRS = [("de", "en"), ("en", "de"), ("nl", "en"), ("en", "nl")]


@pytest.fixture
def sources(server, monkeypatch, tmp_path):
    """Serve what the commands name, and point every source at the local server."""
    remote_settings(server, PAIRS)
    argos(server, tmp_path / "argos", source="sq")
    folder = marian_models.make(tmp_path / "marian", "relu").path
    repository(server, "Helsinki-NLP/opus-mt-de-en", folder, license="apache-2.0")
    for name in ("CONVOY_FETCH_FIREFOX", "CONVOY_FETCH_ARGOS", "HF_ENDPOINT"):
        monkeypatch.setenv(name, server.address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("export.importers.proving.add_placeholders", lambda report, bundle: {})
    monkeypatch.chdir(tmp_path)
    return server


def run(command):
    with pytest.raises(SystemExit) as ended:
        app(shlex.split(command)[1:])
    assert ended.value.code == 0, command


@pytest.mark.skipif(not THOROUGH, reason="six imports, in the thorough run only: CONVOY_TEST_THOROUGH=1")
def test_documented_commands_list_fetch_and_update_models(sources, tmp_path, capsys):
    listed, students, languages, others, update = COMMANDS
    run(listed)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["en-nl", "nl-en"]
    run(students)
    assert fetched(tmp_path) == {"firefox-de-en", "firefox-nl-en"}
    run(languages)
    four = {f"firefox-{pair}" for pair in ("de-en", "en-de", "nl-en", "en-nl")}
    assert fetched(tmp_path) == four
    run(others)
    assert fetched(tmp_path) == four | {"argos-sq-en", "opus-mt-de-en"}
    digests = {name: open_bundle(tmp_path / "models" / name).digest for name in fetched(tmp_path)}
    publish(sources, remote_settings(sources, PAIRS) + remote_settings(sources, [("nl", "en")], "3.1"))
    run(update)
    changed = {n for n, d in digests.items() if open_bundle(tmp_path / "models" / n).digest != d}
    assert changed == {"firefox-nl-en"}


def fetched(place):
    return {path.name for path in (place / "models").iterdir() if not path.name.startswith(".")}
