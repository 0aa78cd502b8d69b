"""Repositories of a local Hugging Face, fetched by its own library and imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import huggingface_hub.constants
import pytest

from cli.main import app
from engine.bundle.bundle import open_bundle
from export.fetching.sources import Addresses
from tests.export.importers.test_catalogue import published
from tests.support import argos_packages, ctranslate2_families, hf_models, marian_models
from tests.support.catalogue import LAYOUTS
from tests.support.connections import Connections
from tests.support.golden_fixtures import ROOT
from tests.support.model_servers import remote_settings, repository, student
from tests.support.served import bundles
from tests.support.thorough import some_of
from tests.support.without_torch import HIDE


@pytest.fixture(autouse=True)
def hub(server, monkeypatch, tmp_path):
    """Point the library, which reads its variables when it is imported, at the local server."""
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("export.importers.proving.add_placeholders", lambda report, bundle: {})


def fetch(ran, out, *names, **more):
    """Fetch repositories; `more` are settings of the installer."""
    job = ran.job(out, Addresses())
    job.installer = replace(job.installer, **more)
    job.run([f"hf:{name}" for name in names], [], ())
    return job


def listed(capsys, out, *names):
    """Return the words of each line of `convoy fetch --list`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        app(["fetch", "--list", *names, "--out", str(out)])
    assert not ended.value.code
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_student_of_a_repository_is_fetched_with_its_licence_and_revision(server, ran, tmp_path, capsys):
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, data in student("de", "en").values():
        (folder / name).write_bytes(data)
    (folder / "model.onnx").write_bytes(b"not needed")
    (folder / "README.md").write_text("---\nlicense: mpl-2.0\n---\n")
    repository(server, "org/student-de-en", folder, license="mpl-2.0")
    fetch(ran, tmp_path / "out", "org/student-de-en@v1")
    assert not ran.errors
    bundle = open_bundle(tmp_path / "out" / "student-de-en")
    origin = bundle.provenance
    assert (origin.source, origin.name, origin.version, origin.licence) == (
        *("hf", "org/student-de-en", "v1", "mpl-2.0"),
    )
    assert origin.revision == "c" * 40
    assert (bundle.source, bundle.target) == ("de", "en")
    assert not [path for path, _ in server.asked if "onnx" in path]
    assert [line.split()[1].partition(":")[0] for line in ran.said[:2]] == ["127.0.0.1", "localhost"]
    asked = len(server.asked)
    fetch(ran, tmp_path / "out", "org/student-de-en")
    line = ["student-de-en", "de-en", "hf", "ssru", "v1"]
    assert [words[:5] for words in listed(capsys, tmp_path / "out", "hf:")] == [line]
    assert len(server.asked) == asked  # it is on disk
    remote_settings(server, [("de", "en"), ("en", "de")])
    lines = listed(capsys, tmp_path / "out", "de", "--firefox", server.address)
    assert [words[2] for words in lines] == ["firefox", "firefox", "hf"]
    assert lines[-1][-3:] == ["mpl-2.0", "on", "disk"]


def test_bundle_of_a_repository_is_served_as_it_is(server, ran, tmp_path):
    repository(server, "org/toy", bundles() / "toy-de-en")
    fetch(ran, tmp_path, "org/toy")
    assert not ran.errors
    assert open_bundle(tmp_path / "toy").digest == open_bundle(bundles() / "toy-de-en").digest


def test_folder_of_ctranslate2_is_imported_without_torch_in_the_languages_of_its_name(server, ran, tmp_path):
    package = argos_packages.write(tmp_path, "de", "en")
    folder = package / "model"
    shutil.copy(package / "sentencepiece.model", folder)
    repository(server, "org/opus-mt-de-en-ct2", folder)
    fetch(ran, tmp_path / "out", "org/opus-mt-de-en-ct2")
    assert not ran.errors
    bundle = open_bundle(tmp_path / "out" / "opus-mt-de-en-ct2")
    assert (bundle.source, bundle.target) == ("de", "en")


def content(bundle):
    """Return size and hash of the weights and of the tokenizer's files."""
    others = ("README.md", "config.json")
    return {
        name: entry
        for name, entry in bundle.manifest.items()
        if name not in others and not name.startswith("onnx/")
    }


@pytest.mark.parametrize("family", some_of(list(hf_models.FAMILIES), 5))
def test_folder_of_each_family_is_fetched_imported_and_answers(server, ran, tmp_path, family):
    folder, bundle = hf_models.imported(family, next(iter(hf_models.FAMILIES[family].settings)))
    repository(server, f"org/{family}", folder.path)
    fetch(ran, tmp_path, f"org/{family}", source="en", target="de")
    assert not ran.errors
    found = open_bundle(tmp_path / family)
    assert content(found) == content(bundle)
    assert (found.config, dict(found.text)) == (bundle.config, dict(bundle.text))


def test_published_layouts_are_fetched_and_answer_where_torch_is_missing(server, tmp_path):
    """Each layout is imported and answers a text, without `transformers` too."""
    names = some_of(list(LAYOUTS), 3)
    for name in names:
        layout, place = LAYOUTS[name], tmp_path / "folders" / name.replace("/", "-")
        if layout.family == "marian":
            source = marian_models.make(place / "marian", layout.setting).path
        else:
            source = hf_models.imported(layout.family, layout.setting)[0].path
        repository(server, name, published(layout, source, place / "hf"))
    made = Connections(tmp_path / "hook", ROOT.parent)
    command = ["fetch", *(f"hf:{name}" for name in names), "--source", "en", "--target", "de"]
    ended = subprocess.run(
        [sys.executable, "-c", f"{HIDE}\nfrom cli.main import app\napp(sys.argv[1:])", *command]
        + ["--out", str(tmp_path / "out")],
        env=os.environ | {"HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home")} | made.variables,
        capture_output=True,
        text=True,
        cwd=ROOT.parent,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    port = server.address.rpartition(":")[2]
    assert {host for host in made.take() if not host.startswith("::1:")} <= {
        f"{name}:{port}"
        for name in ("127.0.0.1", "localhost")  # where the first sends to
    }
    for name in names:
        bundle = open_bundle(tmp_path / "out" / name.rpartition("/")[2])
        assert bundle.provenance.name == name
        assert any(file.startswith("onnx/") for file in bundle.files())


def test_every_file_of_a_tokenizer_beside_ctranslate2s_weights_is_fetched(server, ran, tmp_path):
    """BART's has merges.txt and tokenizer_config.json."""
    repository(server, "org/bart-ct2", ctranslate2_families.converted("bart", "float32"))
    fetch(ran, tmp_path, "org/bart-ct2", source="en", target="de")
    assert not ran.errors
    wanted = ctranslate2_families.imported("bart", "float32")
    assert dict(open_bundle(tmp_path / "bart-ct2").text) == dict(wanted.text)


@pytest.mark.parametrize("name", ["org", "org/../x", "a/b/c", "org/name with space"])
def test_invalid_name_of_a_repository_is_refused(ran, tmp_path, name):
    fetch(ran, tmp_path, name)
    assert "is named ORG/NAME" in ran.errors[0]


def test_missing_repository_is_named_with_a_remedy(server, ran, tmp_path):
    job = fetch(ran, tmp_path, "org/none")
    assert "hf:org/none" in ran.errors[0]
    assert "is the name right?" in ran.errors[0]
    assert job.state.failed() == ["hf:org/none"]


def test_without_the_library_the_command_is_named(ran, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    fetch(ran, tmp_path, "org/name")
    assert "pip install 'convoy-server[hub]'" in ran.errors[0]
