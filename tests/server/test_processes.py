"""`--frontends F --engines E`: real processes behind one port, that live, die and stop together."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.supervisor import pause_after
from tests.server.test_reload import NAME, TOKEN, asked, damaged, rewritten
from tests.server.test_server_process import GERMAN, MAIN, ROOT, SLOW, free_port
from tests.support.served import LINES, bundles, until

COUNT = 2
READY = r"engine process \d is ready"
LONGER = SLOW | {"q": LINES[:16]}  # figures are up to a second old


@contextmanager
def processes(frontends=COUNT, engines=COUNT, program=("-c", MAIN), trust=None, **variables):
    """A supervisor with its processes, or those of another program: (httpx client, the process).

    trust: whom a client of HTTPS believes; a client of plain HTTP reads no certificates, which takes long."""
    port = free_port()
    given = {"MODELS": str(bundles()), "PORT": str(port), "LANES": "1x4,4x4"}
    given |= {"REQUEST_TIMEOUT": "3600"}  # of a busy machine much is expected to take long, and refused
    given |= {"FRONTENDS": str(frontends), "ENGINES": str(engines)} | variables
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given.items()}
    with subprocess.Popen(
        [sys.executable, *program], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        log = []
        reading = threading.Thread(target=lambda: log.extend(running.stderr))
        reading.start()
        running.log, began = log, time.monotonic()
        try:
            url = f"{'https' if trust else 'http'}://127.0.0.1:{port}"
            with httpx.Client(base_url=url, timeout=60, verify=trust or False) as client:
                until(lambda: ready(client, trust) or running.poll() is not None, 90)
                running.start = time.monotonic() - began  # seconds that it takes on this machine, now
                assert running.poll() is None, "".join(log)
                yield client, running
        finally:
            running.terminate()
            try:
                running.wait(30)
            finally:
                running.kill()
                reading.join(30)


def ready(client, trust=None):
    try:
        url = f"{client.base_url}/health/ready"
        return httpx.get(url, timeout=60, verify=trust or False).status_code == 200
    except httpx.TransportError:
        return False


def pids(running, kind="front end"):
    """Of the front ends or the engine processes, by their numbers; of those that run."""
    found = {}
    for line in list(running.log):
        if match := re.search(rf"{kind} (\d+) is process (\d+)", line):
            found[int(match[1])] = int(match[2])
    return [pid for _, pid in sorted(found.items()) if Path(f"/proc/{pid}/stat").exists()]


def connections(running):
    """Of each front end, its accepted connections, by the kernel."""
    accepted = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text("utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01":  # established
                accepted.add(f"socket:[{fields[9]}]")
    return held(pids(running), accepted)


def linked(running):
    """Whether each engine process has accepted a link of every front end, by the kernel."""
    accepted = set()
    for line in Path("/proc/net/unix").read_text("utf-8").splitlines()[1:]:
        fields = line.split()
        if fields[5] == "03" and "/engine-" in fields[-1]:  # connected
            accepted.add(f"socket:[{fields[6]}]")
    links = held(pids(running, "engine process"), accepted)
    return set(links.values()) == {len(pids(running))} and len(links) == COUNT


def held(processes, sockets):
    """How many of some sockets each process has; one may have several descriptors."""
    found = Counter()
    for pid in processes:
        open_ = set()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                open_.add(os.readlink(fd))
            except FileNotFoundError:
                continue
        found[pid] = len(open_ & sockets)
    return found


def value(client, name, **labels):
    """The sum of a metric's samples that have these labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(s.value for s in samples if labels.items() <= s.labels.items())


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * 4096


def ask(client, values=GERMAN):
    """On a connection of its own."""
    return httpx.post(f"{client.base_url}/translate", json=values, timeout=60, verify=False)


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    models = tmp_path_factory.mktemp("processes") / "models"
    shutil.copytree(bundles() / NAME, models / NAME)
    with processes(MODELS=str(models), CACHE_BYTES="1000000", ADMIN_TOKEN="operator-operator") as found:
        yield *found, models


