"""Models that come and go behind a real server: first uses, orders of the operator, memory given back."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.api import Service
from engine.errors import ConfigError
from server.settings import ServerSettings
from tests.server.test_reload import TOKEN
from tests.support.served import LINES, MODELS, bundles, open_service, server, settings_of, until, value

ROOT = Path(__file__).parents[2]
DE, EN, TITLE = MODELS
LARGE = "tatoeba-fr-en"
GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}
ENGLISH = {"q": "That is good.", "source": "en", "target": "de"}
PATHS = ("/models/{}/{}", "/v2/repository/models/{}/{}")


def figure(client, name, model):
    line = f'{name}{{model="{model}"}} '
    (found,) = (row for row in client.get("/metrics").text.splitlines() if row.startswith(line))
    return float(found.removeprefix(line))


def states(client):
    return {model["name"]: model["state"] for model in client.get("/models").json()}


@pytest.fixture(scope="module")
def room():
    """Bytes for one of the toys."""
    return max(kept.cost for kept in open_service().repository_entries().values())


@pytest.fixture
def client(room):
    with server({"budget": room}, admin_token="operator-operator") as (made, *_):
        yield made


def translated(client, body):
    answer = client.post("/translate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["translatedText"]


def test_a_server_with_a_budget_is_ready_with_nothing_loaded_and_answers_as_ever(client):
    assert states(client) == dict.fromkeys(MODELS, "unloaded")
    assert client.get("/health/ready").status_code == 200
    assert {entry["code"] for entry in client.get("/languages").json()} == {"de", "en"}
    with server() as (eager, *_):
        assert states(eager) == dict.fromkeys(MODELS, "loaded")
        assert translated(client, GERMAN) == translated(eager, GERMAN)
        assert translated(client, ENGLISH) == translated(eager, ENGLISH)
    assert states(client) == {DE: "unloaded", EN: "loaded", TITLE: "unloaded"}
    assert client.get("/health/ready").status_code == 200
    assert figure(client, "convoy_model_loaded", EN) == 1
    assert figure(client, "convoy_model_loaded", DE) == 0
    assert figure(client, "convoy_model_loads_total", DE) == 1
    assert figure(client, "convoy_model_unloads_total", DE) == 1
    assert figure(client, "convoy_model_load_seconds", DE) > 0
    assert figure(client, "convoy_model_bytes", EN) > 0
    assert figure(client, "convoy_sentences_answered_total", DE) == 2, "the canary and the text"


def test_no_request_is_lost_to_evictions(client):
    bodies = [GERMAN, ENGLISH] * 8
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda body: translated(client, body), bodies))
    assert len({*found[::2]}) == len({*found[1::2]}) == 1
    assert figure(client, "convoy_model_unloads_total", DE) >= 1


@pytest.mark.parametrize("path", PATHS)
def test_the_operator_loads_and_unloads(client, path):
    for verb, state in (
        ("load", "loaded"),
        ("load", "loaded"),
        ("unload", "unloaded"),
        ("unload", "unloaded"),
    ):
        answer = client.post(path.format(DE, verb), headers=TOKEN)
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == states(client)[DE] == state
    index = {model["name"]: model for model in client.post("/v2/repository/index").json()}
    assert (index[DE]["state"], index[DE]["reason"]) == ("UNAVAILABLE", "unloaded")
    client.post(path.format(DE, "load"), headers=TOKEN)
    index = {model["name"]: model for model in client.post("/v2/repository/index").json()}
    assert index[DE]["state"] == "READY"
    assert client.get(f"/v2/models/{EN}/ready").status_code == 200, "its first use loads it"


def test_an_unload_lets_requests_under_way_finish(client):
    # without `protect` no sentence is decoded again
    slow = GERMAN | {"q": LINES[:60], "min_length": 1500, "max_length": 1500, "protect": False}
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(translated, client, slow)
        until(lambda: figure(client, "convoy_model_loaded", DE))
        until(
            lambda: 'convoy_slots_active{lane="1",model="toy-de-en"} 0.0' not in client.get("/metrics").text
        )
        assert client.post(f"/models/{DE}/unload", headers=TOKEN).status_code == 200
        # it was answered before: nothing of it was left to decode
        assert figure(client, "convoy_sentences_answered_total", DE) == 61, "the canary and the texts"
        assert long.result(300)
    assert states(client)[DE] == "unloaded"


def test_a_reload_of_an_unloaded_model_leaves_it_so(client):
    answer = client.post(f"/models/{DE}/reload", headers=TOKEN)
    assert (answer.status_code, answer.json()["state"]) == (200, "unloaded")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("verb", ["load", "unload"])
def test_only_the_operator_may(client, path, verb):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": "operator-operator"}):
        assert client.post(path.format(DE, verb), headers=headers).status_code == 401
    assert client.post(path.format("nobody", verb), headers=TOKEN).status_code == 404
    assert states(client)[DE] == "unloaded"


def test_without_a_token_of_the_operator_the_orders_are_off():
    with server() as (client, *_):
        for path in PATHS:
            answer = client.post(path.format(DE, "unload"))
            assert answer.status_code == 403
            assert "CONVOY_ADMIN_TOKEN" in answer.json()["error"]
        assert states(client)[DE] == "loaded"


def test_error_of_a_small_budget_names_the_setting(client):
    both = GERMAN | {"target": "de", "model": f"{DE}+{EN}"}  # by way of English, with room for one
    answer = client.post("/translate", json=both)
    assert (answer.status_code, "raise model_budget" in answer.json()["error"]) == (503, True)
    assert value(client, "convoy_rejected_total", reason="model_unavailable", model=f"{DE}+{EN}") == 1
    assert translated(client, GERMAN)


def test_a_budget_that_no_model_fits_in_is_refused_at_the_start():
    with pytest.raises(ConfigError, match="raise model_budget"), server({"budget": 1000}):
        pass


@pytest.mark.parametrize(("given", "wanted"), [("2GB", 2 * 10**9), ("512MiB", 2**29), ("1000", 1000)])
def test_budget_accepts_units(given, wanted, monkeypatch):
    monkeypatch.setenv("CONVOY_MODEL_BUDGET", given)
    assert ServerSettings().service().budget == wanted


@pytest.mark.parametrize("given", ["much", "-1", "0"])
def test_no_budget_is_a_mistake(given):
    with pytest.raises(ValidationError):
        ServerSettings(model_budget=given)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from engine.api import Service, ServiceSettings

def used():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

service = Service.open([Path(sys.argv[1])], ServiceSettings(verify=False, budget=10**9))
service.start()
found = []
for _ in range(4):
    asyncio.run(service.run("tatoeba-de-en", [f"Das ist gut, {i}." for i in range(40)]))
    full = used()
    service.unload("tatoeba-de-en")
    found += [full, used()]
print(*found, service.repository_entries()["tatoeba-de-en"].cost >> 20)
"""


