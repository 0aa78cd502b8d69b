"""Access to routes: keys, open paths, tokens and origins."""

import asyncio
import json
import re
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app import create_app
from server.callers.quotas import rates_of
from server.observing.metrics import Metrics
from server.settings import ServerSettings
from tests.server.callers.conftest import GERMAN, KEY, PLACES, client_of

REQUIRED = "Please contact the server operator to get an API key"


@pytest.mark.parametrize("place", PLACES)
async def test_key_is_accepted_in_every_placeof_a_request(ask, place):
    async with ask(api_keys=KEY) as client:
        answer = await client.post("/translate", **PLACES[place])
        assert answer.status_code == 200, answer.text
        assert answer.json()["translatedText"]
        wrong = json.loads(json.dumps(PLACES[place]).replace(KEY, KEY + "x"))
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
async def test_requests_without_a_key_are_refused(ask, service, request_):
    before = service.stats()["toy-de-en"].answered
    async with ask(api_keys=KEY, body_limit=4000) as client:
        answer = await client.post("/translate", **request_)
    assert (answer.status_code, answer.json()) == (400, {"error": REQUIRED})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert service.stats()["toy-de-en"].answered == before


def routes_of(router):
    """Yield the path and methods of every route, also of included routers."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
        elif getattr(route, "methods", None):
            yield route.path, route.methods


async def test_only_open_routes_are_reached_without_a_key(ask, monkeypatch):
    from server.callers.access import PathRules
    from server.contracts import CONTRACTS

    rules = PathRules(CONTRACTS)
    # there are more routes than failures that an address may have
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


async def test_open_paths_need_no_key_and_settings_report_keys(ask):
    async with ask(api_keys=KEY) as client:
        for path in ("/health", "/languages", "/models", "/version", "/docs", "/metrics"):
            assert (await client.get(path)).status_code == 200
        found = (await client.get("/frontend/settings")).json()
        assert (found["apiKeys"], found["keyRequired"]) == (True, True)
    async with ask() as client:
        found = (await client.get("/frontend/settings")).json()
        assert (found["apiKeys"], found["keyRequired"]) == (False, False)


async def test_keys_are_ignored_if_the_server_has_none(ask):
    async with ask() as client:
        for place in PLACES.values():
            assert (await client.post("/translate", **place)).status_code == 200


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
def test_route_gets_the_body_that_the_middleware_has_read(service, parts):
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


@pytest.mark.parametrize(
    ("path", "other", "setting"),
    [("/metrics", "/docs", "metrics_auth_token"), ("/docs", "/metrics", "docs_auth_token")],
)
async def test_metrics_and_docs_have_their_own_tokens(ask, path, other, setting):
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


async def test_only_listed_origins_get_cors_headers(ask):
    async with ask(cors_origins="https://a.example, https://b.example/") as client:
        for origin, allowed in (
            ("https://a.example", True),
            ("https://b.example", True),
            ("https://c", False),
        ):
            for method in ("GET", "OPTIONS"):
                answer = await client.request(method, "/health", headers={"Origin": origin})
                assert answer.headers["vary"].split(", ")[0] == "Origin"
                assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)


@pytest.mark.parametrize("name", ["admin_token", "metrics_auth_token", "docs_auth_token"])
def test_empty_token_is_no_token(name, monkeypatch):
    monkeypatch.setenv(f"CONVOY_{name.upper()}", "")
    assert getattr(ServerSettings(), name) is None
    monkeypatch.setenv(f"CONVOY_{name.upper()}", "operator-operator")
    assert getattr(ServerSettings(), name).get_secret_value() == "operator-operator"
