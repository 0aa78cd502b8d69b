"""Reloads of a served model: by HTTP, by a signal, and with a damaged bundle."""

import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from engine.api import BundleError, ExecutorFailed, Placement, Service, ServiceSettings
from engine.bundle.bundle import Description, open_bundle, write_bundle
from tests.server.test_server_process import GERMAN, SLOW, process
from tests.support.served import LANES, bundles, server, until

TOKEN = {"Authorization": "Bearer operator-operator"}
NAME = "toy-de-en"


def rewritten(path, change):
    """The bundle at `path` with other weights, written as a trainer would: whole, and swapped in at once."""
    old = open_bundle(path)
    names = [
        n for n in old.files() if n not in ("config.json", "generation_config.json", "model.safetensors")
    ]
    write_bundle(
        path,
        Description(
            name=old.name,
            task=old.task,
            source=old.source,
            target=old.target,
            config=old.config,
            text=old.text,
            generation={"beam_size": 4, "max_length": 10},
        ),
        {name: change(weight) for name, weight in old.weights().items()},
        {name: old.file(name).read_bytes() for name in names},
        half=False,
        overwrite=True,
    )


def damaged(path):
    weights = path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


@contextmanager
def place(folder, **settings):
    """A server of its own copies of the bundles: (client, house, their folder)."""
    models = Path(folder) / "models"
    shutil.copytree(bundles(), models)

    def opened(observe):
        return Service.open([models], ServiceSettings(Placement(lanes=LANES)), observe)

    with server(opened=opened, **settings) as (client, house, _):
        yield client, house, models


@pytest.fixture
def served(tmp_path):
    with place(tmp_path, admin_token="operator-operator") as found:
        yield found


def asked(client, **values):
    answer = client.post("/translate", json=GERMAN | values)
    assert answer.status_code == 200, answer.text
    return answer.json()["translatedText"]


def engines():
    return [thread for thread in threading.enumerate() if thread.name == f"engine {NAME}"]


def test_a_reload_under_load_fails_no_request_and_mixes_no_two_models(served):
    client, _, models = served
    old, over = asked(client), threading.Event()
    rewritten(models / NAME, lambda w: -w)
    assert asked(client) == old, "a reload happens when it is asked for"

    def keep_asking(_):
        found = []
        with httpx.Client(base_url=client.base_url, timeout=600) as own:
            while not over.is_set():
                found.append(own.post("/translate", json=GERMAN | {"q": [GERMAN["q"]] * 3}))
        return found

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(keep_asking, number) for number in range(6)]
        try:
            for _ in range(3):
                answer = client.post(f"/models/{NAME}/reload", headers=TOKEN)
                assert (answer.status_code, answer.json()["name"]) == (200, NAME)
            new = asked(client)
        finally:
            over.set()
        answers = [answer for task in asking for answer in task.result()]
    assert new != old
    assert {answer.status_code for answer in answers} == {200}
    texts = [answer.json()["translatedText"] for answer in answers]
    assert len(texts) > 6
    assert all(text in ([old] * 3, [new] * 3) for text in texts)
    assert asked(client) == new
    assert len(engines()) == 1


def test_a_long_request_finishes_with_the_model_it_began_with(served):
    client, house, models = served
    values = GERMAN | {"min_length": 300, "max_length": 300}
    old = asked(client, **values)
    rewritten(models / NAME, lambda w: -w)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(asked, client, **values)
        until(lambda: sum(house.service.stats()[NAME].active))
        house.service.reload(NAME)
        assert long.result() == old
    assert asked(client, **values) != old


@pytest.mark.parametrize("fault", ["damaged", "senseless", "gone", "of another name"])
def test_damaged_new_bundle_is_refused_and_the_old_one_stays(served, fault):
    client, _, models = served
    old = asked(client)
    if fault == "damaged":
        damaged(models / NAME)
    elif fault == "senseless":  # finite weights with infinite sums
        rewritten(models / NAME, lambda w: np.full_like(w, 3e38))
    elif fault == "gone":
        shutil.rmtree(models / NAME)
    else:
        shutil.rmtree(models / NAME)
        shutil.copytree(models / "toy-en-de", models / NAME)
    answer = client.post(f"/models/{NAME}/reload", headers=TOKEN)
    assert answer.status_code == 409, answer.text
    assert answer.json()["error"].startswith("the old model is still served: ")
    assert asked(client) == old
    assert client.get("/health/ready").status_code == 200
    assert len(engines()) == 1


def test_a_reload_brings_a_dead_engine_back(served):
    client, house, _ = served
    house.service.repository.loaded[NAME].engine.stop(drain=False, timeout=10)
    assert client.get("/health/ready").status_code == 503
    assert client.post(f"/models/{NAME}/reload", headers=TOKEN).status_code == 200
    assert client.get("/health/ready").status_code == 200
    assert asked(client)


def test_only_the_operator_may_reload(tmp_path, served):
    client, *_ = served
    assert client.post("/models/nobody/reload", headers=TOKEN).status_code == 404
    for headers in ({}, {"Authorization": "Bearer operator"}, {"X-API-Key": "operator-operator"}):
        assert client.post(f"/models/{NAME}/reload", headers=headers).status_code == 401
    with place(tmp_path / "other") as (other, _, _):
        answer = other.post(f"/models/{NAME}/reload", headers=TOKEN)
        assert answer.status_code == 403
        assert "CONVOY_ADMIN_TOKEN" in answer.json()["error"]


def test_reload_has_the_errors_of_a_load(tmp_path):
    shutil.copytree(bundles() / NAME, tmp_path / NAME)
    service = Service.open([tmp_path], ServiceSettings(Placement(lanes=LANES)))
    service.start()
    try:
        rewritten(tmp_path / NAME, lambda w: np.full_like(w, 3e38))
        with pytest.raises(ExecutorFailed):
            service.reload(NAME)
        damaged(tmp_path / NAME)
        with pytest.raises(BundleError, match="model.safetensors"):
            service.reload(NAME)
    finally:
        service.stop(drain=False, timeout=30)


def test_sighup_reloads_every_model_without_failed_requests(tmp_path):
    models = tmp_path / "models"
    shutil.copytree(bundles(), models)
    with process(MODELS=str(models)) as (client, running):
        old = asked(client)
        rewritten(models / NAME, lambda w: -w)
        damaged(models / "toy-title")
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(httpx.post, f"{client.base_url}/translate", json=SLOW, timeout=600)
            running.send_signal(signal.SIGHUP)
            until(lambda: asked(client) != old)
            assert long.result().status_code == 200
        assert client.post("/summarize", json={"q": "A long text."}).status_code == 200
        running.terminate()
        log = running.communicate(timeout=600)[1]
    assert f"reloaded {NAME}" in log
    assert "toy-title keeps the old bundle" in log
    assert running.returncode == 0
