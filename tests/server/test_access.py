"""Keys, limits and quotas: who gets in by which way, what the others are told, and what no log ever holds."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ConfigError, InvalidRequest
from server.app import create_app
from server.callers import keys
from server.callers.access import Usage, block_of, charge, usage
from server.callers.keys import KeyRing, digest_of, editing, keys_from_tokens, make_key, read_keys, remove_key
from server.callers.quotas import Quotas, rates_of
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.support.served import bundles, running, until

ROOT = Path(__file__).parents[2]
GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en", "max_length": 4}
KEY = "a-key-that-an-operator-chose"
REQUIRED = "Please contact the server operator to get an API key"


@pytest.fixture(scope="module")
def service():
    with running() as found:
        yield found


@pytest.fixture
def ask(service):
    """Makes a client of a new application with these settings, at an address."""

    def make(address="192.0.2.1", **values):
        app = create_app(service, ServerSettings(**values), Metrics())
        return client_of(app, address)

    return make


def client_of(app, address="192.0.2.1"):
    transport = httpx.ASGITransport(app=app, client=(address, 123))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


# keys at rest


def test_a_key_file_holds_hashes_and_never_a_key(tmp_path):
    path = tmp_path / "keys.json"
    with editing(path) as held:
        made = [make_key(name, 10, 500) for name in ("Ann", "Bob", "Bob")]
        held += [key for key, _ in made]
    text = path.read_text()
    assert not [token for _, token in made if token in text]
    for (_, token), entry in zip(made, json.loads(text)["keys"], strict=True):
        assert entry["digest"] == hashlib.sha256(token.encode()).hexdigest()
        assert len(token) == len("cvy_") + 43  # 256 bits in base64
    assert len({token for _, token in made}) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path) == tuple(key for key, _ in made)


def test_editors_of_one_file_wait_for_each_other(tmp_path):
    path = tmp_path / "keys.json"

    def add(number):
        for _ in range(10):
            with editing(path) as held:
                held.append(make_key(f"{number}")[0])

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key.name for key in read_keys(path)) == sorted("0123" * 10)
    assert {p.name for p in tmp_path.iterdir()} == {"keys.json", ".keys.json.lock"}


def test_an_edit_that_fails_changes_nothing(tmp_path):
    path = tmp_path / "keys.json"
    with editing(path) as held:
        held.append(make_key("Ann")[0])
    before = path.read_bytes()
    with pytest.raises(InvalidRequest, match="keys list"), editing(path) as held:
        held.clear()
        remove_key(held, "Bob")
    assert path.read_bytes() == before


def test_a_key_is_revoked_by_its_id_or_its_only_name():
    made = [make_key(name)[0] for name in ("Ann", "Bob", "Bob")]
    held = list(made)
    with pytest.raises(InvalidRequest, match="2 keys are named 'Bob'"):
        remove_key(held, "Bob")
    assert remove_key(held, made[1].id) == made[1]
    assert remove_key(held, "Bob") == made[2]
    assert held == [made[0]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{"id": "a"}]}',
        '{"version": 1, "keys": ["secret-token-secret"]}',
        "secret-token-secret",
        "[" * 100_000,
        '{"version":1,"keys":[{"id":"a","name":"b","digest":"zz","created":"","requests":1,"characters":1}]}',
        '{"version":1,"keys":[{"id":"a","name":"b","digest":"%s","created":"","requests":-2,"characters":1}]}'
        % ("00" * 32),
    ],
)
def test_what_is_no_key_file_is_refused_without_repeating_it(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="keys.json") as raised:
        read_keys(path)
    assert "secret" not in str(raised.value)


def test_a_missing_key_file_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(ConfigError, match="convoy keys new"):
        create_app(None, ServerSettings(api_key_file=tmp_path / "none.json"), Metrics())


def test_a_running_server_follows_its_key_file_and_keeps_the_last_keys_of_a_damaged_one(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(keys, "STALE_SECONDS", -1.0)  # look at every request
    path = tmp_path / "keys.json"
    (ann, token), (bob, other) = make_key("Ann"), make_key("Bob")
    with editing(path) as held:
        held.append(ann)
    ring = KeyRing(keys_from_tokens([KEY]), path)
    assert ring.find(token) == ann
    assert ring.find(other) is None
    with editing(path) as held:
        held[:] = [bob]
    assert ring.find(token) is None
    assert ring.find(other) == bob
    path.write_text("{")
    assert ring.find(other) == bob
    assert "the last keys stay valid" in caplog.text
    path.unlink()
    assert ring.find(other) == bob
    assert ring.find(KEY) is not None


# ways of a key into the house


WAYS = {
    "bearer": {"headers": {"Authorization": f"Bearer {KEY}"}, "json": GERMAN},
    "bearer in lower case": {"headers": {"authorization": f"bearer {KEY}"}, "json": GERMAN},
    "deepl": {"headers": {"Authorization": f"DeepL-Auth-Key {KEY}"}, "json": GERMAN},
    "x-api-key": {"headers": {"X-API-Key": KEY}, "json": GERMAN},
    "json": {"json": GERMAN | {"api_key": KEY}},
    "form": {"data": GERMAN | {"api_key": KEY}},
    "multipart": {"files": {k: (None, str(v)) for k, v in (GERMAN | {"api_key": KEY}).items()}},
    "query": {"params": GERMAN | {"api_key": KEY}},
    "query beside json": {"params": {"api_key": KEY}, "json": GERMAN},
    "form of deepl": {"data": GERMAN | {"auth_key": KEY}},
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_is_taken_from_every_place_that_clients_put_it(ask, way):
    async with ask(api_keys=KEY) as client:
        answer = await client.post("/translate", **WAYS[way])
        assert answer.status_code == 200, answer.text
        assert answer.json()["translatedText"]
        wrong = json.loads(json.dumps(WAYS[way]).replace(KEY, KEY + "x"))
        if "files" in wrong:
            wrong["files"] = {name: tuple(value) for name, value in wrong["files"].items()}
        answer = await client.post("/translate", **wrong)
        assert (answer.status_code, answer.json()) == (403, {"error": "Invalid API key"})


@pytest.mark.parametrize(
    "request_",
    [
        {"json": GERMAN},
        {"json": GERMAN | {"api_key": ""}},
        {"data": GERMAN},
        {"params": GERMAN},
        {"content": b"{", "headers": {"content-type": "application/json"}},
        {"content": b"x" * 5000},
        {"headers": {"Authorization": "Basic eDp5"}, "json": GERMAN},
        {"headers": {"Authorization": "Bearer "}, "json": GERMAN},
    ],
)
async def test_without_a_key_nothing_gets_in(ask, service, request_):
    before = service.stats()["toy-de-en"].answered
    async with ask(api_keys=KEY, body_limit=4000) as client:
        answer = await client.post("/translate", **request_)
    assert (answer.status_code, answer.json()) == (400, {"error": REQUIRED})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert service.stats()["toy-de-en"].answered == before


def routes_of(router):
    """Path and methods of every route, those of included routers too."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
        elif getattr(route, "methods", None):
            yield route.path, route.methods