def test_an_unloaded_model_gives_its_memory_back():
    if not (ROOT / "models" / "tatoeba-de-en").is_dir() or not Path("/proc/self/statm").exists():
        pytest.skip("needs a shipped model, and Linux's figures of memory")
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "models")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    *figures, cost = map(int, done.stdout.split())
    full, empty = figures[::2], figures[1::2]
    taken = [a - b for a, b in zip(full, empty, strict=True)]
    assert min(taken) > 40, "MiB of a model of 27 MiB of weights"
    assert max(empty) - min(empty) < min(taken) / 2, "nothing is left behind"
    assert 0.5 < cost / max(taken) < 2, "the estimate is about right"


def test_a_model_that_is_larger_than_the_budget_is_refused_by_one_line_that_names_the_remedy(room):
    def opened(observe, **settings):
        return Service.open([bundles(), ROOT / "models" / LARGE], settings_of(**settings), observe)

    settings = {"budget": 2 * room, "lanes": ((1, 4), (5, 4))}
    with server(settings, opened, admin_token="operator-operator") as (client, *_):
        for path in PATHS:
            answer = client.post(path.format(LARGE, "load"), headers=TOKEN)
            assert answer.status_code == 409, answer.text
            assert "raise model_budget" in answer.json()["error"]
            assert "\n" not in answer.json()["error"]
        french = {"q": "Oui.", "source": "fr", "target": "en"}
        assert client.post("/translate", json=french).status_code == 503
        assert states(client)[LARGE] == "unloaded"
        assert client.post(f"/models/{DE}/load", headers=TOKEN).status_code == 200
