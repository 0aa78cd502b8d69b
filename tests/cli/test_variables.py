"""Warnings and errors at the start of a command: misspelt variables, missing files, used ports."""

import socket

import pytest

from cli.commands import Commands
from cli.main import app, table
from cli.serve import check_address
from engine.errors import InvalidRequest


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        app(list(arguments))
    return stopped.value.code, capsys.readouterr().err


def test_warning_of_a_misspelt_variable_names_the_nearest(capsys, monkeypatch):
    monkeypatch.setenv("CONVOY_INSPECT_JSN", "1")
    monkeypatch.setenv("CONVOY_TRANSLATE_BEAMSIZE", "3")
    monkeypatch.setenv("CONVOY_TRANSLATE_BEAM_SIZE", "3")
    code, message = said(capsys, "translate", "--model", "/nowhere")
    assert code == 2
    assert "unknown variable CONVOY_TRANSLATE_BEAMSIZE; did you mean CONVOY_TRANSLATE_BEAM_SIZE?" in message
    assert message.count("warning") == 1  # of this command's own variables
    monkeypatch.setenv("CONVOY_CONVERT_HF_OVERWRTE", "1")
    _, message = said(capsys, "convert", "hf", "/nowhere", "/neither")
    assert "unknown variable CONVOY_CONVERT_HF_OVERWRTE" in message


def test_warning_of_another_variable_names_the_help(capsys, monkeypatch):
    for name in ("CONVOY_FOO", "CONVOY_PROT", "CONVOY_TRANSLATE_COLOUR"):
        monkeypatch.setenv(name, "1")
    _, message = said(capsys, "serve", "--models", "/nowhere", "--ssl-certfile", "/nope")
    assert "unknown variable CONVOY_FOO: convoy serve --help lists them" in message
    assert "unknown variable CONVOY_PROT; did you mean CONVOY_PORT?" in message
    _, message = said(capsys, "translate", "--model", "/nowhere")
    assert "unknown variable CONVOY_TRANSLATE_COLOUR: convoy translate --help lists them" in message


def test_known_variables_give_no_warning(monkeypatch, capsys):
    assert issubclass(table.info.cls, Commands)
    monkeypatch.setenv("CONVOY_TRANSLATE_MODEL", "/nowhere")
    assert "warning" not in said(capsys, "translate")[1]


def test_used_port_is_refused_before_loading(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for flags in (["--port", str(port)], ["--port", "0", "--grpc-port", str(port)]):
            code, message = said(capsys, "serve", "--models", "/nowhere", *flags)
            assert code == 2
            wanted = f"convoy: error: --host 127.0.0.1 {flags[-2]} {port}: Address already in use"
            assert message.startswith(wanted)
    check_address("127.0.0.1", port)
    with pytest.raises(InvalidRequest, match="choose another"):
        check_address("no-such-name.invalid", 0)


@pytest.mark.parametrize("flag", ["--ssl-certfile", "--ssl-keyfile"])
def test_missing_tls_file_is_refused_before_loading(capsys, flag):
    code, message = said(capsys, "serve", "--models", "/nowhere", flag, "/nope")
    assert code == 2
    assert f"{flag} (CONVOY_" in message
    assert "/nope" in message
