"""The tests that need a GPU, as a part like the others."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.setting import Setting

ROOT: Final = Path(__file__).parents[3]
MARK: Final = "mark.gpu"
TAIL: Final = 40  # lines of what pytest said
LOG: Final = "tests.log"  # all of it, beside the record
TOGETHER: Final = 6  # processes, where pytest-xdist is there
# a machine lent for an hour has torch and pytest, and not every plugin that pyproject.toml configures
OPTIONS: Final = (
    "-q",
    "-rs",
    "-m",
    "gpu",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=",
    "-p",
    "no:cacheprovider",
)


def suite(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Run the tests that need a GPU. ok: pytest passed, and on a GPU did not skip everything. Of the files of
    tests/ that hold a test with the mark, nothing else is even imported; one that can't be does not stop the
    others."""
    options = [*OPTIONS, "--continue-on-collection-errors", "--durations=10"]
    if find_spec("xdist") is not None:
        options += ["-n", str(TOGETHER)]
    command = [sys.executable, "-m", "pytest", *options, *map(str, gpu_tests(ROOT / "tests"))]
    log = desk.book.path.with_name(LOG)
    with log.open("wb") as out:
        try:
            code: int | None = subprocess.run(
                command,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=max(10.0, until - time.monotonic()),
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    output = log.read_text("utf-8", "replace").splitlines()[-TAIL:]
    if code is None:
        return {"ok": False, "code": None, "said": ["it took too long", *output]}
    ran = " passed" in (output or [""])[-1] or not setting.device.startswith("cuda")
    return {"ok": code == 0 and ran, "code": code, "said": output}


def gpu_tests(folder: Path) -> list[Path]:
    """List the files of tests that need a GPU."""
    return [path for path in sorted(folder.rglob("test_*.py")) if MARK in path.read_text("utf-8")]
