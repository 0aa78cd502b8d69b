"""Models fetched from local servers of the sources, imported, and described by their bundles."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.bundle.bundle import add_files, open_bundle
from engine.bundle.manifest import DEMONSTRATION, Provenance
from export.fetching.sources import Addresses
from tests.support import argos_packages
from tests.support.connections import Connections
from tests.support.model_servers import publish, record, remote_settings, sha, student, zipped
from tests.support.served import bundles, until
from tests.support.thorough import THOROUGH, some_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_placeholders(monkeypatch):
    """Choosing placeholders decodes 1,000 sentences, and other tests cover it."""
    monkeypatch.setattr("export.importers.proving.add_placeholders", lambda report, bundle: {})


def tree(folder):
    """Return hash of each file of the bundles of a folder."""
    return {
        path.relative_to(folder).as_posix(): sha(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".fetched" not in path.parts
    }


def test_fetched_student_has_its_origin(server, firefox, ran, tmp_path):
    remote_settings(server, [("de", "en")])
    job = ran.job(tmp_path, firefox())
    job.run(["firefox:de-en"], [], ())
    assert not ran.errors
    bundle = open_bundle(tmp_path / "firefox-de-en")
    origin = bundle.provenance
    assert (origin.source, origin.name, origin.version, origin.licence) == (
        "firefox",
        "de-en",
        "3.0",
        "MPL-2.0",
    )
    assert origin.address == f"{server.address}/v1"
    assert origin.files == {name: sha(data) for name, data in student("de", "en").values()}
    card = bundle.file("README.md").read_text("utf-8")
    assert "Fetched from firefox: de-en 3.0" in card
    assert "Licence: MPL-2.0" in card
    assert add_files(bundle.path, {"words.json": b"{}"}).provenance == origin
    assert "asking 127.0.0.1" in ran.said[0]
    assert json.loads(ran.lines[-1])["state"] == "ready"


def test_model_on_disk_is_not_asked_for_again(server, firefox, ran, tmp_path):
    remote_settings(server, [("de", "en"), ("en", "de")])
    ran.job(tmp_path, firefox()).run(["de-en"], ["de", "en"], ())
    server.asked.clear()
    ran.job(tmp_path, firefox()).run(["de-en", "firefox:de-en"], ["de", "en"], ())
    assert not server.asked
    assert not ran.errors


def test_languages_fetch_the_missing_directions_by_way_of_english(server, firefox, ran, tmp_path):
    remote_settings(server, [("de", "en"), ("en", "de"), ("nl", "en"), ("en", "nl"), ("fr", "en")])
    job = ran.job(tmp_path / "out", firefox())
    job.run([], ["de", "nl", "xx"], ())
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert there == [".fetched", "firefox-de-en", "firefox-en-de", "firefox-en-nl", "firefox-nl-en"]
    assert sorted(job.state.failed()) == ["en-xx", "xx-en"]
    assert ran.errors == ["firefox has no model for en-xx", "firefox has no model for xx-en"]
    assert not job.transient


def test_directions_without_a_model_are_fetched_before_directions_of_demonstrations(
    server, firefox, ran, tmp_path
):
    pairs = [("de", "en"), ("en", "de"), ("nl", "en"), ("en", "nl")]
    remote_settings(server, pairs)
    for path in [path for path in server.files if path.startswith("/attachments/")]:
        del server.files[path]  # the order of the requests is enough
    for name in ("toy-de-en", "toy-en-de"):
        shutil.copytree(bundles() / name, tmp_path / name)
        add_files(tmp_path / name, {}, Provenance(DEMONSTRATION))
    ran.job(tmp_path, firefox()).run([], ["de", "en", "nl"], ())
    asked = [path.rpartition("/")[2].split(".")[1] for path, _ in server.asked if "/attachments/" in path]
    assert asked == ["ennl", "nlen", "deen", "ende"]


def test_failed_model_does_not_stop_the_others(server, firefox, ran, tmp_path):
    records = remote_settings(server, [("de", "en"), ("en", "de")])
    broken = next(r for r in records if (r["sourceLanguage"], r["fileType"]) == ("de", "model"))
    server.files[f"/attachments/{broken['attachment']['location']}"] = b"x" * broken["attachment"]["size"]
    job = ran.job(tmp_path, firefox())
    job.run(["de-en", "en-de"], [], ())
    assert (tmp_path / "firefox-en-de").is_dir()
    assert not (tmp_path / "firefox-de-en").exists()
    assert job.state.models["de-en"]["state"] == "failed"
    assert job.state.models["de-en"]["remedy"] == "convoy fetch firefox:de-en"
    assert "is not the file of the index" in job.state.models["de-en"]["fault"]


def test_model_that_can_not_be_imported_is_named(server, firefox, ran, tmp_path):
    records = remote_settings(server, [("de", "en")])

    publish(
        server, [record(server, "model", "model.deen.bin", b"no model", ("de", "en"), "3.0"), *records[1:]]
    )
    job = ran.job(tmp_path, firefox())
    job.run(["de-en"], [], ())
    assert "model.deen.bin" in ran.errors[0]
    assert not (tmp_path / "firefox-de-en").exists()


def test_update_replaces_another_version_only(server, firefox, ran, tmp_path):
    remote_settings(server, [("de", "en")], "2.0")
    ran.job(tmp_path, firefox()).run(["de-en"], [], ())
    digest = open_bundle(tmp_path / "firefox-de-en").digest
    ran.job(tmp_path, firefox()).update([])
    assert "is up to date" in ran.said[-1]
    remote_settings(server, [("de", "en")], "2.1")
    ran.job(tmp_path, firefox()).update([])
    updated = open_bundle(tmp_path / "firefox-de-en")
    assert updated.provenance.version == "2.1"
    assert updated.digest != digest  # the card names the version


# Mozilla's codes, the codes of bundles, and whether the model has two vocabularies
CODES = [("zh-Hans", "zh", True), ("zh-Hant", "zt", True), ("ja", "ja", True), ("ko", "ko", True)]
CODES += [("nb", "nb", False), ("nn", "nn", False), ("pt-BR", "pb", False)]


@pytest.mark.parametrize("code, short, separate", some_of(CODES, 3))
def test_student_has_the_code_that_requests_use(server, firefox, ran, tmp_path, code, short, separate):
    records = []
    for kind, (name, data) in student("en", code).items():
        kinds = ("srcvocab", "trgvocab") if kind == "vocab" and separate else (kind,)
        records += [record(server, k, name.replace(kind, k), data, ("en", code), "3.0") for k in kinds]
    publish(server, records)
    ran.job(tmp_path, firefox()).run([], ["en", code], ())
    assert ran.errors == [f"firefox has no model for {short}-en"]
    bundle = open_bundle(tmp_path / f"firefox-en-{code}")
    assert (bundle.source, bundle.target) == ("en", short)
    assert bundle.provenance.name == f"en-{code}"
    ran.job(tmp_path, firefox()).run([f"en-{short}", f"en-{code}"], [], ())
    assert len(ran.errors) == 1, "it is on disk under both names"


def argos(server, tmp_path, source="de", target="en", **more):
    package = argos_packages.write(tmp_path / "packages", source, target)
    server.files["/p.argosmodel"] = zipped(package, package.name)
    entry = {"package_version": "1.9", "from_code": source, "to_code": target} | more
    server.put("/index.json", [entry | {"links": [f"{server.address}/p.argosmodel", "ipfs://x"]}])


def test_package_of_argos_is_fetched_in_spite_of_cuts(server, ran, tmp_path):
    argos(server, tmp_path)
    server.cut_path, server.cuts = "argosmodel", [1_000, 5_000]
    ran.job(tmp_path / "out", Addresses(argos=server.address)).run(["argos:de-en"], [], ())
    assert not ran.errors
    bundle = open_bundle(tmp_path / "out" / "argos-de-en")
    assert (bundle.source, bundle.target, bundle.provenance.version) == ("de", "en", "1.9")
    assert server.sent["/p.argosmodel"] == len(server.files["/p.argosmodel"])


def test_package_for_other_languages_than_in_the_index_is_refused(server, ran, tmp_path):
    argos(server, tmp_path, from_code="fr")
    ran.job(tmp_path / "out", Addresses(argos=server.address)).run(["argos:fr-en"], [], ())
    assert "translates de-en, and the index says fr-en" in ran.errors[0]


def test_package_that_is_a_bomb_is_refused(server, ran, tmp_path):
    (tmp_path / "bomb").mkdir()
    (tmp_path / "bomb" / "zeros").write_bytes(bytes(30_000_000))
    argos(server, tmp_path)
    server.files["/p.argosmodel"] = zipped(tmp_path / "bomb", "bomb")
    ran.job(tmp_path / "out", Addresses(argos=server.address)).run(["argos:de-en"], [], ())
    assert "don't trust it" in ran.errors[0]


# processes


PROGRAM = """
import export.importers.proving as proving
from cli.main import app
proving.add_placeholders = lambda *_: {}
app()
"""


def command(server, out, *words, variables=None, **more):
    environment = os.environ | {"CONVOY_FETCH_FIREFOX": server.address, "PYTHONPATH": str(ROOT)}
    environment |= variables or {}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "fetch", *words, "--out", str(out)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )


def test_two_processes_share_the_work_and_contact_only_the_named_host(server, tmp_path):
    remote_settings(server, [("de", "en")])
    made = Connections(tmp_path / "hook", ROOT)
    both = [command(server, tmp_path / "out", "de-en", variables=made.variables) for _ in range(2)]
    said = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    files = [path for path, _ in server.asked if path.startswith("/attachments/")]
    assert len(files) == len(set(files)) == 3
    host = server.address.removeprefix("http://")
    assert made.take() == {host}
    assert all(text.index(f"asking {host} for its list of models") >= 0 for text in said)


def test_process_of_a_server_ends_cleanly_and_with_its_server(server, tmp_path):
    remote_settings(server, [("de", "en")])
    with command(server, tmp_path / "out", "de-en", "--follow", stdin=subprocess.PIPE) as fetched:
        said = fetched.stdout.read()  # stdin stays open, as while the server runs
        assert fetched.wait(300) == 0, said
    assert "Fatal" not in said
    server.drip = 1
    orphan = command(server, tmp_path / "other", "de-en", "--follow", stdin=subprocess.PIPE)
    said, _ = orphan.communicate(timeout=300)  # closes stdin, as when the server is killed
    assert orphan.returncode == 1, said
    assert not (tmp_path / "other" / "firefox-de-en").exists()


def test_killed_process_leaves_what_the_next_one_continues(server, firefox, ran, tmp_path):
    """Kill fetches at random moments until one ends: same bytes, and no whole file is sent twice."""
    pairs = [("de", "en"), ("en", "de"), ("nl", "en")] if THOROUGH else [("de", "en")]
    remote_settings(server, pairs)
    names = [f"{source}-{target}" for source, target in pairs]
    ran.job(tmp_path / "whole", firefox()).run(names, [], ())
    sizes = {path: len(data) for path, data in server.files.items()}
    asked, numbers = len(server.asked), random.Random(3)
    server.drip = 8_000
    for _ in range(30 if THOROUGH else 2):
        killed_at_random(server, command(server, tmp_path / "killed", *names), numbers)
    server.drip = 0
    ran.job(tmp_path / "killed", firefox()).run(names, [], ())
    assert not ran.errors
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    for path, begins in _begins(server.asked[asked:]).items():
        assert max(begins) < sizes[path]
        assert begins == sorted(begins), "a later request starts after the bytes on disk"
    kept = tmp_path / "killed" / ".fetched"
    assert not [path for path in kept.rglob("*") if path.is_file() and path.suffix != ".lock"]


def killed_at_random(server, process, numbers):
    """Kill a fetch within a second of its first request, unless it ends before."""
    before = len(server.asked)
    until(lambda: len(server.asked) > before or process.poll() is not None)
    time.sleep(numbers.uniform(0.0, 1.0))
    process.kill()
    process.communicate()


def _begins(asked):
    begins: dict[str, list[int]] = {}
    for path, begin in asked:
        if path.startswith("/attachments/"):
            begins.setdefault(path, []).append(begin)
    return begins
