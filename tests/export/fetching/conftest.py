"""A local Remote Settings, and a job that fetches from local servers."""

from __future__ import annotations

import pytest

from export.fetching import download, web
from export.fetching.installing import Installer
from export.fetching.job import FetchJob
from export.fetching.progress import ProgressReport
from export.fetching.sources import Addresses, SourceTable
from export.fetching.state import StateFile
from tests.support.model_servers import Server, running


@pytest.fixture
def server(monkeypatch):
    """Return a running server without files; repetitions wait a hundredth of the time."""
    pauses = tuple(pause / 100 for pause in web.PAUSES)
    monkeypatch.setattr(web, "PAUSES", pauses)
    monkeypatch.setattr(download, "PAUSES", pauses)
    with running(Server()) as found:
        yield found


class Ran:
    """The lines of a job and its errors."""

    def __init__(self):
        self.said, self.errors, self.lines, self.opened = [], [], [], []

    def job(self, out, addresses, **more):
        report = ProgressReport(self.lines.append, terminal=False)
        installer = Installer(out, report, self.said.append)
        self.opened.append(SourceTable(addresses, self.said.append))
        return FetchJob(self.opened[-1], installer, StateFile(None), self.errors.append, **more)


@pytest.fixture
def ran():
    """Return an object whose `job` makes a job, and keeps its lines."""
    found = Ran()
    yield found
    for sources in found.opened:
        sources.close()


@pytest.fixture
def firefox(server):
    """Return a function that makes the addresses of the local server."""
    return lambda: Addresses(firefox=server.address)
