"""What /openapi.json promises is what clients get."""

import subprocess
import sys

import pytest

from tests.served import server

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture(scope="module")
def client():
    with server(body_limit=200_000, file_limit=100_000) as (found, _, _):
        yield found


@pytest.fixture(scope="module")
def operations(client):
    paths = client.get("/openapi.json").json()["paths"]
    return [(path, method, operation) for path, ways in paths.items() for method, operation in ways.items()]


def test_spec_is_the_same_description(client):
    assert client.get("/spec").json() == client.get("/openapi.json").json()


def test_every_route_says_what_it_answers(operations):
    for path, method, operation in operations:
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                assert content.get("schema") or kind != "application/json", (path, method, status)
            assert "422" not in operation["responses"] or "parameters" in operation, path


def test_every_example_is_answered_with_200(client, operations):
    seen = 0
    for path, method, operation in operations:
        address = path.replace("{model}", "toy-de-en").replace("{version}", "1")
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if "example" not in content:
                continue
            example, seen = dict(content["example"]), seen + 1
            if kind == "multipart/form-data":
                file = {"file": ("a.txt", example.pop("file").encode())}
                answer = client.request(method, address, files=file, data=example)
            elif kind == "application/json":
                answer = client.request(method, address, json=example)
            else:
                answer = client.request(method, address, data=example)
            assert answer.status_code == 200, (path, kind, answer.text)
    assert seen > 10


def test_schemathesis_finds_no_contradiction(client, tmp_path):
    """A short run, always the same; for five minutes: the command below with --max-time 300 and no --seed."""
    url = f"{str(client.base_url).rstrip('/')}/openapi.json"
    command = [sys.executable, "-W", "ignore", "-m", "schemathesis.cli", "run", url, "--checks", CHECKS]
    options = ["--max-examples", "2", "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color"]
    done = subprocess.run(
        [*command, *options, "--max-time", "15"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Test cases:" in done.stdout
