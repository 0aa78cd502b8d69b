"""Attacks on a front end that has its engines in another process, and what one front end does to another.

A few of all attacks, one of each kind. All of them are sent to one process in `test_attacks`.
"""

import os
import signal
import time
from contextlib import closing

import httpx
import pytest

from tests.server.test_attacks import Others, sender, slowed
from tests.server.test_reload import NAME, TOKEN
from tests.server.test_server_process import GERMAN, MAIN
from tests.support.processes import LONGER, connections, pids, processes
from tests.support.served import until, value
from tests.support.timing import thrice

ATTACKS = (
    "a word without end",
    "a page for Google",
    "messages without end",
    "arguments in arguments",
    "as many sentences as may be",
    "a glossary to be kept",
)


@pytest.fixture(scope="module")
def place():
    with processes(
        1, 1, PLUGINS="deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,ollama", THREADS="1"
    ) as (
        client,
        running,
    ):
        client.post("/detect", json={"q": "Das ist gut."})  # its model stays
        client.post("/translate", json=GERMAN)
        found = pids(running) + pids(running, "engine process")
        with Others(str(client.base_url), *found) as others:
            yield client, running, others


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_on_a_front_end_delays_no_other_client(place, name):
    client, _, others = place
    thrice(lambda: slowed(others, sender(client, [name])))


def connected_to(client, running, pid):
    """A client that keeps a connection to one front end."""
    while True:
        before = connections(running)[pid]
        one = httpx.Client(base_url=client.base_url, timeout=600, verify=False)
        one.get("/health")
        if connections(running)[pid] > before:
            return one
        one.close()


def test_stopped_front_end_delays_no_request_and_no_order_of_another():
    program = ("-c", f"import server.supervisor; server.supervisor.ORDER_CHECKS = 2\n{MAIN}")
    settings = {"THREADS": "1", "ADMIN_TOKEN": "operator-operator", "HANG_TIMEOUT": "0"}
    with processes(2, 1, program, **settings) as (client, running):
        held, other = pids(running)
        lost, served = (connected_to(client, running, pid) for pid in (held, other))
        with closing(lost), closing(served):
            stream = lost.build_request("POST", "/translate", json=LONGER | {"stream": True})
            answer = lost.send(stream, stream=True)
            assert answer.status_code == 200
            os.kill(held, signal.SIGSTOP)
            for _ in range(20):
                assert served.post("/translate", json=GERMAN).status_code == 200
            reloaded = served.post(f"/models/{NAME}/reload", headers=TOKEN)
            assert reloaded.status_code == 409
            assert "does not respond" in reloaded.json()["error"]
            assert served.post("/translate", json=GERMAN).status_code == 200
            os.kill(held, signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                answer.read()
            began = time.monotonic()
            until(lambda: value(served, "convoy_slots_active", lane="1") == 0)
            assert time.monotonic() - began < 60, "LONGER would take longer than the figures are late"
