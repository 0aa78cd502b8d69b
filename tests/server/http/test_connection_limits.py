"""Hosts, headers, and time limits of heads and bodies."""

import socket

import pytest
from starlette.datastructures import Headers

from server.errors import Refusal
from server.http.hosts import check_host, check_origin
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


@pytest.mark.parametrize(
    ("origin", "host", "settings", "allowed"),
    [
        (None, "localhost:8000", {}, True),
        ("http://localhost:8000", "localhost:8000", {}, True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", {}, True),
        ("http://[::1]:8000", "[::1]:8000", {}, True),
        ("HTTP://LOCALHOST:8000", "localhost:8000", {}, True),
        ("http://localhost:3000", "localhost:8000", {}, False),
        ("http://evil.example", "localhost:8000", {}, False),
        ("http://evil.example", "localhost:8000", {"cors_origins": "*"}, False),
        ("https://a.example", "localhost:8000", {"cors_origins": "https://a.example"}, True),
        ("null", "localhost:8000", {}, False),
        ("null", "", {}, False),
        ("", "", {}, True),
        # the name of a page that points to the address of the server (DNS rebinding)
        ("http://evil.example:8000", "evil.example:8000", {"host": "0.0.0.0"}, False),
        ("http://mine:8000", "mine:8000", {"host": "0.0.0.0", "allowed_hosts": "mine"}, True),
        ("http://10.0.0.7:8000", "10.0.0.7:8000", {"host": "0.0.0.0"}, True),
        ("https://t.example", "127.0.0.1:8000", {"public_url": "https://t.example/translate"}, True),
    ],
)
def test_pages_of_other_origins_may_not_use_what_is_stored(origin, host, settings, allowed):
    headers = Headers({"host": host} | ({} if origin is None else {"origin": origin}))
    if allowed:
        check_origin(headers, ServerSettings(**settings))
        return
    with pytest.raises(Refusal, match="CONVOY_CORS_ORIGINS"):
        check_origin(headers, ServerSettings(**settings))


def test_foreign_page_may_translate_but_not_touch_glossaries_and_documents(client):
    evil, own = ({"Origin": f"http://{host}"} for host in ("evil.example", client.base_url.netloc.decode()))
    for method, path in (
        ("DELETE", "/v2/glossaries/x"),
        ("GET", "/v2/glossaries/x/entries"),
        ("POST", "/v2/glossaries"),
        ("PATCH", "/v3/glossaries/x"),
        ("PUT", "/v3/glossaries/x/dictionaries"),
        ("DELETE", "/v3/glossaries/x"),
        ("POST", "/v2/document"),
        ("POST", "/v2/document/x"),
        ("POST", "/suggest"),
    ):
        answer = client.request(method, path, headers=evil)
        assert answer.status_code == 403, path
        assert "add the origin to CONVOY_CORS_ORIGINS" in answer.text
        assert "CORS" not in client.request(method, path, headers=own).text
    assert client.options("/v2/glossaries/x", headers=evil).status_code == 204
    file = {"data": {"target_lang": "EN"}, "files": {"file": ("a.txt", b"Gut.")}}
    assert client.post("/v2/document", headers=own, **file).status_code == 200
    sent = {"q": "Das ist gut.", "source": "de", "target": "en"}
    assert client.post("/translate", json=sent, headers=evil).status_code == 200


def test_keys_decide_instead_of_the_origin():
    key = "k" * 32
    with server(api_keys=key) as (client, _, _):
        headers = {"Origin": "https://evil.example", "Authorization": f"DeepL-Auth-Key {key}"}
        assert client.get("/v2/glossaries", headers=headers).status_code == 200


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
            slow.settimeout(300)
            assert b"408" in slow.recv(100)
        until(lambda: state.in_flight == 0)


def test_missing_head_times_out(monkeypatch):
    with server() as (client, _, _):
        monkeypatch.setattr("server.http.protocol.HEAD_SECONDS", 0.2)
        for head in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "):
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as slow:
                slow.sendall(head)
                slow.settimeout(300)
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