async def test_no_route_but_the_open_ones_is_reached_without_a_key(ask, monkeypatch):
    from server.callers.access import PathRules
    from server.contracts import CONTRACTS

    rules = PathRules(CONTRACTS)
    # more routes than failures that an address may have
    monkeypatch.setattr("server.callers.access.FAILURES_A_MINUTE", rates_of(1_000))

    async with ask(api_keys=KEY) as client:
        app = client._transport.app
        seen = []
        for path, methods in routes_of(app):
            for method in methods - {"OPTIONS"}:
                place = re.sub(r"\{[^}]*\}", "x", path)
                token = rules.token_setting(place)
                if rules.is_open(method, place) or token in ("docs_auth_token", "metrics_auth_token"):
                    continue
                answer = await client.request(method, place)
                assert answer.status_code in (400, 401, 403), (method, path)
                seen.append(path)
    assert {"/translate", "/summarize", "/detect"} <= set(seen)


async def test_open_paths_stay_open_and_tell_that_a_key_is_needed(ask):
    async with ask(api_keys=KEY) as client:
        for path in ("/health", "/languages", "/models", "/version", "/docs", "/metrics"):
            assert (await client.get(path)).status_code == 200
        found = (await client.get("/frontend/settings")).json()
        assert (found["apiKeys"], found["keyRequired"]) == (True, True)
    async with ask() as client:
        found = (await client.get("/frontend/settings")).json()
        assert (found["apiKeys"], found["keyRequired"]) == (False, False)


async def test_without_keys_configured_whatever_clients_send_is_ignored(ask):
    async with ask() as client:
        for way in WAYS.values():
            assert (await client.post("/translate", **way)).status_code == 200


