"""The command line: help, errors, inspecting, converting and exporting bundles, and files."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest

from cli.convert import ModelSources
from cli.lines import count, read
from cli.main import COMMANDS, app
from tests.cli.commands import GOLDEN, ROOT, done, failure, run
from tests.support.golden_fixtures import read_golden
from tests.support.served import bundles, until


def test_byte_order_mark_is_not_part_of_the_first_line(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffa\r\nb\u2028\n\ufeffc".encode())
    assert list(read(path)) == ["a", "b\u2028", "\ufeffc"]


def test_help_lists_every_command_without_importing_torch():
    code = (
        "import sys\nfrom cli.main import app\ntry: app(['--help'])\n"
        "finally: print('heavy:', [m for m in ('torch', 'onnxruntime') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "heavy: []" in ended.stdout
    assert all(f"\n  {name} " in ended.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        app([command, "--help"])
    assert stopped.value.code == 0
    assert f"convoy {command}" in capsys.readouterr().out


def test_wrong_flag_is_one_error_line_with_the_help_command(capsys):
    code, message = failure(capsys, "inspect", "--nonsense")
    assert code == 2
    assert "--nonsense" in message
    assert "convoy inspect --help" in message


def test_unknown_command_is_one_error_line_with_the_nearest_or_all_commands(capsys):
    code, message = failure(capsys, "transmogrify")
    assert code == 2
    assert "known are serve, translate," in message
    assert "did you mean translate?" in failure(capsys, "trnslate")[1]
    assert "did you mean fairseq?" in failure(capsys, "convert", "fairsek")[1]


def test_help_groups_the_flags_of_a_command(capsys):
    groups = {
        "translate": ["Arguments", "Input and output", "Server", "Model", "Answers", "Decoding", "Options"],
        "serve": ["Which models are served, and how they are loaded", "Limits of one request", "Options"],
        "inspect": ["Arguments", "Options"],
    }
    for command, titles in groups.items():
        done(command, "--help")
        lines = capsys.readouterr().out.splitlines()
        found = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
        assert [title for title in found if title in titles] == titles
        assert found[-1] == "Options"
        assert lines.count("Options:") == 1


def test_missing_bundle_is_bad_input(capsys, tmp_path):
    code, message = failure(capsys, "inspect", tmp_path / "nowhere")
    assert code == 2
    assert "nowhere" in message


def test_inspect_describes_the_bundle(bundle):
    description = json.loads(run("inspect", bundle, "--json").stdout)
    golden = read_golden(GOLDEN)
    assert description["vocabulary"] == {"source": golden["n_src"], "target": golden["n_tgt"]}
    files = {str(p.relative_to(bundle)): p.stat().st_size for p in bundle.rglob("*") if p.is_file()}
    assert description["files"] == {name: size for name, size in files.items() if name != "manifest.json"}
    text = run("inspect", bundle).stdout.decode()
    assert f"{description['parameters']:,}" in text
    assert description["architecture"] in text


def test_inspect_refuses_changed_weights(bundle, tmp_path, capsys):
    copied = tmp_path / "changed"
    shutil.copytree(bundle, copied)
    weights = copied / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, message = failure(capsys, "inspect", copied)
    assert code == 2
    assert "SHA-256" in message


@pytest.mark.parametrize("source", ModelSources.names)
def test_every_source_of_models_has_help(source):
    ended = run("convert", source, "--help")
    assert f"convoy convert {source} [OPTIONS]" in ended.stdout.decode()


def test_convert_refuses_an_unknown_format(capsys, tmp_path):
    code, message = failure(capsys, "convert", "opennmt", GOLDEN, tmp_path / "out")
    assert code == 2
    assert "fairseq" in message


def test_repeated_export_writes_equal_graphs(bundle, tmp_path):
    copied = tmp_path / "copy"
    shutil.copytree(bundle, copied)
    before = {p.name: p.read_bytes() for p in (copied / "onnx").iterdir()}
    done("export", copied)
    assert {p.name: p.read_bytes() for p in (copied / "onnx").iterdir()} == before


def test_unwritable_output_is_named_by_the_given_path(bundle, source, capsys, tmp_path):
    for out, wanted in ((tmp_path, "is a folder; give a file"), (tmp_path / "a" / "b", "make it first")):
        code, message = failure(capsys, "translate", source, "--model", bundle, "-o", out)
        assert code == 2
        assert f"{out}: " in message
        assert wanted in message
        assert ".partial" not in message
    assert list(tmp_path.iterdir()) == []


def test_error_of_a_folder_of_bundles_lists_its_bundles(source, capsys):
    for command in (("translate", source, "--model", bundles()), ("inspect", bundles())):
        assert "choose one of them: toy-de-en, toy-en-de, toy-title" in failure(capsys, *command)[1]


def test_terminated_command_leaves_no_partial_file(tmp_path):
    command = ["translate", "--model", bundles() / "toy-de-en", "-o", tmp_path / "out.txt", "--threads", "1"]
    words = [sys.executable, "-m", "cli.main", *map(str, command)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        until(lambda: list(tmp_path.iterdir()) or process.poll() is not None)
        process.terminate()
        assert process.wait(300) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_progress_bar_has_the_number_of_lines(tmp_path, monkeypatch):
    path = tmp_path / "lines.txt"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for content, wanted in ((b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)):
        path.write_bytes(content)
        assert count(path) == wanted == len(list(read(path)))
    assert count(None) is None
