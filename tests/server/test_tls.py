"""HTTPS by the server itself, with a certificate made for the occasion."""

import os
import shutil
import ssl
import subprocess
import sys

import httpx
import pytest

from tests.server.test_server_process import GERMAN, MAIN, ROOT, free_port, until_ready
from tests.support.served import bundles

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def make_certificate(folder):
    """Make cert.pem and key.pem of this machine's own name, in a folder."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return folder


def started(port, **variables):
    given = {"MODELS": str(bundles() / "toy-de-en"), "PORT": str(port), "LANES": "4x4"} | variables
    environment = os.environ | {f"CONVOY_{name}": str(value) for name, value in given.items()}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )


def test_server_with_a_certificate_serves_only_https(certificate):
    port = free_port()
    trust = ssl.create_default_context(cafile=certificate / "cert.pem")
    files = {"SSL_CERTFILE": certificate / "cert.pem", "SSL_KEYFILE": certificate / "key.pem"}
    running = started(port, **files)
    try:
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trust, timeout=600) as client:
            until_ready(client, running)
            assert client.post("/translate", json=GERMAN).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{port}/health")
        with pytest.raises(httpx.TransportError):  # the client does not trust the certificate
            httpx.get(f"https://localhost:{port}/health")
        running.terminate()
        assert running.wait(300) == 0
    finally:
        running.kill()
        running.communicate()


def test_a_key_without_its_certificate_is_refused_at_once(certificate):
    running = started(0, SSL_KEYFILE=certificate / "key.pem")
    _, written = running.communicate(timeout=600)
    assert running.returncode != 0
    assert "ssl_certfile" in written