@pytest.mark.parametrize(
    ("path", "names", "required", "invalid"),
    [
        ("/translate", {"error"}, 400, 403),
        ("/detect", {"error"}, 400, 403),
        ("/v2/translate", {"message"}, 403, 403),
        ("/v2/usage", {"message"}, 403, 403),
        ("/v2/models/toy/infer", {"error"}, 400, 403),
        ("/v2/nonsense", {"error", "message"}, 403, 403),
        ("/v2translate", {"error"}, 400, 403),
    ],
)
async def test_refusals_have_the_shape_and_status_of_their_contract(ask, path, names, required, invalid):
    async with ask(api_keys=KEY, get_api_key_link="https://keys.example") as client:
        without = await client.post(path)
        assert (without.status_code, set(without.json())) == (required, names)
        assert set(without.json().values()) == {"Visit https://keys.example to get an API key"}
        wrong = await client.post(path, headers={"X-API-Key": "x"})
        assert (wrong.status_code, set(wrong.json())) == (invalid, names)
        assert set(wrong.json().values()) == {"Invalid API key"}


async def test_pages_of_known_origins_need_no_key(ask):
    async with ask(api_keys=KEY, require_api_key_origin=r"https://(www\.)?example\.org$") as client:
        for origin, status in (
            ("https://example.org", 200),
            ("https://www.example.org", 200),
            ("https://example.org.evil.example", 400),
            ("", 400),
        ):
            answer = await client.post("/translate", json=GERMAN, headers={"Origin": origin})
            assert answer.status_code == status
        answer = await client.get("/frontend/settings", headers={"Origin": "https://example.org"})
        assert answer.json()["keyRequired"] is False


@given(parts=st.lists(st.binary(max_size=50), max_size=6))
def test_a_route_sees_the_body_that_was_sent_though_the_door_has_read_it(service, parts):
    app = create_app(service, ServerSettings(api_keys=KEY, anonymous=True), Metrics())
    from fastapi import Request

    @app.post("/echo")
    async def echo(request: Request) -> str:
        return (await request.body()).hex()

    async def stream():
        for part in parts:
            yield part

    async def post():
        async with client_of(app) as client:
            return (await client.post("/echo", content=stream())).json()

    assert asyncio.run(post()) == b"".join(parts).hex()


# limits


async def test_a_key_has_its_own_limit_and_addresses_share_nothing(ask, service, tmp_path):
    path = tmp_path / "keys.json"
    (three, token), (free, other), (plain, third) = make_key("3", 3), make_key("any", -1), make_key("as all")
    with editing(path) as held:
        held += [three, free, plain]
    async with ask(api_key_file=path, anonymous=True, req_limit=2) as client:
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
    assert 'convoy_rejected_total{reason="slowdown"} 4.0' in text


async def test_the_longest_limit_holds_too(ask):
    async with ask(req_limit=3, hourly_req_limit=2, daily_req_limit=1) as client:
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
def test_an_ipv6_subscriber_is_one_visitor(one, other, same):
    assert (block_of(one) == block_of(other)) == same


# quotas


def with_toy(client):
    """The client's application with routes that charge for a text and then answer with a status."""
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


async def test_characters_are_counted_until_the_quota_and_failures_are_given_back(ask, tmp_path):
    path = tmp_path / "keys.json"
    (key, token), (free, other) = make_key("ten", characters=10), make_key("any", characters=-1)
    with editing(path) as held:
        held += [key, free]
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


async def test_translating_and_summarizing_charge_what_they_read(ask):
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
async def test_every_contract_charges_the_same_and_says_so_when_it_is_too_much(ask, path):
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


async def test_a_stream_for_browsers_takes_the_key_of_its_query_and_charges(ask):
    async with with_toy(ask(api_keys=KEY)) as client:
        assert (await client.get("/translate/stream", params=GERMAN)).status_code == 400
        answer = await client.get("/translate/stream", params=GERMAN | {"api_key": KEY})
        assert answer.status_code == 200
        assert "event: result" in answer.text
        count, _ = (await client.get("/usage", headers={"X-API-Key": KEY})).json()
        assert count == len(GERMAN["q"])


async def test_an_open_server_counts_all_characters_together(ask):
    async with with_toy(ask()) as client:
        await client.post("/toy", params={"size": 7})
        async with client_of(client._transport.app, "192.0.2.9") as neighbour:
            await neighbour.post("/toy", params={"size": 5})
            assert (await neighbour.get("/usage")).json() == [12, Usage(12, 10**12).limit]


