"""Processes that host bundles, and helpers to call their engines."""

import asyncio
import multiprocessing
import os
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.api import connect_service
from tests.server.test_reload import NAME
from tests.support.hosting import host
from tests.support.served import bundles, settings_of

SETTINGS = settings_of(queue_tokens=2000)


class Hosted:
    """Processes that host bundles, by number."""

    def __init__(self, folder, models, count):
        self.models, self.paths, self.processes = models, [Path(folder, f"{n}") for n in range(count)], {}
        for number in range(count):
            self.start(number)

    def start(self, number):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.support.hosting"])
        process = context.Process(
            target=host, args=([self.models], SETTINGS, self.paths[number]), daemon=True
        )
        process.start()
        self.processes[number] = process

    def signal(self, number, what):
        os.kill(self.processes[number].pid, what)

    def kill(self, number):
        self.signal(number, signal.SIGKILL)

    @asynccontextmanager
    async def connected(self):
        """Return a connected service of the hosted models."""
        service = await asyncio.to_thread(connect_service, self.paths, SETTINGS)
        service.start()
        while len(service._connections.offered().get(NAME, ())) != len(self.paths):
            await asyncio.sleep(0.01)
        try:
            yield service
        finally:
            await asyncio.to_thread(service.stop, drain=False, timeout=5)
            service._connections.close()
            await asyncio.sleep(0.01)


@pytest.fixture
def hosted(tmp_path):
    models = tmp_path / "models"
    shutil.copytree(bundles() / NAME, models / NAME)
    places = []

    def host_some(count):
        places.append(Hosted(tmp_path, models, count))
        return places[-1]

    yield host_some
    for process in places[0].processes.values():
        process.kill()
        process.join()


def engine_of(service):
    return service.repository.loaded[NAME].engine


async def refusal(work):
    try:
        return await work
    except Exception as error:
        return error