def test_both_front_ends_answer_on_one_port_and_the_metrics_are_the_sum_of_all_processes(crew):
    client, running, _ = crew
    front_ends, engines = pids(running), pids(running, "engine process")
    assert (len(front_ends), len(engines)) == (COUNT, COUNT)
    asking = [httpx.Client(base_url=client.base_url, timeout=60, verify=False) for _ in range(8)]
    files = re.search(r"/\S+/metrics(?=/\S+\.db)", Path(f"/proc/{front_ends[0]}/maps").read_text("utf-8"))
    Path(files[0], "counter_99.db").touch()  # of a process that begins just now
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
    # and each process has tried it out
    until(lambda: value(client, "convoy_sentences_answered_total", model=NAME) == misses + 2 * COUNT)
    assert value(client, "convoy_model_loaded", model=NAME) == COUNT
    until(lambda: value(client, "convoy_ready") == 1)
    each = [resident(pid) for pid in front_ends + engines]
    assert value(client, "process_resident_memory_bytes") == pytest.approx(sum(each), rel=0.2)


def test_front_ends_have_neither_weights_nor_their_runtime(crew):
    _, running, _ = crew
    for pid in pids(running):
        mapped = Path(f"/proc/{pid}/maps").read_text("utf-8")
        assert "onnxruntime" not in mapped
        assert "model.safetensors" not in mapped


def test_engine_processes_have_weights_once(crew):
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
        with httpx.Client(base_url=client.base_url, timeout=60, verify=False) as one:
            return one.get("/v2/usage").json()["character_count"]

    time.sleep(1.0)  # what others were charged is told by then
    before = used()
    assert [ask(client).status_code for _ in range(12)] == [200] * 12
    assert ask(client, GERMAN | {"beam_size": 99}).status_code == 400
    until(lambda: used() == before + 12 * len(GERMAN["q"]))


def test_what_one_front_end_keeps_every_front_end_finds(crew):
    client, _, _ = crew

    def everybody(call):
        """Twelve connections reach both front ends."""
        answers = []
        kept = [httpx.Client(base_url=client.base_url, timeout=60, verify=False) for _ in range(12)]
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
    }  # DeepL's leaves the model's own mark be, which is none
    wrong = everybody(lambda one: one.post(path, json={"document_key": "x"}))
    assert {answer.status_code for answer in wrong} == {404}


@contextmanager
def asked_all_the_time(client, values=GERMAN):
    """Six clients; yields a list of the statuses of their answers, 0 where a connection ended."""
    over, statuses = threading.Event(), []

    def keep_asking(_):
        while not over.is_set():
            try:
                statuses.append(ask(client, values).status_code)
            except httpx.TransportError:
                statuses.append(0)

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(keep_asking, number) for number in range(6)]
        try:
            go_on(statuses)
            yield statuses
        finally:
            over.set()
        for task in asking:
            task.result()


def go_on(statuses):
    """Wait for twenty more."""
    since = len(statuses)
    until(lambda: len(statuses) > since + 20)


def test_a_front_end_that_is_killed_under_load_starts_again_and_the_other_goes_on(crew):
    client, running, _ = crew
    count = "convoy_request_duration_seconds_count"
    before, old = value(client, count, route="/translate", outcome="ok"), pids(running)
    engines = pids(running, "engine process")
    with asked_all_the_time(client) as statuses:
        os.kill(old[0], signal.SIGKILL)
        until(lambda: len(pids(running)) == COUNT and old[0] not in pids(running))
        with httpx.Client(
            base_url=client.base_url, verify=False
        ) as fresh:  # the other's may lead to the dead one
            lived = value(fresh, count, route="/translate", outcome="ok")
        until(lambda: ready(client), 60)
    found = Counter(statuses)
    assert old[1] in pids(running)
    assert pids(running, "engine process") == engines
    assert set(found) <= {200, 0}, found
    assert found[0] <= 6, "only what the dead one had in its hands is lost"
    assert lived >= before, "what the dead one counted stays counted"
    after = value(client, count, route="/translate", outcome="ok")
    assert after - before == pytest.approx(found[200], abs=6)
    assert value(client, "convoy_slots", model=NAME, lane="0") == 4 * COUNT


def test_requests_of_a_killed_front_end_leave_the_engines_at_once_and_it_is_soon_ready_again(crew):
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
        until(lambda: value(client, "convoy_requests_in_flight") >= 5)  # and the one that asks
        until(lambda: value(client, "convoy_slots_active", model=NAME, lane="1") > 4)  # of both engines
        killed = time.monotonic()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(pids(running)) == COUNT and not set(old) & set(pids(running)))
        until(lambda: ready(client), 60)
        again = time.monotonic()
        until(lambda: value(client, "convoy_slots_active", model=NAME) == 0)
    assert [end for _, end in ended] == [None] * 4
    assert max(moment for moment, _ in ended) < again, "connections end with it, not when another starts"
    assert again - killed < max(5.0, 2 * running.start)


