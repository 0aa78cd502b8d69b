"""Settings of `convoy serve`."""

from __future__ import annotations

import re

import pytest

from server.settings import ServerSettings
from tests.cli.commands import failure, run


def test_serve_has_a_flag_and_a_variable_for_every_setting():
    shown = run("serve", "--help", env={"COLUMNS": "200"}).stdout.decode()
    assert ServerSettings.model_fields
    for name in ServerSettings.model_fields:
        assert re.search(rf"--{name.replace('_', '-')}\b", shown)
        assert f"CONVOY_{name.upper()}" in shown


@pytest.mark.parametrize("given", [["--port", "seven"], ["--threads", "0"], ["--lanes", "5by32"]])
def test_error_of_a_setting_names_flag_and_variable(capsys, given):
    code, message = failure(capsys, "serve", *given)
    assert code == 2
    assert given[0] in message
    assert f"CONVOY_{given[0].strip('-').upper()}" in message
    assert message.count(f"not '{given[1]}'") == 1


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--engines", "2"], "--engines 2 needs front ends: add --frontends 1 or more"),
        (["--port", "8999", "--grpc-port", "8999"], "--port and --grpc-port are both 8999: gRPC needs one"),
        (
            ["--store-folder", "FILE/store"],
            "--store-folder FILE/store: can't make the folder (Not a directory)",
        ),
        (["--suggestions", "FILE/x"], "--suggestions FILE/x: can't write the file (Not a directory)"),
    ],
)
def test_impossible_settings_are_refused_before_loading(capsys, tmp_path, bundle, given, wanted):
    file = tmp_path / "file"
    file.touch()
    secret = "0123456789abcdef"
    flags = [flag.replace("FILE", str(file)) for flag in given]
    code, message = failure(capsys, "serve", "--models", bundle, "--api-keys", secret, *flags)
    assert code == 2
    assert message.startswith(f"convoy: error: {wanted.replace('FILE', str(file))}")
    assert secret not in message


def test_wrong_variable_and_wrong_flag_have_equal_errors(capsys, monkeypatch):
    monkeypatch.setenv("CONVOY_PORT", "70000")
    assert "--port (CONVOY_PORT)" in failure(capsys, "serve")[1]


def test_serve_refuses_a_folder_without_models(tmp_path):
    # in a process of its own: serving sets ONNX Runtime's thread pool for the whole process
    ended = run("serve", "--models", tmp_path, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith(f"convoy: error: {tmp_path}")
    assert ended.stderr.count(b"\n") == 1
