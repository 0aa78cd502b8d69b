"""Runs commands in this process or in a new one, on a converted fixture of fairseq."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import app
from tests.support.golden_fixtures import read_golden

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "dyn_glu"


def run(*arguments, stdin="", check=True, env=None):
    """Run a command in a new process, and return its streams and exit code."""
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        timeout=600,
    )
    assert not check or ended.returncode == 0, ended.stderr.decode()
    return ended


def done(*arguments):
    """Run a command in this process, which has torch imported; it must succeed."""
    with pytest.raises(SystemExit) as stopped:
        app([str(a) for a in arguments])
    assert stopped.value.code == 0


def failure(capsys, *arguments):
    """Run a command that must fail, and return its exit code and its only error line."""
    with pytest.raises(SystemExit) as stopped:
        app([str(a) for a in arguments])
    message = capsys.readouterr().err
    assert message.startswith("convoy: error: ")
    assert message.count("\n") == 1
    return stopped.value.code, message


def golden_lines():
    """Return the golden fixture, and its sources as texts by index, without the empty one."""
    golden = read_golden(GOLDEN)
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *dictionary("src")]
    lines = {
        i: " ".join(symbols[t] if t != 3 else "nowhere" for t in ids[:-1])
        for i, ids in enumerate(golden["src"])
    }
    return golden, {i: line for i, line in lines.items() if line}


def dictionary(side):
    rows = (GOLDEN / f"dict.{side}.txt").read_text("utf-8").splitlines()
    return [row.rsplit(" ", 1)[0] for row in rows]


def translated(capsys, bundle, source, *flags):
    done("translate", "--model", bundle, "--input", source, "--threads", 1, *flags)
    return capsys.readouterr().out.splitlines()
