"""Rate limits, quotas and their counters."""

import shutil
import subprocess

import pytest

from engine.api import ConfigError
from server.callers.access import Usage, block_of, charge, usage
from server.callers.keys import editing, make_key
from server.callers.quotas import Quotas
from tests.server.callers.conftest import GERMAN, KEY, client_of
from tests.support.served import stopped_windows, until


async def test_keys_and_addresses_have_separate_limits(ask, service, tmp_path):
    path = tmp_path / "keys.json"
    (three, token), (free, other), (plain, third) = make_key("3", 3), make_key("any", -1), make_key("as all")
    with editing(path) as stored:
        stored += [three, free, plain]
    with stopped_windows():
        client = ask(api_key_file=path, anonymous=True, req_limit=2)
    async with client:
        app = client._transport.app

        async def sent(times, client=client, **headers):
            answers = [await client.post("/detect", json=GERMAN, headers=headers) for _ in range(times)]
            return [answer.status_code for answer in answers], answers[-1]

        found, last = await sent(4, **{"X-API-Key": token})
        assert found == [200, 200, 200, 429]
        assert last.json() == {"error": "Slowdown: 3 per 1 minute"}
        assert 1 <= int(last.headers["retry-after"]) <= 120
        assert (await sent(5, **{"X-API-Key": other}))[0] == [200] * 5
        assert (await sent(3, **{"X-API-Key": third}))[0] == [200, 200, 429]
        assert (await sent(3))[0] == [200, 200, 429]
        async with client_of(app, "192.0.2.2") as neighbour:
            assert (await sent(3, neighbour))[0] == [200, 200, 429]
        assert (await client.get("/health")).status_code == 200
        text = (await client.get("/metrics")).text
    assert 'convoy_rejected_total{model="none",reason="slowdown",route="other"} 4.0' in text


async def test_daily_limit_applies_too(ask):
    with stopped_windows():
        client = ask(req_limit=3, hourly_req_limit=2, daily_req_limit=1)
    async with client:
        found = [await client.post("/v2/translate", json={}) for _ in range(2)]
        assert found[1].json() == {"message": "Slowdown: 1 per 1 day"}
        assert found[1].status_code == 429


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "unknown", True),
    ],
)
def test_ipv6_network_counts_as_one_visitor(one, other, same):
    assert (block_of(one) == block_of(other)) == same


def with_toy(client):
    """Add routes to a client's application that charge for a text and answer with a status."""
    from fastapi import Request
    from fastapi.responses import JSONResponse

    app = client._transport.app

    @app.post("/v2/translate/toy")
    @app.post("/toy")
    async def toy(request: Request, size: int, status: int = 200) -> JSONResponse:
        await charge(request, ["x" * size])
        return JSONResponse({}, status)

    @app.get("/usage")
    async def used(request: Request) -> list[int]:
        found = await usage(request)
        return [found.count, found.limit]

    return client


async def test_characters_count_up_to_the_quota_and_failures_are_refunded(ask, tmp_path):
    path = tmp_path / "keys.json"
    (key, token), (free, other) = make_key("ten", characters=10), make_key("any", characters=-1)
    with editing(path) as stored:
        stored += [key, free]
    async with with_toy(ask(api_key_file=path, char_quota=3)) as client:
        mine = {"X-API-Key": token}

        async def sent(size, status=200, place="/toy", headers=mine):
            return await client.post(place, params={"size": size, "status": status}, headers=headers)

        async def used(headers=mine):
            return (await client.get("/usage", headers=headers)).json()

        assert (await sent(6)).status_code == 200
        assert await used() == [6, 10]
        for status in (400, 429, 500, 503):
            assert (await sent(4, status)).status_code == status
        assert await used() == [6, 10]
        over = await sent(5)
        assert (over.status_code, over.json()) == (
            403,
            {"error": "Quota exceeded: 10 characters per 30 days"},
        )
        over = await sent(5, place="/v2/translate/toy")
        assert (over.status_code, list(over.json())) == (456, ["message"])
        assert await used() == [6, 10]
        assert (await sent(4)).status_code == 200
        assert (await sent(1)).status_code == 403
        assert await used() == [10, 10]
        theirs = {"X-API-Key": other}
        assert (await sent(1000, headers=theirs)).status_code == 200
        assert await used(theirs) == [1000, 10**12]


async def test_translations_and_summaries_charge_their_characters(ask):
    async with with_toy(ask(api_keys=KEY, char_quota=40)) as client:
        mine = {"Authorization": f"Bearer {KEY}"}
        await client.post("/translate", json=GERMAN | {"q": ["12345", "Gut 😀"]}, headers=mine)
        assert (await client.get("/usage", headers=mine)).json() == [10, 40]
        await client.post("/summarize", json={"q": "Guten Tag.", "max_length": 4}, headers=mine)
        assert (await client.get("/usage", headers=mine)).json() == [20, 40]
        await client.post("/translate", json=GERMAN | {"target": "zz"}, headers=mine)
        await client.post("/detect", json=GERMAN, headers=mine)
        assert (await client.get("/usage", headers=mine)).json() == [20, 40]
        over = await client.post("/translate", json=GERMAN | {"q": "x" * 21}, headers=mine)
        assert over.status_code == 403


