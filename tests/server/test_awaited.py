"""A server with languages: missing models are fetched while it answers, and named when they fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from loadtest.http.serving import free_port
from server.awaited import awaited_models, describe_awaited, summary
from tests.support.connections import Connections
from tests.support.model_servers import Server, remote_settings, running
from tests.support.served import bundles, until
from tests.support.thorough import some_of

GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}


@contextmanager
def serving(models, firefox, *, ready=True, made=None, **variables):
    """Run `convoy serve` for de, en and nl; yield a client, and the process with its output in a file."""
    port, log = free_port(), models / "log"
    given = {"LANGUAGES": "de,en,nl", "FETCH_FIREFOX": firefox, "MODELS": str(models), "PORT": str(port)}
    environment = os.environ | {f"CONVOY_{name}": value for name, value in (given | variables).items()}
    environment |= made.variables if made else {}
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "serve"], env=environment, stderr=out, stdout=out
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
                until(lambda: answers(client, ready) or process.poll() is not None)
                assert process.poll() is None, log.read_text()
                yield client, process
        finally:
            process.terminate()
            assert process.wait(300) in (0, -15), log.read_text()


def answers(client, ready):
    try:
        return client.get("/health/ready").status_code in ((200,) if ready else (200, 503))
    except httpx.TransportError:
        return False


@pytest.fixture
def half(tmp_path):
    """Return a folder with bundles for de-en and en-de."""
    for name in ("toy-de-en", "toy-en-de"):
        shutil.copytree(bundles() / name, tmp_path / "models" / name)
    return tmp_path / "models"


@pytest.mark.parametrize("variables", some_of([{}, {"FRONTENDS": "1", "ENGINES": "1"}]))
def test_server_answers_with_the_models_on_disk_while_others_are_fetched(half, tmp_path, variables):
    made = Connections(tmp_path / "hook", Path.cwd())
    with running(Server()) as source:
        remote_settings(source, [("en", "de")])  # fetching a model takes seconds of a processor
        shutil.rmtree(half / "toy-en-de")
        variables = {"LANGUAGES": "de,en", "made": made} | variables
        with serving(half, source.address, **variables) as (client, _):
            own = f"127.0.0.1:{client.base_url.port}"
            assert client.post("/translate", json=GERMAN).status_code == 200
            english = {"q": "Good morning.", "source": "en", "target": "de"}
            until(lambda: client.post("/translate", json=english).status_code == 200)
            until(lambda: client.get("/health/ready").json() == {"status": "ready"})
            origins = {model["name"]: model["provenance"] for model in client.get("/models").json()}
            assert origins["firefox-en-de"]["source"] == "firefox"
            assert origins["toy-de-en"] is None
        assert made.take() - {own} == {source.address.removeprefix("http://")}
        source.asked.clear()
        with serving(half, source.address, **variables) as (client, _):  # nothing is missing any more
            assert client.post("/translate", json=english).status_code == 200
            own = f"127.0.0.1:{client.base_url.port}"
        assert not source.asked
        assert made.take() <= {own}, "no host is asked, and no name is looked up"


def test_start_while_the_source_is_down_is_a_start(half):
    with serving(half, "http://127.0.0.1:9") as (client, _):
        assert client.post("/translate", json=GERMAN).status_code == 200

        def failed():
            return [model for model in client.get("/models").json() if model["state"] == "failed"]

        until(failed)
        assert {model["name"] for model in failed()} == {"nl-en", "en-nl"}
        assert all("check the network" in model["fault"] for model in failed())
        assert all(model["remedy"] == "convoy fetch --languages de,en,nl" for model in failed())
        assert "nl-en: http://127.0.0.1:9" in client.get("/health/ready").json()["failed"]
        assert client.get("/languages").status_code == 200


def test_start_without_models_and_network_is_alive_and_not_ready(tmp_path):
    with serving(tmp_path, "http://127.0.0.1:9", ready=False) as (client, _):
        assert client.get("/health").status_code == 200
        until(lambda: "failed: " in client.get("/health/ready").text)
        assert client.get("/health/ready").status_code == 503
        assert client.post("/translate", json=GERMAN).status_code in (400, 404)


def test_end_of_the_server_ends_the_process_that_fetches(tmp_path):
    with running(Server(drip=10)) as source:
        remote_settings(source, [("nl", "en"), ("en", "nl"), ("de", "en"), ("en", "de")])
        with serving(tmp_path, source.address, ready=False) as (_, process):
            children = f"/proc/{process.pid}/task/{process.pid}/children"
            until(lambda: any(path.endswith(".zst") for path, _ in source.asked))
            with open(children, encoding="utf-8") as file:
                child = int(file.read().split()[-1])
            process.kill()
            process.wait()
            until(lambda: not os.path.exists(f"/proc/{child}/fd/0"))
            process.terminate = lambda: None
            process.wait = lambda _=None: 0


def test_states_are_read_and_damaged_files_are_not(tmp_path):
    path = tmp_path / "state"
    assert awaited_models(None) == awaited_models(path) == {}
    for text in ("", "[]", "{", '{"models": 5}', '{"models": {"a": 5}}', "[" * 9999):
        path.write_text(text)
        assert awaited_models(path) == {}
    models = {
        "nl-en": {"state": "fetching"},
        "en-nl": {"state": "ready"},
        "de-xx": {"state": "failed", "fault": "no model", "remedy": "convoy fetch --list"},
    }
    path.write_text(json.dumps({"models": models}))
    entries = awaited_models(path)
    assert summary(entries) == {"fetching": "nl-en", "failed": "de-xx: no model; run: convoy fetch --list"}
    (fetched, failed) = describe_awaited(entries)
    assert (fetched["source"], fetched["target"], fetched["state"]) == ("nl", "en", "fetching")
    assert (failed["task"], failed["remedy"]) == ("", "convoy fetch --list")
