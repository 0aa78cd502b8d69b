"""Servers and clients of both kinds for tests of the client."""

import pytest
from starlette.applications import Starlette

from tests.convoy_client.serving import KEY, Stage, using
from tests.support.served import server, until


@pytest.fixture(scope="module")
def place():
    with server(api_keys=KEY) as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def kind(request):
    return request.param


@pytest.fixture
def ask(kind, place):
    url = str(place[0].base_url)
    return lambda use, **arguments: using(kind, url, use, **{"api_key": KEY} | arguments)


@pytest.fixture(scope="module")
def stage():
    made = Stage()
    made.thread.start()
    until(lambda: made.server.started or not made.thread.is_alive())
    yield made
    made.server.should_exit = True
    made.thread.join(300)


@pytest.fixture
def small(stage):
    """Return a function that serves routes and returns the URL."""

    def play(*routes):
        stage.app = Starlette(routes=list(routes))
        return f"http://127.0.0.1:{stage.server.servers[0].sockets[0].getsockname()[1]}"

    return play
