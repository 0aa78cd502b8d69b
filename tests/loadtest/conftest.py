"""Fixtures of the tests of benchmarks."""

import gzip

import pytest

from loadtest.engine.gpu_bench.setting import Setting
from tests.support.gpu_bench import ENGLISH, GERMAN, SHIPPED, SMALLEST


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "newstest").mkdir()
    for language, lines in (("en", ENGLISH), ("de", GERMAN)):
        text = gzip.compress("\n".join(lines).encode())
        (folder / "newstest" / f"newstest2013.{language}.gz").write_bytes(text)
    return Setting("cpu", folder / "models", folder, SHIPPED, SMALLEST, ("torch",), ("fp32",))
