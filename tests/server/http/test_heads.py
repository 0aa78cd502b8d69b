"""Heads, chunks and trailers of requests: their limits, ambiguous lengths, and clients that close early."""

import json
import socket

import h11
import pytest

from server.http.protocol import MAX_HEAD_BYTES, MAX_HEADERS, Grammar
from tests.support.served import LINES, LONG, server, until, value
from tests.support.sockets import exchange
from tests.support.timing import assert_takes_at_most

POST = b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b'{"q":"Das ist gut."}'
ASK = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
ROOM = MAX_HEAD_BYTES - 200


def parse(data):
    """Parse bytes like a connection does; return the events and the refusal."""
    grammar, events = Grammar(), []
    grammar.receive_data(data)
    try:
        while (event := grammar.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            events.append(event)
        refusal = None
    except h11.RemoteProtocolError:
        refusal = grammar.refusal
    return events, refusal


COSTLY = {
    "headers": (POST + b"a:\r\n" * (ROOM // 4) + b"\r\n", 431),
    "folded lines": (POST + b"a: b\r\n" + b" \r\n" * (ROOM // 3) + b"\r\n", 431),
    "spaces before a control character": (POST + b"a:" + b" " * ROOM + b"\0\r\n\r\n", 400),
    "spaces before a carriage return": (POST + b"a:" + b" " * ROOM + b"\r\r\n\r\n", 400),
    "spaces before a vertical tab": (POST + b"a:" + b" \t" * (ROOM // 2) + b"\v\r\n\r\n", 400),
    "extension of a chunk": (CHUNKED + b"5;" + b" " * ROOM + b"\nx\r\n", 400),
    "trailers": (CHUNKED + b"0\r\n" + b"a:\r\n" * (ROOM // 4) + b"\r\n", 431),
    "spaces in a trailer": (CHUNKED + b"0\r\na:" + b" " * ROOM + b"\0\r\n\r\n", 400),
    "lengths": (POST + b"Content-Length: " + b"5," * (ROOM // 2) + b"x\r\n\r\n", 400),
    "encodings": (POST + b"Transfer-Encoding: " + b"," * ROOM + b"\r\n\r\n", 501),
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_head_is_refused_in_linear_time(name):
    data, status = COSTLY[name]
    _, refusal = parse(data)
    assert refusal
    assert refusal[0] in (status, 400)
    assert_takes_at_most(0.05, lambda: parse(data))


def test_head_at_the_limits_is_read():
    lines = b"".join(b"a%d: b\r\n" % number for number in range(MAX_HEADERS - 3))
    events, refusal = parse(POST + lines + b"\r\n")
    assert not refusal
    assert len(events[0].headers) == MAX_HEADERS - 1
    events, refusal = parse(b"GET /?" + b"q" * (MAX_HEAD_BYTES - 50) + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert not refusal
    events, refusal = parse(CHUNKED + b"2;a=b\r\n{}\r\n0\r\na: b\r\n\r\n")
    assert [type(event) for event in events] == [h11.Request, h11.Data, h11.EndOfMessage]
    assert not refusal


@pytest.fixture(scope="module")
def client():
    with server() as (client, _, _):
        yield client


def test_ambiguous_length_is_refused_and_a_smuggled_request_gets_no_answer(client):
    smuggled = b"GET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (len(smuggled) + 5)
    for lines in (both, b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"):
        answer = exchange(client.base_url.port, POST + lines + smuggled)
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
        assert b"connection: close" in answer.lower()
        assert b"send one of them" in answer
    too_many = exchange(client.base_url.port, POST + b"a: b\r\n" * MAX_HEADERS + b"\r\n")
    assert too_many.startswith(b"HTTP/1.1 431")


def test_offer_of_another_protocol_is_answered_in_this_one(client):
    upgrade = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert exchange(client.base_url.port, upgrade, half_close=True).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_half_closed_client_is_answered(client, version, monkeypatch):
    monkeypatch.setattr("server.http.protocol.OLD_CLIENT_SECONDS", 300.0)  # the first detection may be late
    answer = exchange(client.base_url.port, ASK.replace(b"1.1", version), half_close=True)
    assert b"HTTP/1.1 200" in answer
    assert b"confidence" in answer
    # a server that answers before it reads the end of the connection sends no interim response
    assert b"HTTP/1.1 102" not in answer or version == b"1.1"


def test_all_requests_of_a_half_closed_client_are_answered(client):
    assert exchange(client.base_url.port, ASK * 3, half_close=True).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_request_of_a_client_that_has_left_is_cancelled(version, monkeypatch):
    monkeypatch.setattr("server.http.protocol.OLD_CLIENT_SECONDS", 0.2)
    body = json.dumps({"q": LINES[:160], "source": "de", "target": "en"} | LONG).encode()
    head = b"POST /translate HTTP/%b\r\nHost: localhost\r\nContent-Type: application/json\r\n" % version
    with server() as (client, state, _):
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as gone:
            gone.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: state.in_flight == 1)
        until(lambda: state.in_flight == 0)
        assert value(client, "convoy_rejected_total", reason="cancelled", route="/translate") == 1
