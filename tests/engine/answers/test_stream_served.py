"""Streamed answers over HTTP."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.support.served import LONG, busy, draining, server, until

TEXT = " Das ist gut. Wer bist du?\n\n😀 Guten Abend!  Was ist das? "


def assert_beginnings(partial, final):
    for earlier, later in itertools.pairwise(["", *partial, final]):
        assert later.startswith(earlier)
    assert len(set(partial)) == len(partial)


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


def read(response):
    """Parse server-sent events to (event, data, id) by the rules of the HTML standard."""
    found, event = [], {}
    for line in response.iter_lines():
        name, _, value = line.partition(":")
        if not line:
            if "data" in event:
                found.append((event.get("event", "message"), json.loads(event["data"]), event.get("id")))
            event = {}
        elif name:
            event[name] = value.removeprefix(" ")
    return found


def events(client, method, path, **kwargs):
    with client.stream(method, path, **kwargs) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["access-control-allow-origin"] == "*"
        return read(response)


# the prefix makes the first words certain at once
ENDLESS = LONG | {"prefix": "The house is", "stream": True}
BODY = {"q": TEXT, "source": "de", "target": "en", "max_length": 30, "min_length": 30}


@pytest.mark.parametrize("way", ["json", "form", "get"])
@pytest.mark.parametrize("more", [{}, {"scores": True, "alternatives": 1}, {"source": "auto"}])
def test_a_streamed_translation_ends_with_the_plain_answer(place, way, more):
    client, body = place[0], BODY | more
    plain = client.post("/translate", json=body).json()
    if way == "get":
        found = events(client, "GET", "/translate/stream", params=body)
    else:
        found = events(
            client, "POST", "/translate", **{"json" if way == "json" else "data": body | {"stream": True}}
        )
    *partials, last = found
    assert last == ("result", plain, "end")
    assert {name for name, _, _ in partials} == {"partial"}
    assert_beginnings([data["text"] for _, data, _ in partials], plain["translatedText"])
    assert {data["index"] for _, data, _ in partials} == {0}


def test_an_array_is_streamed_by_index(place):
    body = BODY | {"q": ["Wer bist du?", "😀", "Das ist gut."], "stream": True}
    *partials, last = events(place[0], "POST", "/translate", json=body)
    texts = last[1]["translatedText"]
    assert {data["index"] for _, data, _ in partials} == {0, 2}
    for _, data, _ in partials:
        assert texts[data["index"]].startswith(data["text"])


def test_html_is_streamed_in_one_piece(place):
    body = BODY | {"q": "<p>Wer <b>bist</b> du?</p>", "format": "html"}
    plain = place[0].post("/translate", json=body).json()
    assert events(place[0], "POST", "/translate", json=body | {"stream": True}) == [("result", plain, "end")]


@pytest.mark.parametrize("way", ["post", "get"])
def test_summaries_are_streamed_too(place, way):
    body = {"q": "We prove a theorem.", "max_length": 20, "min_length": 20}
    plain = place[0].post("/summarize", json=body).json()
    if way == "post":
        found = events(place[0], "POST", "/summarize", json=body | {"stream": True})
    else:
        found = events(place[0], "GET", "/summarize/stream", params=body)
    assert found[-1] == ("result", plain, "end")
    assert_beginnings([data["text"] for _, data, _ in found[:-1]], plain["summaryText"])


@pytest.mark.parametrize("path", ["/translate/stream", "/summarize/stream"])
def test_an_error_before_the_stream_has_its_status(place, path):
    answer = place[0].get(path)
    assert (answer.status_code, answer.json()) == (400, {"error": "Invalid request: missing q parameter"})
    params = {"q": "a", "source": "en", "target": "de", "beam_size": 99}
    assert place[0].get(path, params=params).status_code == 400


def test_a_failure_after_the_start_is_an_event(place):
    client, house, _ = place
    engine = house.service.repository.loaded["toy-de-en"].engine
    with client.stream("POST", "/translate", json=BODY | ENDLESS) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: partial"
        stepper = engine.lanes[1].stepper

        def fail(*args, **kwargs):
            raise RuntimeError("no device")

        stepper.launch = fail
        try:
            rest = list(lines)
        finally:
            del stepper.launch
    assert rest[-4:-2] == ["event: error", 'data: {"error":"the backend failed: RuntimeError: no device"}']
    labels = {"reason": "executor_failed", "model": "toy-de-en", "route": "/translate"}
    assert house.metrics.registry.get_sample_value("convoy_rejected_total", labels) == 1


def test_a_browser_that_reconnects_after_the_end_gets_204(place):
    answer = place[0].get("/translate/stream", params=BODY, headers={"Last-Event-ID": "end"})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_client_that_disconnects_frees_the_slots(place):
    client, house, _ = place
    with client.stream("POST", "/translate", json=BODY | ENDLESS) as response:
        lines = response.iter_lines()  # closes the connection when it is collected
        assert next(lines) == "event: partial"
        assert busy(house.service)[0]
    until(lambda: busy(house.service) == (0, 0))


def test_a_draining_server_refuses_new_streams(place):
    client, house, _ = place
    with draining(house):
        answers = [client.get(f"/{name}/stream", params=BODY) for name in ("translate", "summarize")]
    assert [answer.status_code for answer in answers] == [503, 503]


def test_silence_is_filled_with_comments(place, monkeypatch):
    monkeypatch.setattr("server.answering.events.COMMENT_SECONDS", 0.02)
    monkeypatch.setattr("server.answering.events.PLAIN_ERROR_SECONDS", 0.01)
    client, house, _ = place
    engine = house.service.repository.loaded["toy-de-en"].engine
    stepper, launch = engine.lanes[1].stepper, engine.lanes[1].stepper.launch

    def slow(*args, **kwargs):
        import time

        time.sleep(0.1)
        return launch(*args, **kwargs)

    stepper.launch = slow
    try:
        with client.stream(
            "POST", "/translate", json=BODY | {"max_length": 3, "min_length": 0, "stream": True}
        ) as r:
            lines = list(r.iter_lines())
    finally:
        del stepper.launch
    assert ": still at work" in lines
    assert "event: result" in lines
