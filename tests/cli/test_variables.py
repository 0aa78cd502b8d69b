"""Warnings and errors at the start of a command: misspelt variables, missing files, used ports."""

import json
import socket

import pytest
import typer
from typer.main import get_command

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


def flags(group, context):
    """Yield the path of each command below a group, and each of its flags."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from flags(command, below)
            continue
        for flag in command.params:
            yield from ((below.command_path, flag, long) for long in flag.opts if long.startswith("--"))


def test_every_flag_has_a_variable_of_its_name():
    group = get_command(table)
    count = 0
    for path, flag, long in flags(group, typer.Context(group, info_name="convoy")):
        command = "" if path == "convoy serve" else path.partition(" ")[2] + " "
        variable = f"convoy {command}{long.removeprefix('--')}".upper().replace(" ", "_").replace("-", "_")
        named = [flag.envvar] if isinstance(flag.envvar, str) else flag.envvar
        assert variable in (named or [variable if long[2:].replace("-", "_") == flag.name else ""]), path
        count += 1
    assert count > 300


def test_variable_with_the_name_of_a_flag_sets_it(capsys, monkeypatch, tmp_path):
    file = str(tmp_path / "keys.json")
    assert said(capsys, "keys", "new", "--file", file, "--name", "Ann")[0] == 0
    monkeypatch.setenv("CONVOY_KEYS_LIST_JSON", "1")
    with pytest.raises(SystemExit):
        app(["keys", "list", "--file", file])
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["name"] == "Ann"
    assert "warning" not in captured.err


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