# counters


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    """The URL of a real Redis on a Unix socket."""
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
    """The same answers from any storage."""
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
    monkeypatch.setattr("server.callers.quotas.SWEEP_SECONDS", -1.0)  # at every hit
    await exercise(Quotas("memory://"))


async def test_counters_in_redis_are_shared_and_kept(redis):
    one, other = Quotas(redis), Quotas(redis)
    await exercise(one)
    await one.close()
    assert await other.count("a") == 5
    assert await other.add("a", 1) == 6
    await other.close()


async def test_ended_counters_are_forgotten(monkeypatch):
    monkeypatch.setattr("server.callers.quotas.SWEEP_SECONDS", -1.0)
    quotas = Quotas("memory://")
    storage = quotas._storage
    for number in range(100):
        await storage.incr(f"old {number}", 0)
    await quotas.add("new", 1)
    assert len(storage.storage) == 1


@pytest.mark.parametrize("url", ["memcached://x", "redis:x", "secret"])
def test_a_storage_of_another_kind_is_refused_without_its_password(url):
    with pytest.raises(ConfigError, match="redis://host:port") as raised:
        Quotas(f"{url}:password@host")
    assert "password" not in str(raised.value)


async def test_a_redis_that_does_not_answer_is_a_503_and_is_logged(ask, tmp_path, caplog):
    async with ask(req_limit=5, limit_storage=f"redis+unix://{tmp_path}/none") as client:
        answer = await client.post("/translate", json=GERMAN)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "Redis" in caplog.text


# tokens of pages


@pytest.mark.parametrize(
    ("path", "other", "setting"),
    [("/metrics", "/docs", "metrics_auth_token"), ("/docs", "/metrics", "docs_auth_token")],
)
async def test_metrics_and_docs_take_tokens_of_their_own(ask, path, other, setting):
    async with ask(**{setting: "a token"}, api_keys=KEY) as client:
        refused = await client.get(path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic")
        assert refused.json()["error"].endswith("send it as Authorization: Bearer TOKEN")
        basic = b64encode(b"anyone:a token").decode()
        for given_, status in (
            ("Bearer a token", 200),
            (f"Basic {basic}", 200),
            ("Bearer x", 401),
            (f"Bearer {KEY}", 401),
            ("Basic !", 401),
            ("Basic //8=", 401),
            ("", 401),
        ):
            answer = await client.get(path, headers={"Authorization": given_})
            assert answer.status_code == status, given_
        assert (await client.get(other)).status_code == 200
        if path == "/docs":
            assert (await client.get("/openapi.json")).status_code == 401


# origins


async def test_a_list_of_origins_is_followed(ask):
    async with ask(cors_origins="https://a.example, https://b.example/") as client:
        for origin, allowed in (
            ("https://a.example", True),
            ("https://b.example", True),
            ("https://c", False),
        ):
            for method in ("GET", "OPTIONS"):
                answer = await client.request(method, "/health", headers={"Origin": origin})
                assert answer.headers["vary"] == "Origin"
                assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)


# settings


def test_libretranslates_variables_stand_for_ours_and_ours_go_first(monkeypatch, tmp_path):
    for name, value in {
        "API_KEYS": "true",
        "REQ_LIMIT": "80",
        "HOURLY_REQ_LIMIT": "800",
        "DAILY_REQ_LIMIT": "5000",
        "REQUIRE_API_KEY_ORIGIN": "https://x",
        "METRICS_AUTH_TOKEN": "m",
        "GET_API_KEY_LINK": "",
    }.items():
        monkeypatch.setenv(f"LT_{name}", value)
    with pytest.raises(ValueError, match="CONVOY_API_KEY_FILE"):
        ServerSettings()
    monkeypatch.setenv("CONVOY_API_KEY_FILE", str(tmp_path / "keys.json"))
    monkeypatch.setenv("CONVOY_DAILY_REQ_LIMIT", "7")
    found = ServerSettings(hourly_req_limit=6)
    assert (found.req_limit, found.hourly_req_limit, found.daily_req_limit) == (80, 6, 7)
    assert found.metrics_auth_token.get_secret_value() == "m"
    assert (found.require_api_key_origin, found.get_api_key_link) == ("https://x", "")
    monkeypatch.setenv("LT_API_KEYS", "false")
    assert ServerSettings().api_keys == ()


