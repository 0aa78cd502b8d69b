"""Limits of failures, remote counters and path patterns."""

import asyncio

import pytest

from server.callers.access import PathRules
from server.callers.quotas import Counters, Quotas, RemoteCounters, rates_of
from server.contract import Contract, longest_match
from server.errors import Refusal
from tests.server.test_server_process import GERMAN
from tests.support.served import server


async def test_requests_without_a_valid_key_are_slowed_down(tmp_path):
    key = "0123456789abcdef0123"
    with server(api_keys=key) as (client, _, _):
        for number in range(31):
            answer = client.post("/translate", json=GERMAN | {"api_key": f"wrong{number}"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert client.post("/translate", json=GERMAN, headers={"X-API-Key": key}).status_code == 200


async def test_remote_counters_count_like_local_ones():
    kept = Counters()
    quotas = [Quotas("memory://", kept.ask) for _ in range(2)]
    rates = rates_of(2)
    assert [await q.count_request("a", rates) for q in quotas] == [None, None]
    assert (await quotas[0].count_request("a", rates))[0] == rates[0]
    await quotas[0].add("a", 5)
    assert await quotas[1].add("a", 6) == 11
    assert await quotas[1].count("a") == 11


async def test_unresponsive_counters_give_503(monkeypatch):
    monkeypatch.setattr("server.callers.quotas.STORAGE_SECONDS", 0.01)

    async def silent(verb, arguments):
        await asyncio.sleep(60)

    with pytest.raises(Refusal) as refused:
        await Quotas("memory://", silent).add("a", 1)
    assert refused.value.code == "unavailable"
    assert isinstance(Quotas("memory://", silent)._storage, RemoteCounters)


@pytest.mark.parametrize(
    ("path", "length"), [("/a", 2), ("/b", -1), ("/b/", 4), ("/b/c", 4), ("/a/c", -1), ("", -1)]
)
def test_longest_matching_path_wins(path, length):
    assert longest_match(["/a", "/b/*"], path) == length


def test_open_paths_are_open_only_for_reading():
    doors = PathRules(
        [Contract((), ("/*",), open_paths=("/a",), operator_paths={"/m/[^/]+/load": "admin_token"})]
    )
    assert doors.is_open("GET", "/a")
    assert not doors.is_open("POST", "/a")
    assert not doors.is_open("GET", "/a/b")
    assert doors.token_setting("/m/x/load") == "admin_token"
    assert doors.token_setting("/m/x/y/load") is None


@pytest.fixture(scope="module")
def client():
    with server() as (found, _, _):
        yield found
