"""The memory that a process may use, read from trees of files as machines and containers have them."""

from __future__ import annotations

import shutil

import pytest

from engine.repository.budget import State
from engine.repository.loading import ServiceSettings
from engine.repository.machine import memory_bytes, usual_budget
from engine.repository.service import Service
from tests.support.served import bundles

MEMORY = "MemTotal:       16000000 kB\nMemFree: 1 kB\n"
MACHINE = 16_000_000 << 10
GIB = 2**30


def states(service):
    return {name: entry.state for name, entry in service.repository_entries().items()}


def test_models_that_fit_are_loaded_at_the_start_and_others_at_their_first_use(tmp_path):
    paths = [bundles() / name for name in ("toy-de-en", "toy-en-de")]
    service = Service.open(paths, ServiceSettings(ceiling=100 * GIB))
    assert set(states(service).values()) == {State.LOADED}
    costs = [entry.cost for entry in service.repository_entries().values()]
    service.stop()
    service = Service.open(paths, ServiceSettings(ceiling=sum(costs) - 1))
    assert set(states(service).values()) == {State.UNLOADED}
    service.start()
    assert service.load("toy-de-en").name == "toy-de-en"
    assert service.load("toy-en-de").name == "toy-en-de"
    assert states(service) == {"toy-de-en": State.UNLOADED, "toy-en-de": State.LOADED}
    service.stop()
    service = Service.open(paths[:1], ServiceSettings(ceiling=1))  # a single model may exceed it
    assert states(service) == {"toy-de-en": State.LOADED}
    service.stop()


def test_added_model_is_loaded_at_once_only_if_it_fits(tmp_path):
    shutil.copytree(bundles() / "toy-de-en", tmp_path / "toy-de-en")
    for ceiling, state in ((100 * GIB, State.LOADED), (1, State.UNLOADED)):
        service = Service.open([tmp_path], ServiceSettings(ceiling=ceiling))
        service.start()
        service.repository.add(bundles() / "toy-en-de")
        assert states(service)["toy-en-de"] is state
        service.stop()


@pytest.mark.parametrize(
    "files, memory",
    [
        ({}, MACHINE),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, MACHINE),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        (
            {
                "proc/self/cgroup": "0::/system.slice/convoy.service\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{GIB}\n",
                "sys/fs/cgroup/system.slice/convoy.service/memory.max": f"{4 * GIB}\n",
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n9:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
            },
            3 * GIB,
        ),
        (
            {
                "proc/self/cgroup": "9:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712\n",
            },
            MACHINE,
        ),
        ({"proc/self/cgroup": "odd\n", "sys/fs/cgroup/memory.max": "5"}, MACHINE),
    ],
)
def test_least_limit_of_machine_and_container_counts(tmp_path, files, memory):
    for name, text in ({"proc/meminfo": MEMORY} | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_bytes(tmp_path) == memory
    assert usual_budget(2, tmp_path) == int(memory * 0.6 / 2)
