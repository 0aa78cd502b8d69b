"""Applications with settings of access, and places of a key in a request."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from server.app import create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.served import bundles, running, until

ROOT = Path(__file__).parents[3]
GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en", "max_length": 4}
KEY = "a-key-that-an-operator-chose"
# requests with a key in every place that clients put it
PLACES = {
    "bearer": {"headers": {"Authorization": f"Bearer {KEY}"}, "json": GERMAN},
    "bearer in lower case": {"headers": {"authorization": f"bearer {KEY}"}, "json": GERMAN},
    "deepl": {"headers": {"Authorization": f"DeepL-Auth-Key {KEY}"}, "json": GERMAN},
    "x-api-key": {"headers": {"X-API-Key": KEY}, "json": GERMAN},
    "json": {"json": GERMAN | {"api_key": KEY}},
    "form": {"data": GERMAN | {"api_key": KEY}},
    "multipart": {"files": {k: (None, str(v)) for k, v in (GERMAN | {"api_key": KEY}).items()}},
    "query": {"params": GERMAN | {"api_key": KEY}},
    "query beside json": {"params": {"api_key": KEY}, "json": GERMAN},
    "form of deepl": {"data": GERMAN | {"auth_key": KEY}},
}


@pytest.fixture(scope="module")
def service():
    with running() as found:
        yield found


@pytest.fixture
def ask(service):
    """Return a client of a new application with some settings, at an IP address."""

    def make(address="192.0.2.1", **values):
        app = create_app(service, ServerSettings(**values), Metrics())
        return client_of(app, address)

    return make


def client_of(app, address="192.0.2.1"):
    transport = httpx.ASGITransport(app=app, client=(address, 123))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@contextmanager
def process(tmp_path, *arguments, **variables):
    """Run `convoy serve` on the toy models; yield a client, and a function that stops it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given_ = {"MODELS": str(bundles()), "PORT": str(port), "THREADS": "1", "LANES": "1x4,4x4"} | variables
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given_.items()}
    command = [sys.executable, "-m", "cli.main", "serve", *arguments]
    with (tmp_path / "output").open("wb") as out:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def output():
        child.send_signal(signal.SIGTERM)
        child.wait(300)
        return (tmp_path / "output").read_text()

    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:

            def ready():
                assert child.poll() is None, (tmp_path / "output").read_text()
                try:
                    return client.get("/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(ready)
            yield client, output
    finally:
        child.kill()
        child.wait()