BILLED = {
    "/translate": {"json": GERMAN},
    "/summarize": {"json": {"q": GERMAN["q"], "max_length": 4}},
    "/v2/translate": {"json": {"text": [GERMAN["q"]], "source_lang": "DE", "target_lang": "EN-US"}},
    "/v2/models/toy-de-en/generate": {"json": {"text_input": GERMAN["q"], "parameters": {"max_length": 4}}},
}


@pytest.mark.parametrize("path", BILLED)
async def test_every_contract_charges_equally_and_reports_an_exceeded_quota(ask, path):
    size = len(GERMAN["q"])
    async with ask(api_keys=KEY, char_quota=size) as client:
        client.headers["Authorization"] = f"DeepL-Auth-Key {KEY}"
        used = {"character_count": 0, "character_limit": size}
        assert (await client.get("/v2/usage")).json() == used
        answer = await client.post(path, **BILLED[path])
        assert answer.status_code == 200, answer.text
        assert (await client.get("/v2/usage")).json() == used | {"character_count": size}
        answer = await client.post(path, **BILLED[path])
        assert answer.status_code == (456 if path == "/v2/translate" else 403)
        assert list(answer.json()) == ["message" if path == "/v2/translate" else "error"]
        assert (await client.get("/v2/usage")).json() == used | {"character_count": size}


async def test_get_stream_accepts_a_key_in_its_query_and_charges(ask):
    async with with_toy(ask(api_keys=KEY)) as client:
        assert (await client.get("/translate/stream", params=GERMAN)).status_code == 400
        answer = await client.get("/translate/stream", params=GERMAN | {"api_key": KEY})
        assert answer.status_code == 200
        assert "event: result" in answer.text
        count, _ = (await client.get("/usage", headers={"X-API-Key": KEY})).json()
        assert count == len(GERMAN["q"])


async def test_server_without_limits_counts_all_characters_together(ask):
    async with with_toy(ask()) as client:
        await client.post("/toy", params={"size": 7})
        async with client_of(client._transport.app, "192.0.2.9") as neighbour:
            await neighbour.post("/toy", params={"size": 5})
            assert (await neighbour.get("/usage")).json() == [12, Usage(12, 10**12).limit]


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    """Address of a real Redis server on a Unix socket."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on this machine")
    path = tmp_path_factory.mktemp("redis") / "socket"
    command = [program, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(path.parent)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(path.exists)
    yield f"redis+unix://{path}"
    process.kill()
    process.wait()


async def exercise(quotas):
    """Check the answers of any storage."""
    from server.callers.quotas import rates_of

    rates = rates_of(2, 3)
    found = [await quotas.count_request("a", rates) for _ in range(3)]
    assert found[:2] == [None, None]
    assert found[2][0].amount == 2
    assert found[2][1] > 0
    assert await quotas.count_request("b", rates) is None
    assert [await quotas.add("a", n) for n in (5, 7, -7)] == [5, 12, 5]
    assert [await quotas.count(name) for name in "ab"] == [5, 0]
    assert await quotas.add("c", -3) == -3
    assert await quotas.count("c") == 0


async def test_counters_in_memory(monkeypatch):
    monkeypatch.setattr("server.callers.quotas.SWEEP_SECONDS", -1.0)
    await exercise(Quotas("memory://"))


async def test_counters_in_redis_are_shared_and_kept(redis):
    one, other = Quotas(redis), Quotas(redis)
    await exercise(one)
    await one.close()
    assert await other.count("a") == 5
    assert await other.add("a", 1) == 6
    await other.close()


async def test_expired_counters_are_removed(monkeypatch):
    monkeypatch.setattr("server.callers.quotas.SWEEP_SECONDS", -1.0)
    quotas = Quotas("memory://")
    storage = quotas._storage
    for number in range(100):
        await storage.incr(f"old {number}", 0)
    await quotas.add("new", 1)
    assert len(storage.storage) == 1


@pytest.mark.parametrize("url", ["memcached://x", "redis:x", "secret"])
def test_unknown_storage_is_refused_without_quoting_its_password(url):
    with pytest.raises(ConfigError, match="redis://host:port") as raised:
        Quotas(f"{url}:password@host")
    assert "password" not in str(raised.value)


async def test_unreachable_redis_gives_503_and_is_logged(ask, tmp_path, caplog):
    async with ask(req_limit=5, limit_storage=f"redis+unix://{tmp_path}/none") as client:
        answer = await client.post("/translate", json=GERMAN)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "Redis" in caplog.text
