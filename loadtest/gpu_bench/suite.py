"""The tests that need a GPU, as a part like the others."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from loadtest.gpu_bench.book import Desk
from loadtest.gpu_bench.setting import Setting

ROOT: Final = Path(__file__).parents[2]
MARK: Final = "mark.gpu"
TAIL: Final = 40  # lines of what pytest said
# a machine lent for an hour has torch and pytest, and not every plugin that pyproject.toml configures
OPTIONS: Final = ("-q", "-m", "gpu", "-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider")


def suite(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """ok: pytest passed, and on a GPU did not skip everything. Of the files of tests/ that hold a test
    with the mark, nothing else is even imported."""
    files = [str(p) for p in sorted((ROOT / "tests").glob("test_*.py")) if MARK in p.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", *OPTIONS, *files]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=max(10.0, until - time.monotonic())
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return {"ok": False, "code": None, "said": ["it took too long", *text.splitlines()[-TAIL:]]}
    said_lines = (done.stdout + done.stderr).splitlines()
    ran = " passed" in (said_lines or [""])[-1] or not setting.device.startswith("cuda")
    return {"ok": done.returncode == 0 and ran, "code": done.returncode, "said": said_lines[-TAIL:]}
