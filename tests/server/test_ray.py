"""The server on a local Ray of two replicas. `make test-ray`; needs the extra `ray`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.test_reload import NAME, TOKEN, asked, damaged, rewritten
from tests.server.test_server_process import ENDLESS, GERMAN, ROOT, free_port
from tests.support.served import bundles, until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'convoy-server[ray]'"),
]

DRIVER = """
import os, sys
import ray
from ray import serve
ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=True)
serve.start(http_options={"port": int(os.environ["CONVOY_PORT"])})
import server.ray
serve.run(server.ray.app)
print("running", flush=True)
for line in sys.stdin:  # a new version, by other settings
    os.environ.update(part.split("=") for part in line.split())
    serve.run(server.ray.app)
    print("running", flush=True)
serve.shutdown()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A local cluster: (httpx client, the driver, the models' folder)."""
    models = tmp_path_factory.mktemp("ray") / "models"
    shutil.copytree(bundles() / NAME, models / NAME)
    given = {
        "MODELS": str(models),
        "PORT": str(free_port()),
        "LANES": "1x4,4x4",
        "THREADS": "1",
        "ADMIN_TOKEN": "operator-operator",
        "STORE_FOLDER": str(models.parent / "store"),
        "RAY_MIN_REPLICAS": "2",
        "RAY_MAX_REPLICAS": "2",
        "RAY_CPUS": "0.1",
    }
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given.items()}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            told(driver)
            url = f"http://127.0.0.1:{given['PORT']}"
            with httpx.Client(base_url=url, timeout=600) as client:
                yield client, driver, models
        finally:
            driver.stdin.close()
            driver.wait(300)


def told(driver):
    """Wait until the driver reports a running application."""
    for line in driver.stdout:
        if line.strip() == "running":
            return
    raise AssertionError("the driver has ended")


def replicas():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text("utf-8").startswith("ray::ServeReplica:default:convoy"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def by_replica(client, name, **labels):
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {s.labels["replica"]: s.value for s in samples if labels.items() <= s.labels.items()}


def test_both_replicas_answer_with_the_same_application(cluster):
    client, *_ = cluster
    assert len(replicas()) == 2
    texts = {asked(client) for _ in range(30)}
    assert len(texts) == 1
    counts = by_replica(client, "convoy_request_duration_seconds_count", route="/translate", outcome="ok")
    assert (len(counts), sum(counts.values()), min(counts.values()) > 0) == (2, 30, True)
    assert client.get("/health/ready").json() == {"status": "ready"}
    assert client.post("/translate", json=GERMAN | {"target": "zz"}).status_code == 400
    assert client.get("/nothing").status_code == 404
    streamed = client.post("/translate", json=GERMAN | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    last = re.findall(r"event: result\ndata: (.*)", streamed.text)
    assert [json.loads(answer)["translatedText"] for answer in last] == list(texts)
    form = {"source": "de", "target": "en"}
    sent = client.post("/translate_file", files={"file": ("a.txt", b"Das ist gut.")}, data=form)
    assert {client.get(sent.json()["translatedFileUrl"]).text for _ in range(8)} == texts


def test_a_client_that_leaves_frees_its_slots(cluster):
    client, *_ = cluster
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{client.base_url}/translate", json=ENDLESS, timeout=0.5)
    until(lambda: sum(by_replica(client, "convoy_slots_active").values()) == 0)
    assert sum(by_replica(client, "convoy_rejected_total", reason="cancelled").values()) == 1


@contextmanager
def under_load(client, body, count):
    """So many clients that keep asking meanwhile: the statuses that they got, at the end."""
    over, statuses = threading.Event(), Counter()

    def keep_asking(_):
        found = []
        with httpx.Client(base_url=client.base_url, timeout=600) as own:
            while not over.is_set():
                found.append(own.post("/translate", json=body).status_code)
        return found

    with ThreadPoolExecutor(count) as pool:
        asking = [pool.submit(keep_asking, number) for number in range(count)]
        try:
            yield statuses
        finally:
            over.set()
        for task in asking:
            statuses.update(task.result())


def test_a_replica_that_is_killed_under_load_loses_no_request(cluster):
    client, *_ = cluster
    old = replicas()
    with under_load(client, GERMAN | {"min_length": 60, "max_length": 60}, 8) as statuses:
        until(lambda: sum(by_replica(client, "convoy_slots_active").values()) >= 4)
        os.kill(old[0], signal.SIGKILL)
        until(lambda: old[0] not in replicas())
        until(lambda: len(replicas()) == 2)
        time.sleep(1)
    assert set(statuses) == {200}, statuses
    assert statuses[200] > 20
    assert old[1] in replicas()
    until(lambda: len(by_replica(client, "convoy_ready")) == 2)


def test_a_reload_reaches_every_replica(cluster):
    client, _, models = cluster
    old = asked(client)
    rewritten(models / NAME, lambda w: -w)
    assert client.post(f"/models/{NAME}/reload").status_code == 401
    assert client.post(f"/models/{NAME}/reload", headers=TOKEN).status_code == 200
    (new,) = {asked(client) for _ in range(16)}
    assert new != old
    damaged(models / NAME)
    answer = client.post(f"/models/{NAME}/reload", headers=TOKEN)
    assert (answer.status_code, {asked(client) for _ in range(16)}) == (409, {new})
    rewritten_back = bundles() / NAME
    shutil.rmtree(models / NAME)
    shutil.copytree(rewritten_back, models / NAME)


def test_a_new_version_takes_over_without_a_failed_request(cluster):
    client, driver, _ = cluster
    old = replicas()
    with under_load(client, GERMAN, 4) as statuses:
        driver.stdin.write("CONVOY_CHAR_LIMIT=100\n")
        driver.stdin.flush()
        told(driver)
        until(lambda: not set(old) & set(replicas()))
    assert set(statuses) == {200}, statuses
    assert client.post("/translate", json=GERMAN | {"q": "x" * 101}).status_code == 400
