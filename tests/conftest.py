"""Settings of the test run: one thread for torch and for numpy's products, so that their pools do not compete
with the engine's threads and other test processes; the number of examples of property tests
(`tests.support.thorough`); and the tests that are traced for coverage.
"""

from __future__ import annotations

import gc
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when the next line imports numpy

from tests.support.lost_context import pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401 - hooks
from tests.support.thorough import THOROUGH

if TYPE_CHECKING:
    from tests.support import host_kernels

if find_spec("torch"):  # the extra `light` has none
    import torch

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

# Tracing makes steps twice as slow. Other tests cover the measured folders (pyproject.toml) without these,
# and the first case of a test covers nearly all the lines that its other cases cover.
HERE: Final = Path(__file__).parent
UNTRACED: Final = ("export", "loadtest", "training", "everyday", "engine/models", "engine/kernels")


gc.disable()  # until all tests are imported and collected: that leaves no garbage


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
    """Freeze the objects that exist when a file of tests begins: collecting them again took a seventh of the
    processor time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def compiled_kernels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of compiled CUDA kernels, for the CPU and for GPUs. All runs share it until a source
    of the kernels changes."""
    from tests.support import host_kernels

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
    """Return a runner of CUDA kernels on the CPU."""
    from tests.support import host_kernels

    return host_kernels.Host(compiled_kernels)
