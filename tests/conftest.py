"""One thread for torch, whose pool would fight with the engine's threads and other test processes; how many
examples property tests draw (`tests.support.thorough`); and which tests are traced for coverage.
"""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Final

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.support import host_kernels
from tests.support.lost_context import pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401 - hooks
from tests.support.thorough import THOROUGH

torch.set_num_threads(1)

settings.register_profile(
    "quick",
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=400, derandomize=False)
settings.load_profile("thorough" if THOROUGH else "quick")

# Tracing makes steps twice as slow. Of the folders measured (pyproject.toml) nothing is tested here alone,
# and of a test with many cases the first takes nearly all the lines.
HERE: Final = Path(__file__).parent
UNTRACED: Final = ("export", "loadtest", "training", "everyday", "engine/models", "engine/kernels")


gc.disable()  # until all is imported and collected, which leaves no garbage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    traced = set[tuple[Path, str]]()
    for item in items:
        folder = item.path.relative_to(HERE).as_posix()
        test = (item.path, getattr(item, "originalname", item.name))
        if folder.startswith(UNTRACED) or test in traced:
            item.add_marker(pytest.mark.no_cover)
        elif item.get_closest_marker("gpu") is None:
            traced.add(test)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _spare_the_collector() -> None:
    """What is there when a file of tests begins stays: the garbage collector need not look at it again, which
    took a seventh of the processors' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def compiled_kernels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all runs keep the CUDA kernels that they compile, for the CPU and for GPUs, until anything that
    these are made of changes."""
    cache = getattr(pytestconfig, "cache", None)  # none with -p no:cacheprovider
    base = tmp_path_factory.mktemp("kernels") if cache is None else cache.mkdir("compiled-kernels")
    folder = base / host_kernels.fingerprint()
    folder.mkdir(exist_ok=True)
    for old in base.iterdir():
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


@pytest.fixture(scope="module")
def host(compiled_kernels: Path) -> host_kernels.Host:
    """Runs CUDA kernels on the CPU."""
    return host_kernels.Host(compiled_kernels)
