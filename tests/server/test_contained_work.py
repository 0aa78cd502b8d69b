"""Work without end on one client's text harms no other client."""

import asyncio
import os
import threading

import httpx
import pytest

from engine.api import in_slices
from tests.support import heavy_work
from tests.support.served import server, until

PAGE = "<p>Das ist <b>gut</b>.</p>" * 100
TEXT = "Das ist gut. " * 200
FORM = {"q": "Das ist gut.", "source": "de", "target": "en", "more": "a" * 20_480}


@pytest.fixture(scope="module")
def place():
    with pytest.MonkeyPatch.context() as patches:
        # any fault of the code: parsing a page with a certain word takes for ever
        patches.setattr("server.answering.translation.parse_pages", heavy_work.parse_or_spin)
        patches.setattr("engine.schedule.workers.BUDGET_SECONDS", 1.0)
        with server() as (client, state, _):
            yield client, state


def victims(client):
    """Send the requests of five other clients; yield their names and answers."""
    post, usual = client.post, {"source": "de", "target": "en"}
    yield "sentence", post("/translate", json=usual | {"q": "Das ist gut."})
    yield "auto", post("/translate", json=usual | {"q": "Das ist gut.", "source": "auto"})
    yield "page", post("/translate", json=usual | {"q": PAGE, "format": "html"})
    yield "text", post("/translate", json=usual | {"q": TEXT})
    yield "form", post("/translate", data=FORM)


def endless(client):
    values = {"q": PAGE + heavy_work.ENDLESS, "source": "de", "target": "en", "format": "html"}
    return client.post("/translate", json=values)


def test_endless_work_is_refused_and_harms_no_other_client(place):
    client, state = place
    answers = []
    with httpx.Client(base_url=client.base_url, timeout=600) as offender:
        thread = threading.Thread(target=lambda: answers.append(endless(offender)))
        thread.start()
        until(state.workers.oldest)
        killed = state.workers.figures.killed["time"]
        for name, answer in victims(client):
            assert answer.status_code == 200, (name, answer.text)
        thread.join()
    assert answers[0].status_code == 413
    assert "processor time" in answers[0].json()["error"]
    assert state.workers.figures.killed["time"] == killed + 1
    assert 'convoy_text_workers_killed_total{reason="time"}' in client.get("/metrics").text
    for name, answer in victims(client):
        assert answer.status_code == 200, (name, answer.text)


def test_visitors_own_their_work(place, monkeypatch):
    client, state = place
    owners, turn = [], state.workers._places.turn
    monkeypatch.setattr(state.workers._places, "turn", lambda owner: owners.append(owner) or turn(owner))
    assert client.post("/translate", json={"q": TEXT, "source": "de", "target": "en"}).status_code == 200
    assert set(owners) == {"address:127.0.0.1"}


def test_worker_of_a_client_that_left_is_killed(place):
    client, state = place
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=client.base_url, timeout=0.3) as offender:
        endless(offender)
    until(lambda: not state.workers.oldest())


def test_stuck_work_of_the_server_itself_ends_readiness(place, monkeypatch):
    client, state = place
    monkeypatch.setattr("server.state.STUCK_SECONDS", 0.1)
    stuck, over = threading.Event(), threading.Event()

    def block():
        stuck.set()
        assert over.wait(300)
        yield

    thread = threading.Thread(target=asyncio.run, args=(in_slices(block()),))
    thread.start()
    try:
        assert stuck.wait(300)
        until(lambda: client.get("/health/ready").status_code == 503)
        assert client.get("/health").status_code == 200
        assert "convoy_slice_longest_seconds" in client.get("/metrics").text
    finally:
        over.set()
        thread.join()
    until(lambda: client.get("/health/ready").status_code == 200)


def test_workers_are_gone_after_the_server(place):
    with server() as (client, state, _):
        assert client.post("/translate", json={"q": TEXT, "source": "de", "target": "en"}).status_code == 200
        pids = [state.workers._template[0].pid, *(worker.pid for worker in state.workers._idle)]
        assert len(pids) == 2

    def gone(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(lambda: all(map(gone, pids)))
