"""Inject each fault of the tables `faults*.py` into a copy of the code and run the tests that must catch it.

`make test-mutants` injects every fault; `python -m tests.mutants NAME...` injects the named ones. The old
text of a fault must occur exactly once in its file: `tests/project/test_mutants.py` checks that on every run.
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """`old` becomes `new` in `file`; `tests` are pytest arguments of which some test must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


def _read_tables() -> list[Mutant]:
    """Return the faults of every `faults*.py` under tests/, in the order of their paths."""
    found = []
    for path in sorted((ROOT / "tests").rglob("faults*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found += [Mutant(*fault) for fault in importlib.import_module(module).FAULTS]
    return found


MUTANTS = _read_tables()


def applied(mutant: Mutant, text: str) -> str:
    """Raises ValueError unless the fault fits the code exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name!r}: its text occurs {text.count(mutant.old)} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def fails(tests: str, tree: Path) -> bool:
    """Whether some test fails; one that hangs does. Raises RuntimeError when pytest could not run them."""
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(pytest, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest could not run {tests}:\n{done.stdout}{done.stderr}")
    return done.returncode == 1


def caught(mutant: Mutant, tree: Path) -> bool:
    """Whether the tests notice the fault, put into `tree` for as long as they run."""
    path = tree / mutant.file
    sound = path.read_text(encoding="utf-8")
    compiled = path.suffix in (".cpp", ".h")
    path.write_text(applied(mutant, sound), encoding="utf-8")
    try:
        if compiled:
            build(tree)
        return fails(mutant.tests, tree)
    finally:
        path.write_text(sound, encoding="utf-8")
        if compiled:
            build(tree)


def build(tree: Path) -> None:
    """Build the native operators of a copy of the code."""
    subprocess.run([sys.executable, "engine/native/build.py"], cwd=tree, check=True, capture_output=True)


def main(names: list[str]) -> int:
    chosen = [m for m in MUTANTS if not names or m.name in names]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="convoy-mutants-") as folder:
        tree = Path(folder) / "project" / "convoy"  # ../shared must not be found: the clone tests itself
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "runs")
        shutil.copytree(ROOT, tree, ignore=ignored)
        sound = set[str]()
        for mutant in chosen:
            if mutant.tests not in sound and fails(mutant.tests, tree):  # a fault proves nothing to these
                print(f"{mutant.tests}: fails without any fault; mend that first")
                return 1
            sound.add(mutant.tests)
            began, found = time.monotonic(), caught(mutant, tree)
            survived += not found
            seconds = time.monotonic() - began
            print(f"{'caught  ' if found else 'SURVIVED'} {seconds:6.1f} s  {mutant.name}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