def test_requests_of_a_killed_engine_process_are_answered_by_the_other_one(crew):
    client, running, _ = crew
    old, front_ends = pids(running, "engine process"), pids(running)
    with asked_all_the_time(client, GERMAN | {"max_length": 60, "min_length": 60}) as statuses:
        for pid in old:  # each in its turn
            until(lambda: linked(running), 60)  # front ends may have just begun too
            go_on(statuses)
            os.kill(pid, signal.SIGKILL)
            assert ready(client), "the other one answers"
            until(lambda pid=pid: pid not in pids(running, "engine process"))
        until(lambda: linked(running), 60)
        until(lambda: value(client, "convoy_model_loaded", model=NAME) == COUNT)
    assert set(statuses) == {200}, Counter(statuses)
    assert not set(old) & set(pids(running, "engine process"))
    assert pids(running) == front_ends


def test_a_reload_reaches_every_process_and_a_bad_bundle_none(crew):
    client, running, models = crew

    def everybody():
        """What connections to both front ends are answered, by either engine."""
        kept = [httpx.Client(base_url=client.base_url, timeout=60, verify=False) for _ in range(8)]
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


def test_sigterm_drains_all_processes_and_the_supervisor_exits_with_0():
    with processes(MODELS=str(bundles() / NAME)) as (client, running):
        with ThreadPoolExecutor(8) as pool:
            flights = [pool.submit(ask, client, SLOW) for _ in range(8)]
            until(lambda: value(client, "convoy_requests_in_flight") >= 9)
            running.send_signal(signal.SIGTERM)
            assert [flight.result().status_code for flight in flights] == [200] * 8
        assert running.wait(60) == 0
        assert pids(running) == pids(running, "engine process") == []


def served_in_vain(**variables):
    """Processes that can't serve: what their server says, and how it ends."""
    given = {"FRONTENDS": "2", "ENGINES": "2"} | variables
    return subprocess.run(
        [sys.executable, "-c", "from cli.main import app; app()", "serve"],
        cwd=ROOT,
        env=os.environ | {f"CONVOY_{name}": value for name, value in given.items()},
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_what_no_engine_process_could_load_ends_the_server_with_one_message(tmp_path):
    shutil.copytree(bundles() / NAME, tmp_path / NAME)
    damaged(tmp_path / NAME)
    done = served_in_vain(MODELS=str(tmp_path), PORT="0")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("convoy: error:")]
    assert len(errors) == 1, done.stderr
    assert "model.safetensors" in errors[0]