@pytest.mark.parametrize(
    "values",
    [
        {"api_keys": "too-short-secret,"},
        {"api_keys": "secret"},
        {"require_api_key_origin": "("},
        {"trusted_proxies": "example"},
        {"req_limit": -2},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        ServerSettings(**values)


def test_a_refused_key_is_not_repeated():
    command = [sys.executable, "-m", "cli.main", "serve", "--api-keys", "secret-1234"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--api-keys (CONVOY_API_KEYS)" in ended.stderr
    assert "secret" not in ended.stderr


# a real process


@contextmanager
def process(tmp_path, *arguments, **variables):
    """`convoy serve` on the toy models: (httpx client, a function that stops it and gives its output)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given_ = {"MODELS": str(bundles()), "PORT": str(port), "THREADS": "1", "LANES": "1x4,4x4"} | variables
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given_.items()}
    command = [sys.executable, "-m", "cli.main", "serve", *arguments]
    with (tmp_path / "output").open("wb") as out:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def output():
        child.send_signal(signal.SIGTERM)
        child.wait(30)
        return (tmp_path / "output").read_text()

    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

            def ready():
                assert child.poll() is None, (tmp_path / "output").read_text()
                try:
                    return client.get("/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(ready, 60)
            yield client, output
    finally:
        child.kill()
        child.wait()


def test_neither_keys_nor_texts_are_in_the_log_or_the_metrics(tmp_path):
    text, wrong = "Donaudampfschiff", "wrong-key-wrong-key"
    path = tmp_path / "keys.json"
    made, token = make_key("Ann")
    with editing(path) as held:
        held.append(made)
    variables = {"API_KEY_FILE": str(path), "API_KEYS": KEY, "METRICS_AUTH_TOKEN": "metrics-token"}
    with process(tmp_path, "--log-level", "debug", "--access-log", **variables) as (client, output):
        for way in WAYS.values():
            for secret in (KEY, token, wrong):
                changed = json.loads(json.dumps(way).replace(KEY, secret).replace("Das ist gut.", text))
                if "files" in changed:
                    changed["files"] = {name: tuple(value) for name, value in changed["files"].items()}
                status = client.post("/translate", **changed).status_code
                assert status == (403 if secret == wrong else 200)
        for broken in (
            {
                "content": f'{{"q": "{text}", "api_key": "{KEY}"'.encode(),
                "headers": {"content-type": "application/json"},
            },
            {"params": {"q": text, "api_key": KEY, "source": "zz", "target": "en"}},
            {"json": {"q": [text, 5], "api_key": KEY}},
            {"json": GERMAN | {"q": text, "api_key": KEY, "beam_size": text}},
            {"json": GERMAN | {"q": text, "api_key": KEY, "max_length": 10**6}},
        ):
            assert client.post("/translate", **broken).status_code == 400
        client.get(f"/nowhere?q={text}&api_key={KEY}")
        streamed = client.get("/translate/stream", params=GERMAN | {"q": text, "api_key": KEY})
        assert "event: result" in streamed.text
        file = {"file": (f"{text}.txt", text.encode())}
        sent = client.post("/translate_file", files=file, data=GERMAN | {"api_key": KEY}).json()
        assert client.get(sent["translatedFileUrl"]).status_code == 200
        client.get("/v2/usage", headers={"Authorization": f"DeepL-Auth-Key {token}"})
        metrics = client.get("/metrics", headers={"Authorization": "Bearer metrics-token"}).text
        printed = output()
    assert "POST /translate" in printed  # the access log was on
    assert "/download_file/..." in printed
    assert "DEBUG" in printed
    for secret in (text, KEY, token, wrong, made.digest, "metrics-token"):
        assert secret not in printed
        assert secret not in metrics


@pytest.mark.parametrize(("trusted", "alone"), [("127.0.0.0/8", False), ("192.0.2.7", True)])
def test_forwarded_addresses_are_believed_from_configured_proxies_only(tmp_path, trusted, alone):
    variables = {"TRUSTED_PROXIES": trusted, "DAILY_REQ_LIMIT": "1", "MODELS": str(bundles() / "toy-de-en")}
    with process(tmp_path, **variables) as (client, _):
        found = [
            client.post("/detect", json=GERMAN, headers={"X-Forwarded-For": chain}).status_code
            for chain in ("198.51.100.1", "198.51.100.2", "198.51.100.9, 198.51.100.1, 127.0.0.3")
        ]
    # the last names the first address again, behind a forged one and before a trusted proxy
    assert found == ([200, 429, 429] if alone else [200, 200, 429])


async def test_the_digest_of_a_token_is_sha_256():
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
