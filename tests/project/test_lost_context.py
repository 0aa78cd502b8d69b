"""After a test has lost the CUDA context, later GPU tests are skipped instead of failing."""

from __future__ import annotations

import subprocess
import sys

from tests.project.rooms import ROOT

TESTS = """
import pytest

@pytest.mark.gpu
def test_before(): pass

@pytest.mark.gpu
def test_culprit(): raise RuntimeError("launching attend: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)")

@pytest.mark.gpu
def test_after(): raise RuntimeError("CUDA error: an illegal memory access was encountered")

def test_beside(): pass
"""


def test_gpu_tests_after_a_lost_context_are_skipped_with_the_name_of_the_culprit(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "tests.support.lost_context", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "1 failed, 2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "lost at test_some.py::test_culprit" in done.stdout
