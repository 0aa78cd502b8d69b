"""`convoy translate TEXT`: texts as arguments, models that are found, and languages that are detected."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.cli.commands import ROOT, done, failure
from tests.support.served import bundles

SHIPPED = ROOT / "models"


@pytest.fixture(autouse=True)
def found(monkeypatch, tmp_path):
    """Commands run in an empty folder and find the shipped models by the variable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONVOY_MODELS", str(SHIPPED))


def answered(capsys, *arguments):
    done("translate", *arguments, "--threads", 1)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "flags", "wanted"),
    [
        ("Guten Morgen!", ["--to", "en"], "Good morning!"),
        ("Guten Morgen", ["--target", "French"], "Bonjour"),  # by two models
        ("Good morning!", ["--from", "eng_Latn", "--to", "deu"], "Guten Morgen!"),
        ("Good morning!", ["--source", "auto", "--to", "DE"], "Guten Morgen!"),
        ("Good morning!", ["--model", SHIPPED / "tatoeba-en-de"], "Guten Morgen!"),
    ],
)
def test_text_argument_is_translated(capsys, text, flags, wanted):
    assert answered(capsys, text, *flags) == [wanted]


def test_lines_of_a_text_argument_have_one_answer_each(capsys):
    text = "Guten Morgen!\n\nGuten Abend!"
    assert answered(capsys, text, "--to", "en") == ["Good morning!", "", "Good evening!"]
    assert [json.loads(line)["line"] for line in answered(capsys, text, "--to", "en", "--json")] == [1, 2, 3]


def test_folder_models_is_the_default(capsys, monkeypatch, tmp_path):
    for variable in ("", None):
        if variable is None:
            monkeypatch.delenv("CONVOY_MODELS")
        else:
            monkeypatch.setenv("CONVOY_MODELS", variable)
        code, message = failure(capsys, "translate", "Guten Morgen!", "--to", "en")
        assert code == 2
        assert all(remedy in message for remedy in ("--model", "--url", "CONVOY_MODELS"))
    (tmp_path / "models").symlink_to(SHIPPED)
    assert answered(capsys, "Guten Morgen!", "--to", "en") == ["Good morning!"]


def test_several_folders_of_models_are_found(capsys, monkeypatch):
    folders = [SHIPPED / "tatoeba-de-en", SHIPPED / "tatoeba-en-fr"]
    monkeypatch.setenv("CONVOY_MODELS", os.pathsep.join(map(str, folders)))
    assert answered(capsys, "Guten Morgen", "--to", "fr") == ["Bonjour"]
    assert "de" not in failure(capsys, "translate", "Guten Morgen!")[1].partition("translate to")[2]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["Guten Morgen!"], "give --to: the models translate to de, en, fr"),
        (["Guten Morgen!", "--to", "sv"], "no model translates to sv, only to de, en, fr"),
        (["Hola, amigo mío, ¿cómo estás hoy?", "--to", "en"], "Spanish, which no model translates to en"),
        (["letter.txt", "--to", "en"], "letter.txt: No such file"),
        (["letters/one", "--to", "en"], "letters/one: No such file"),
        (["Guten Morgen!", "--to", "en", "--input", "a.txt"], "only once"),
    ],
)
def test_text_that_can_not_be_translated_is_one_error_line(capsys, arguments, wanted):
    code, message = failure(capsys, "translate", *arguments)
    assert code == 2
    assert wanted in message


def test_file_of_any_name_is_a_file(capsys, tmp_path):
    (tmp_path / "Guten Morgen!").write_text("Guten Abend!\nGuten Tag!\n", "utf-8")
    assert answered(capsys, "Guten Morgen!", "--to", "en") == ["Good evening!", "Good day!"]
    long = "Guten Morgen! " * 400  # longer than any path
    assert len(answered(capsys, long, "--to", "en")[0]) > 2_000


def test_document_finds_its_models(capsys, tmp_path):
    (tmp_path / "page.html").write_text("<p>Guten Morgen!</p>", "utf-8")
    answered(capsys, "page.html", "--to", "en", "-o", "out.html")
    assert "<p>Good morning!</p>" in (tmp_path / "out.html").read_text("utf-8")


@pytest.mark.parametrize("flags", [["--to", "en"], ["--model", str(bundles() / "toy-de-en")]])
def test_pipe_gets_each_local_answer_before_its_next_line(flags):
    command = [sys.executable, "-m", "cli.main", "translate", *flags, "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **streams) as child:
        for line in (b"Guten Morgen!\n", b"\n", b"Guten Abend!\n"):
            child.stdin.write(line)
            child.stdin.flush()
            assert child.stdout.readline().endswith(b"\n")  # would wait for ever
        child.stdin.write(b"f\xfcr\n")
        child.stdin.close()
        assert child.stdout.read() == b""
        assert b"standard input, line 4: not UTF-8" in child.stderr.read()
    assert child.returncode == 2


def test_terminal_shows_answers_and_no_progress_bar():
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "translate", "--to", "en", "--threads", "1"]
    streams = {"stdin": subprocess.PIPE, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **streams) as child:
        child.communicate(b"Guten Morgen!\nGuten Abend!\n", timeout=600)
    assert os.read(controller, 10_000).decode().splitlines() == ["Good morning!", "Good evening!"]
    os.close(controller)
    os.close(terminal)
