"""Fixtures for tests of engines with a thread."""

import pytest


@pytest.fixture
def running():
    """A function that starts an engine, which is stopped at the end of the test."""
    started = []

    def run(engine):
        engine.start()
        started.append(engine)
        return engine

    yield run
    for engine in started:
        engine.stop(drain=False, timeout=10)
        assert not engine.healthy
