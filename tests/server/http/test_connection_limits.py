"""Hosts, headers, and time limits of heads and bodies."""

import socket

import pytest

from server.errors import Refusal
from server.http.middleware import check_host
from server.settings import ServerSettings
from tests.support.served import server, until


@pytest.mark.parametrize(
    ("host", "settings", "answers"),
    [
        ("localhost:8000", {}, True),
        ("127.0.0.1", {}, True),
        ("[::1]:8000", {}, True),
        ("evil.example", {}, False),
        ("evil.example", {"host": "0.0.0.0"}, True),
        ("mine.example:80", {"allowed_hosts": "mine.example"}, True),
        ("MINE.example", {"allowed_hosts": "mine.example", "host": "0.0.0.0"}, True),
        ("evil.example", {"allowed_hosts": "mine.example", "host": "0.0.0.0"}, False),
        ("evil.example", {"allowed_hosts": "*"}, True),
    ],
)
def test_foreign_host_names_are_refused(host, settings, answers):
    if answers:
        check_host(host, ServerSettings(**settings))
        return
    with pytest.raises(Refusal, match="CONVOY_ALLOWED_HOSTS"):
        check_host(host, ServerSettings(**settings))


def test_no_proxy_is_trusted_by_default():
    assert ServerSettings().trusted_proxies == ()


def test_link_to_a_file_has_the_configured_address():
    with server(public_url="https://translate.example/") as (client, _, _):
        sent = {"data": {"target": "en", "source": "de"}, "files": {"file": ("a.txt", b"Gut.")}}
        url = client.post("/translate_file", **sent).json()["translatedFileUrl"]
        assert url.startswith("https://translate.example/download_file/")


def test_all_answers_have_the_nosniff_header(client):
    for path in ("/health", "/docs", "/", "/nothing"):
        answer = client.get(path)
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path
    assert "frame-ancestors 'none'" in client.get("/docs").headers["content-security-policy"]


def test_head_is_answered_like_get_without_a_body(client):
    for path in ("/health", "/languages", "/models", "/v2", "/v2/models", "/docs", "/"):
        found, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (found.status_code, b""), path
        assert head.headers["content-length"] == found.headers["content-length"]


def test_missing_body_times_out():
    with server(body_timeout=0.2) as (client, state, _):
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
            slow.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
            slow.settimeout(10)
            assert b"408" in slow.recv(100)
        until(lambda: state.in_flight == 0)


def test_missing_head_times_out(monkeypatch):
    monkeypatch.setattr("server.http.protocol.HEAD_SECONDS", 0.2)
    with server() as (client, _, _):
        for head in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "):
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
                slow.sendall(head)
                slow.settimeout(30)
                assert slow.recv(100) == b""


def test_body_in_chunks_is_accepted_but_tiny_chunks_are_refused():
    head = (
        "POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    with server() as (client, _, _):
        for sizes, status in (
            ([1] * 1_000, 200),
            ([1] * 1_100, 400),
            ([64] * 3_000, 200),
            ([100_000, *[1] * 1_100], 400),  # a large chunk does not make up for later tiny ones
            ([*[1] * 500, 50_000, *[1] * 1_000], 200),
        ):
            pieces = [*(b" " * size for size in sizes), b'{"q":"Ja."}']
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as one:
                one.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body + b"0\r\n\r\n")
                answer = b"".join(iter(lambda: one.recv(65_536), b""))  # noqa: B023 - is called here
            assert answer.startswith(b"HTTP/1.1 %d" % status)
            assert (b"send the body in larger ones" in answer) == (status == 400)


def test_slow_head_gets_no_more_time_for_each_byte(monkeypatch):
    monkeypatch.setattr("server.http.protocol.HEAD_SECONDS", 0.3)
    with server() as (client, _, _), socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
        slow.settimeout(0.05)

        def closed():
            try:
                slow.sendall(b"a")
                return slow.recv(100) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        until(closed)
