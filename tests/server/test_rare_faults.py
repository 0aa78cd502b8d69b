"""Tests against rare faults: each of them detects a fault that no other test had detected."""

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from convoy_client import calls
from convoy_client.errors import Unreachable
from convoy_client.exchange import RetryPolicy, exchange
from engine.api import DeadlineExceeded, TextResult, in_slices
from engine.schedule.queue import FairQueue, LaneRoom
from engine.types import DecodeOptions, Request
from server.cache import Cache
from server.callers.keys import KeyRing, editing, make_key, remove_key
from server.callers.quotas import Counters
from server.files.document_processes import DocumentProcesses
from server.files.store import Store
from server.http.hosts import check_host
from tests.server.test_server_process import SLOW, raw_request
from tests.support.served import LINES, busy, server, until


async def test_a_window_ends_when_it_was_to_end_however_often_it_is_hit():
    counters, now = Counters(), [100.0]
    counters._clock = lambda: now[0]
    for seconds in (0, 5, 9):
        now[0] = 100.0 + seconds
        await counters.incr("key", 10)
    now[0] = 110.5
    assert await counters.get("key") == 0


def test_a_revoked_key_ends_within_seconds(tmp_path):
    path = tmp_path / "keys.json"
    key, token = make_key("Ann")
    with editing(path) as entries:
        entries.append(key)
    ring = KeyRing([], path)
    assert ring.find(token)
    with editing(path) as entries:
        remove_key(entries, key.id)
    until(lambda: ring.find(token) is None)


@pytest.mark.parametrize("host", ["Example.ORG", "example.org:8000", "EXAMPLE.org:80"])
def test_names_of_hosts_have_no_case(host):
    check_host(host, SimpleNamespace(hosts=frozenset({"example.org"})))


def test_a_file_is_given_out_under_its_whole_name_only():
    store = Store(60, 10**6)
    public = store.put("a.txt", b"content")
    token = public.partition(".")[0]
    assert store.get(public) is not None
    for other in (f"{token}.b.txt", token, f"{token}.", f"{token}.a.txt.html"):
        assert store.get(other) is None
    store.close()


def test_answer_larger_than_the_cache_evicts_no_other():
    cache = Cache(2_000)
    cache.put(b"small", TextResult("a"))
    cache.put(b"large", TextResult("a" * 100_000))
    assert cache.get(b"small") is not None
    assert cache.get(b"large") is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_process_for_files_has_nothing_of_the_servers_environment(monkeypatch):
    monkeypatch.setitem(os.environ, "CONVOY_ADMIN_TOKEN", "a secret of the operator's")
    processes = DocumentProcesses()
    await processes.read("a.txt", b"one", "me", time.monotonic() + 60)
    environment = Path(f"/proc/{processes._idle[0][0].pid}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"CONVOY_" not in environment
    await processes.close()


def test_a_cancelled_request_takes_nothing_of_the_encoders_budget():
    queue = FairQueue(1)
    long, short = (Request([5] * length, DecodeOptions(), print) for length in (50, 8))
    queue.add([(long, 0), (short, 0)])
    long.cancelled = True
    assert queue.take(0, LaneRoom(4, 4), 10, first=False) == [short]


async def test_a_timeout_of_the_work_itself_is_no_deadline():
    def fails():
        yield
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own") as raised:
        await in_slices(fails(), time.monotonic() + 60)
    assert not isinstance(raised.value, DeadlineExceeded)


def test_the_client_does_not_try_again_after_its_own_time_out():
    steps = exchange(RetryPolicy(60.0, 3))
    next(steps)
    with pytest.raises(Unreachable):
        steps.send(httpx.ReadTimeout("late", request=httpx.Request("GET", "http://x")))


def test_names_in_paths_are_quoted():
    answer = httpx.Response(200, json={"translatedFileUrl": "http://x/download_file/a%20b%2Fc%3F.txt"})
    path = calls.upload("a", b"", "en", "de", {}).read(answer)
    assert path == "/download_file/a%20b%2Fc%3F.txt"


def test_a_file_waits_while_the_queue_is_full():
    with server(service_settings={"queue_tokens": 300}) as (client, house, _), ExitStack() as flights:

        def send(values):
            flight = flights.enter_context(
                socket.create_connection((client.base_url.host, client.base_url.port))
            )
            flight.sendall(raw_request(values))

        send(SLOW)
        until(lambda: busy(house.service)[0] > 0)
        while house.service.stats()["toy-de-en"].waiting_tokens < 250:
            send(SLOW)
            time.sleep(0.05)
        file = {"file": ("a.txt", " ".join(LINES[:20]).encode())}
        with ThreadPoolExecutor(1) as pool:
            ask = partial(client.post, "/translate_file", data={"source": "de", "target": "en"}, files=file)
            waiting = pool.submit(ask)
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            flights.close()
            assert waiting.result(300).status_code == 200
