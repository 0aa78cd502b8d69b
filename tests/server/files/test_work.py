"""Bytes of files in work: of one owner and of all, counted before the bodies are read."""

import socket
from contextlib import ExitStack

import pytest

from engine.api import Overloaded
from server.files.room import MIN_BYTES
from server.files.store import OWNER_SHARES
from server.files.work import LEAST_BYTES, FilesInWork
from tests.support.served import server, until

HEAD = (
    "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9800000\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\n{}\r\n--x"
)


@pytest.mark.parametrize("path", ["/translate_file", "/v2/document"])
def test_thirty_large_files_of_one_client_are_not_read_at_once(path):
    keys = "a" * 32, "b" * 32
    with server(api_keys=",".join(keys), body_timeout=60) as (client, state, _), ExitStack() as open_:
        one, other = ({"X-API-Key": key} for key in keys)

        def begin(key):
            sent = socket.create_connection(("127.0.0.1", client.base_url.port), timeout=300)
            open_.enter_context(sent)
            sent.sendall(HEAD.format(path, f"X-API-Key: {key}\r\n").encode())
            return sent

        begun = [begin(keys[0]) for _ in range(3)]
        until(lambda: state.in_flight == 3)  # a quarter of 128 MiB
        refused = [begin(keys[0]).recv(1_000).lower() for _ in range(27)]
        assert all(answer.startswith(b"http/1.1 429") for answer in refused)
        assert all(b"retry-after: 5" in answer for answer in refused)
        small = {"data": {"source": "de", "target": "en", "target_lang": "EN"}}
        small["files"] = {"file": ("a.txt", b"Gut.")}
        assert client.post(path, headers=one, **small).status_code == 200
        begun.append(begin(keys[1]))
        until(lambda: state.in_flight == 4)
        assert client.post(path, headers=other, **small).status_code == 200
        begun.pop(0).close()
        until(lambda: state.in_flight == 3)
        begin(keys[0])
        until(lambda: state.in_flight == 4)


def test_place_of_a_document_is_free_after_its_translation():
    with server(file_work=4 * LEAST_BYTES) as (client, state, _):
        sent = {"data": {"target_lang": "EN"}, "files": {"file": ("a.txt", b"Gut.")}}
        for _ in range(3):
            handle = client.post("/v2/document", **sent)
            assert handle.status_code == 200
            key = {"document_key": handle.json()["document_key"]}
            status = f"/v2/document/{handle.json()['document_id']}"
            until(lambda: client.post(status, json=key).json()["status"] == "done")  # noqa: B023 - is called here
        until(lambda: state.in_flight == 0)


def test_client_with_full_room_of_stored_files_gets_429():
    with server(file_store=OWNER_SHARES * 3 * MIN_BYTES) as (client, _, _):

        def send(path, size=4):
            data = {"source": "de", "target": "en", "target_lang": "EN"}
            return client.post(path, data=data, files={"file": ("a.txt", b"Gut.\n" + b"-\n" * (size // 2))})

        def result(handle):
            key, path = {"document_key": handle["document_key"]}, f"/v2/document/{handle['document_id']}"
            until(lambda: client.post(path, json=key).json()["status"] in ("done", "error"))
            return client.post(f"{path}/result", json=key)

        assert send("/translate_file").status_code == 200
        late = result(send("/v2/document", size=2 * MIN_BYTES).json())
        assert (late.status_code, "no room" in late.json()["message"]) == (429, True)
        for _ in range(2):
            assert result(send("/v2/document").json()).status_code == 200
        for path in ("/v2/document", "/translate_file"):
            refused = send(path)
            assert (refused.status_code, "no room" in refused.text) == (429, True)
            assert int(refused.headers["Retry-After"]) > 1


def test_owner_has_a_quarter_and_a_single_file_any_size():
    work = FilesInWork(8 * LEAST_BYTES)
    with ExitStack() as places:
        places.enter_context(work.place("a", 100 * LEAST_BYTES))
        for owner in ("a", "b"):
            with pytest.raises(Overloaded):
                places.enter_context(work.place(owner, 1))
    with ExitStack() as places:
        for owner in "aabbccdd":
            places.enter_context(work.place(owner, 1))
        for owner in "ae":
            with pytest.raises(Overloaded, match="try again later"):
                places.enter_context(work.place(owner, 1))
    with work.place("e", 1):
        assert dict(work._bytes) == {"e": LEAST_BYTES}
