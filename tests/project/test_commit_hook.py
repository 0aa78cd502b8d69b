"""The hook `.githooks/commit-msg` accepts `area: do something` and explains the problem of other subjects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.project.rooms import ROOT

HOOK = ROOT / ".githooks" / "commit-msg"


def run_hook(tmp_path, message):
    """Return the exit code of the hook for a message, and what the hook prints."""
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    done = subprocess.run([sys.executable, HOOK, file], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "search: rename the state of a slot\n",
        "repository, ipc: rename engine/shelf and its link\n",
        "README: state purpose, users, start and languages\n\nWhy it changed.\n",
        "queue: drop cancelled requests before admission\n# Please enter the commit message\n",
        "tests: pass the device to every executor\n",
        "search: process two steps at a time\n",
        "Merge branch 'main' into docs\n",
        'Revert "search: process two steps at a time"\n',
        "search: use bfloat16 for the cache\n",
        "",
    ],
)
def test_good_subjects_pass(tmp_path, message):
    assert run_hook(tmp_path, message) == (0, "")


@pytest.mark.parametrize(
    "message, reason",
    [
        ("search: " + "x" * 65, "it has 73 characters"),
        ("Rename the state of a slot", "an area and a colon"),
        ("search : rename", "an area and a colon"),
        ("search: renames the state of a slot", "'renames' is no imperative"),
        ("search: renamed the state of a slot", "'renamed' is no imperative"),
        ("search: renaming the state of a slot", "'renaming' is no imperative"),
        ("search: the state of a slot", "'the' is no verb"),
        ("search: rename the state of a slot.", "full stop"),
        ("search: rename the state\nof a slot", "the line below it is not empty"),
    ],
)
def test_other_subjects_are_refused_with_the_reason(tmp_path, message, reason):
    code, printed = run_hook(tmp_path, message)
    assert code == 1
    assert reason in printed


def test_the_hook_is_executable_and_runs_from_git(tmp_path):
    assert os.access(HOOK, os.X_OK)
    settings = ["-c", f"core.hooksPath={HOOK.parent}", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit = ["git", *settings, "commit", "-q", "--allow-empty", "-m"]
    assert subprocess.run([*commit, "search: fixes it"], cwd=tmp_path, capture_output=True).returncode != 0
    assert subprocess.run([*commit, "search: fix it"], cwd=tmp_path, capture_output=True).returncode == 0
