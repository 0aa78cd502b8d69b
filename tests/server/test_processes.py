"""`--frontends F --engines E`: real processes behind one port that share work, die and restart."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.server.test_reload import NAME, TOKEN, asked, damaged, rewritten
from tests.server.test_server_process import GERMAN
from tests.support.processes import (
    COUNT,
    LONGER,
    all_connected,
    ask,
    connections,
    constant_load,
    pids,
    processes,
    ready,
    wait_for_answers,
)
from tests.support.served import bundles, until, value


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * 4096


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    models = tmp_path_factory.mktemp("processes") / "models"
    shutil.copytree(bundles() / NAME, models / NAME)
    with processes(MODELS=str(models), CACHE_BYTES="1000000", ADMIN_TOKEN="operator-operator") as found:
        yield *found, models


def test_front_ends_share_one_port_and_metrics_sum_all_processes(crew):
    client, running, _ = crew
    front_ends, engines = pids(running), pids(running, "engine process")
    assert (len(front_ends), len(engines)) == (COUNT, COUNT)
    asking = [httpx.Client(base_url=client.base_url, timeout=600, verify=False) for _ in range(8)]
    files = re.search(r"/\S+/metrics(?=/\S+\.db)", Path(f"/proc/{front_ends[0]}/maps").read_text("utf-8"))
    Path(files[0], "counter_99.db").touch()  # file of a process that is just starting
    before = value(client, "convoy_request_duration_seconds_count", route="/translate")
    try:
        answers = [one.post("/translate", json=GERMAN) for one in asking for _ in range(3)]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["translatedText"] for answer in answers}) == 1
        shared = connections(running)
        assert min(shared[pid] for pid in front_ends) >= 3, shared
    finally:
        for one in asking:
            one.close()
    after = value(client, "convoy_request_duration_seconds_count", route="/translate", outcome="ok")
    assert after - before == 24
    hits, misses = (value(client, f"convoy_cache_{kind}_total", model=NAME) for kind in ("hits", "misses"))
    assert (hits + misses, misses) == (24, COUNT)
    until(lambda: value(client, "convoy_slots", model=NAME, lane="0") == 4 * COUNT)
    # and each process has tested the model
    until(lambda: value(client, "convoy_sentences_answered_total", model=NAME) == misses + 2 * COUNT)
    assert value(client, "convoy_model_loaded", model=NAME) == COUNT
    until(lambda: value(client, "convoy_ready") == 1)
    each = [resident(pid) for pid in front_ends + engines]
    assert value(client, "process_resident_memory_bytes") == pytest.approx(sum(each), rel=0.2)


def test_front_ends_load_neither_weights_nor_a_runtime(crew):
    _, running, _ = crew
    for pid in pids(running):
        mapped = Path(f"/proc/{pid}/maps").read_text("utf-8")
        assert "onnxruntime" not in mapped
        assert "model.safetensors" not in mapped


def test_fork_server_excludes_its_imports_from_collections():
    code = (
        "import gc, server.preloaded; print(gc.get_freeze_count() > 50_000 and len(gc.get_objects()) < 1_000)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert output == "True\n"


def test_engine_processes_share_their_weights(crew):
    _, running, _ = crew
    kept = []
    for pid in pids(running, "engine process"):
        lines = Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines()
        kept.append({tuple(line.split()[3:6]) for line in lines if "/weights/" in line})
    assert len(kept[0]) >= 2
    assert kept[0] == kept[1]


def test_characters_are_counted_for_all_front_ends_together(crew):
    client, _, _ = crew

    def used():
        with httpx.Client(base_url=client.base_url, timeout=600, verify=False) as one:
            return one.get("/v2/usage").json()["character_count"]

    def settled():
        """Return whether no front end has sent a count for a second."""
        count = used()
        time.sleep(1.0)
        return used() == count

    until(settled)
    before = used()
    assert [ask(client).status_code for _ in range(12)] == [200] * 12
    assert ask(client, GERMAN | {"beam_size": 99}).status_code == 400
    until(lambda: used() == before + 12 * len(GERMAN["q"]))


def test_front_ends_share_files_documents_and_cached_answers(crew):
    client, _, _ = crew

    def everybody(call):
        """Send a request on twelve connections, which reach both front ends."""
        answers = []
        kept = [httpx.Client(base_url=client.base_url, timeout=600, verify=False) for _ in range(12)]
        try:
            answers = [call(one) for one in kept]
        finally:
            for one in kept:
                one.close()
        return answers

    form = {"source": "de", "target": "en"}
    sent = client.post("/translate_file", files={"file": ("a.txt", b"Das ist gut.")}, data=form)
    found = everybody(lambda one: one.get(sent.json()["translatedFileUrl"]))
    assert {answer.status_code for answer in found} == {200}
    assert len({answer.text for answer in found}) == 1
    form = {"target_lang": "EN", "source_lang": "DE"}
    job = client.post("/v2/document", files={"file": ("a.txt", b"Das ist gut.")}, data=form).json()
    path, key = f"/v2/document/{job['document_id']}", {"document_key": job["document_key"]}
    until(lambda: client.post(path, json=key).json()["status"] == "done")
    assert {a.json()["status"] for a in everybody(lambda one: one.post(path, json=key))} == {"done"}
    results = {a.text for a in everybody(lambda one: one.post(f"{path}/result", json=key))}
    assert results == {
        found[0].text.removesuffix(".")
    }  # DeepL's contract keeps the model's final mark, which is none
    wrong = everybody(lambda one: one.post(path, json={"document_key": "x"}))
    assert {answer.status_code for answer in wrong} == {404}


def test_killed_front_end_restarts_while_the_other_answers(crew):
    client, running, _ = crew
    count = "convoy_request_duration_seconds_count"
    before, old = value(client, count, route="/translate", outcome="ok"), pids(running)
    restarts = value(client, "convoy_process_restarts_total", process="front end 0")
    engines = pids(running, "engine process")
    with constant_load(client) as statuses:
        os.kill(old[0], signal.SIGKILL)
        until(lambda: len(pids(running)) == COUNT and old[0] not in pids(running))
        with httpx.Client(
            base_url=client.base_url, verify=False
        ) as fresh:  # a kept connection may lead to the dead process
            lived = value(fresh, count, route="/translate", outcome="ok")
        until(lambda: ready(client))
    found = Counter(statuses)
    assert old[1] in pids(running)
    assert pids(running, "engine process") == engines
    assert set(found) <= {200, 0}, found
    assert found[0] <= 6, "only what the dead one had in its hands is lost"
    assert lived >= before, "what the dead one counted stays counted"
    after = value(client, count, route="/translate", outcome="ok")
    assert after - before == pytest.approx(found[200], abs=6)
    assert value(client, "convoy_process_restarts_total", process="front end 0") == restarts + 1
    assert value(client, "convoy_slots", model=NAME, lane="0") == 4 * COUNT


def test_requests_of_a_killed_front_end_free_their_slots(crew):
    client, running, _ = crew
    old, ended = pids(running), []

    def wait():
        try:
            end = ask(client, LONGER).text
        except httpx.TransportError:
            end = None
        ended.append((time.monotonic(), end))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(wait)
        until(
            lambda: value(client, "convoy_requests_in_flight") >= 5
        )  # five requests, and the one for metrics
        until(lambda: value(client, "convoy_slots_active", model=NAME, lane="1") > 4)  # slots of both engines
        killed = time.monotonic()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(pids(running)) == COUNT and not set(old) & set(pids(running)))
        until(lambda: ready(client))
        again = time.monotonic()
        until(lambda: value(client, "convoy_slots_active", model=NAME) == 0)
    assert [end for _, end in ended] == [None] * 4
    assert max(moment for moment, _ in ended) < again, "connections end with it, not when another starts"
    assert again - killed < max(60.0, 10 * running.start)


def test_requests_of_a_killed_engine_process_move_to_the_other(crew):
    client, running, _ = crew
    old, front_ends = pids(running, "engine process"), pids(running)
    with constant_load(client, GERMAN | {"max_length": 60, "min_length": 60}) as statuses:
        for pid in old:  # one after the other
            until(lambda: all_connected(running))  # front ends may have just restarted
            wait_for_answers(statuses)
            os.kill(pid, signal.SIGKILL)
            assert ready(client), "the other one answers"
            until(lambda pid=pid: pid not in pids(running, "engine process"))
        until(lambda: all_connected(running))
        until(lambda: value(client, "convoy_model_loaded", model=NAME) == COUNT)
    for number in range(COUNT):
        assert value(client, "convoy_process_restarts_total", process=f"engine process {number}") == 1
    assert set(statuses) == {200}, Counter(statuses)
    assert not set(old) & set(pids(running, "engine process"))
    assert pids(running) == front_ends


def test_reload_reaches_all_processes_and_a_damaged_bundle_none(crew):
    client, running, models = crew

    def everybody():
        """Return the answers on connections to both front ends, from both engines."""
        kept = [httpx.Client(base_url=client.base_url, timeout=600, verify=False) for _ in range(8)]
        try:
            return {asked(one) for one in kept}
        finally:
            for one in kept:
                one.close()

    (old,) = everybody()
    rewritten(models / NAME, lambda w: -w)
    answer = client.post(f"/models/{NAME}/reload", headers=TOKEN)
    assert answer.status_code == 200, answer.text
    (new,) = everybody()
    assert new != old
    rewritten(models / NAME, lambda w: -w)
    running.send_signal(signal.SIGHUP)
    until(lambda: everybody() == {old})
    damaged(models / NAME)
    answer = client.post(f"/models/{NAME}/reload", headers=TOKEN)
    assert (answer.status_code, everybody()) == (409, {old})


def test_all_processes_end_when_the_supervisor_is_killed(crew):
    """This must be the last test of the file, because it ends the processes."""
    _, running, _ = crew
    left = pids(running) + pids(running, "engine process")
    assert len(left) == 2 * COUNT
    running.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