def test_a_process_that_keeps_dying_is_started_less_and_less_often():
    assert [pause_after(deaths) for deaths in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_a_port_that_is_taken_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = served_in_vain(PORT=port)
    fault = f"--host 127.0.0.1 --port {port}: Address already in use; choose another"
    assert (done.returncode, fault in done.stderr) == (2, True), done.stderr


def test_without_another_engine_process_requests_of_one_that_ends_or_hangs_are_refused_until_it_is_back():
    with processes(1, 1, MODELS=str(bundles() / NAME), HANG_TIMEOUT="5") as (client, running):
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            (engine,) = pids(running, "engine process")
            with ThreadPoolExecutor(4) as pool:
                waiting = [pool.submit(ask, client, LONGER) for _ in range(4)]
                until(lambda: value(client, "convoy_slots_active", model=NAME, lane="1") == 4)
                os.kill(engine, fault)
                answers = [one.result() for one in waiting]
            refused = ask(client)
            for answer in (*answers, refused):
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
                assert "engine" in answer.json()["error"]
            assert not ready(client)
            until(lambda: ready(client), 60)
            assert ask(client).status_code == 200
        hung = [line for line in running.log if "made no progress for 5 seconds" in line]
        assert len(hung) == 1
        assert "engine process 0" in hung[0]


def test_an_engine_process_whose_device_is_lost_or_whose_step_never_ends_is_replaced(tmp_path):
    file, faults = tmp_path / "fault", {"lost": "a device is lost", "hangs": "no progress for 5 seconds"}
    given = {"MODELS": str(bundles() / NAME), "HANG_TIMEOUT": "5"}
    with processes(1, 2, ["-m", "tests.support.doomed", str(file)], **given) as (client, running):
        for begun, (fault, said) in enumerate(faults.items(), 3):
            engines = pids(running, "engine process")
            file.write_text(fault, "utf-8")
            with asked_all_the_time(client) as statuses:
                until(lambda said=said: any(said in line for line in list(running.log)), 90)
                # a third and a fourth one, which the next fault must not meet before they were ready
                until(lambda begun=begun: len(re.findall(READY, "".join(running.log))) == begun, 90)
                until(lambda: linked(running))
                go_on(statuses)
            assert set(statuses) == {200}, Counter(statuses)
            assert len(set(engines) & set(pids(running, "engine process"))) == 1


def test_models_come_and_go_with_their_folders_and_by_orders_and_within_a_budget(tmp_path):
    shutil.copytree(bundles() / NAME, tmp_path / NAME)

    def states():
        return {model["name"]: model["state"] for model in client.get("/models").json()}

    given = {
        "MODELS": str(tmp_path),
        "WATCH": "0.2",
        "MODEL_BUDGET": "1GB",
        "ADMIN_TOKEN": "operator-operator",
    }
    with processes(1, 1, **given) as (client, running):
        assert states() == {NAME: "unloaded"}
        assert ask(client).status_code == 200
        until(lambda: states() == {NAME: "loaded"})
        assert client.post(f"/models/{NAME}/unload", headers=TOKEN).json()["state"] == "unloaded"
        assert client.post(f"/models/{NAME}/load", headers=TOKEN).json()["state"] == "loaded"
        assert client.post("/models/nobody/load", headers=TOKEN).status_code == 404
        shutil.copytree(bundles() / "toy-en-de", tmp_path / ".new")
        (tmp_path / ".new").rename(tmp_path / "toy-en-de")
        until(lambda: states() == {NAME: "loaded", "toy-en-de": "unloaded"})
        back = GERMAN | {"source": "de", "target": "de", "model": f"{NAME}+toy-en-de"}
        assert ask(client, back).status_code == 200
        (tmp_path / "toy-en-de").rename(tmp_path / ".gone")
        until(lambda: states() == {NAME: "loaded"})
        assert ask(client, back).status_code == 404
        # the last one goes too, beside one that can't be served: a folder without any is a disk that is away
        shutil.copytree(bundles() / "toy-en-de", tmp_path / "damaged")
        damaged(tmp_path / "damaged")
        (tmp_path / NAME).rename(tmp_path / ".away")
        until(lambda: states() == {})
        assert ask(client).status_code == 400
        (tmp_path / ".away").rename(tmp_path / NAME)
        until(lambda: states().keys() == {NAME})
        assert ask(client).status_code == 200
        # a bundle that was replaced while nobody looked: a front end that begins anew has it reloaded
        rewritten(tmp_path / NAME, lambda weights: -weights)
        os.kill(pids(running)[0], signal.SIGKILL)
        until(lambda: ready(client) and ask(client).status_code == 200, 60)


def copied_from(supervisor):
    """The number of the process that a supervisor copies all others from, once there is one."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("utf-8").split()
    found = [child for child in children if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return int(found[0]) if found else None


@pytest.mark.faults
def test_all_processes_come_anew_when_the_one_that_they_are_copied_from_is_killed():
    with processes() as (client, running):
        old = pids(running) + pids(running, "engine process")
        os.kill(copied_from(running.pid), signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in old), 60)
        until(lambda: ready(client), 60)
        assert ask(client).status_code == 200


@pytest.mark.faults
def test_a_signal_to_all_processes_of_a_server_that_still_starts_ends_it_as_one_to_the_first():
    variables = {"MODELS": str(bundles()), "PORT": str(free_port()), "FRONTENDS": "1"}
    environment = os.environ | {f"CONVOY_{name}": value for name, value in variables.items()}
    command = [sys.executable, "-c", MAIN]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as running:
        until(lambda: copied_from(running.pid), 60)
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait(60) == 0


def test_all_processes_end_when_their_supervisor_is_killed(crew):
    """The last of this file, as the crew is no more after it."""
    _, running, _ = crew
    left = pids(running) + pids(running, "engine process")
    assert len(left) == 2 * COUNT
    running.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
