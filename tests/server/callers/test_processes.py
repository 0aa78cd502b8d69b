"""Settings of access, and secrets in the output of a real process."""

import json
import subprocess
import sys

import pytest

from server.callers.keys import editing, make_key
from server.settings import ServerSettings
from tests.server.callers.conftest import GERMAN, KEY, PLACES, ROOT, process
from tests.support.served import bundles


def test_own_variables_have_precedence_over_libretranslates(monkeypatch, tmp_path):
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
def test_invalid_setting_is_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        ServerSettings(**values)


def test_refused_key_is_not_quoted():
    command = [sys.executable, "-m", "cli.main", "serve", "--api-keys", "secret-1234"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--api-keys (CONVOY_API_KEYS)" in ended.stderr
    assert "secret" not in ended.stderr


def test_logs_and_metrics_contain_no_keys_and_no_texts(tmp_path):
    text, wrong = "Donaudampfschiff", "wrong-key-wrong-key"
    path = tmp_path / "keys.json"
    made, token = make_key("Ann")
    with editing(path) as stored:
        stored.append(made)
    variables = {"API_KEY_FILE": str(path), "API_KEYS": KEY, "METRICS_AUTH_TOKEN": "metrics-token"}
    with process(tmp_path, "--log-level", "debug", "--access-log", **variables) as (client, output):
        for place in PLACES.values():
            for secret in (KEY, token, wrong):
                changed = json.loads(json.dumps(place).replace(KEY, secret).replace("Das ist gut.", text))
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
def test_forwarded_addresses_are_trusted_only_from_configured_proxies(tmp_path, trusted, alone):
    variables = {"TRUSTED_PROXIES": trusted, "DAILY_REQ_LIMIT": "1", "MODELS": str(bundles() / "toy-de-en")}
    with process(tmp_path, **variables) as (client, _):
        found = [
            client.post("/detect", json=GERMAN, headers={"X-Forwarded-For": chain}).status_code
            for chain in ("198.51.100.1", "198.51.100.2", "198.51.100.9, 198.51.100.1, 127.0.0.3")
        ]
    # the last names the first address again, behind a forged one and before a trusted proxy
    assert found == ([200, 429, 429] if alone else [200, 200, 429])
