"""Real processes of a server: failing starts, hangs, lost devices, drains and signals."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtest.http.memory import memory_of
from server.supervisor import pause_after
from tests.server.test_reload import NAME, TOKEN, damaged, rewritten
from tests.server.test_server_process import GERMAN, MAIN, ROOT, SLOW, free_port
from tests.support.processes import (
    LONGER,
    all_connected,
    ask,
    constant_load,
    pids,
    processes,
    ready,
    wait_for_answers,
)
from tests.support.served import bundles, until, value

READY = r"engine process \d is ready"


def test_sigterm_drains_all_processes_and_exits_with_0():
    with processes(MODELS=str(bundles() / NAME), DRAIN_TIMEOUT="300") as (client, running):
        with ThreadPoolExecutor(8) as pool:
            flights = [pool.submit(ask, client, SLOW) for _ in range(8)]
            until(lambda: value(client, "convoy_requests_in_flight") >= 9)
            running.send_signal(signal.SIGTERM)
            assert [flight.result().status_code for flight in flights] == [200] * 8
        assert running.wait(300) == 0
        assert pids(running) == pids(running, "engine process") == []


def run_failing_server(**variables):
    """Run a server that fails to start, and return its output and exit code."""
    given = {"FRONTENDS": "2", "ENGINES": "2"} | variables
    return subprocess.run(
        [sys.executable, "-c", "from cli.main import app; app()", "serve"],
        cwd=ROOT,
        env=os.environ | {f"CONVOY_{name}": value for name, value in given.items()},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_unloadable_bundle_ends_the_server_with_one_message(tmp_path):
    shutil.copytree(bundles() / NAME, tmp_path / NAME)
    damaged(tmp_path / NAME)
    done = run_failing_server(MODELS=str(tmp_path), PORT="0")
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("convoy: error:")]
    assert len(errors) == 1, done.stderr
    assert "model.safetensors" in errors[0]


def test_back_off_grows_with_early_deaths():
    assert [pause_after(deaths) for deaths in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_used_port_ends_the_server_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_failing_server(PORT=port)
    fault = f"--host 127.0.0.1 --port {port}: Address already in use; choose another"
    assert (done.returncode, fault in done.stderr) == (2, True), done.stderr


def test_requests_are_refused_while_the_only_engine_process_is_down():
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
            until(lambda: ready(client))
            assert ask(client).status_code == 200
        hung = [line for line in running.log if "made no progress for 5 seconds" in line]
        assert len(hung) == 1
        assert "engine process 0" in hung[0]


def test_engine_process_with_lost_device_or_endless_step_is_replaced(tmp_path):
    file, faults = tmp_path / "fault", {"lost": "a device is lost", "hangs": "no progress for 5 seconds"}
    given = {"MODELS": str(bundles() / NAME), "HANG_TIMEOUT": "5"}
    with processes(1, 2, ["-m", "tests.support.doomed", str(file)], **given) as (client, running):
        for begun, (fault, said) in enumerate(faults.items(), 3):
            engines = pids(running, "engine process")
            file.write_text(fault, "utf-8")
            with constant_load(client) as statuses:
                until(lambda said=said: any(said in line for line in list(running.log)))
                # wait until the replacements are ready before the next fault
                until(lambda begun=begun: len(re.findall(READY, "".join(running.log))) == begun)
                until(lambda: all_connected(running))
                wait_for_answers(statuses)
            assert set(statuses) == {200}, Counter(statuses)
            assert len(set(engines) & set(pids(running, "engine process"))) == 1


def test_models_follow_folders_orders_and_the_memory_budget(tmp_path):
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
        # remove the last model, next to an invalid one: an empty folder counts as an unmounted disk
        shutil.copytree(bundles() / "toy-en-de", tmp_path / "damaged")
        damaged(tmp_path / "damaged")
        (tmp_path / NAME).rename(tmp_path / ".away")
        until(lambda: states() == {})
        assert ask(client).status_code == 400
        (tmp_path / ".away").rename(tmp_path / NAME)
        until(lambda: states().keys() == {NAME})
        assert ask(client).status_code == 200
        # a bundle was replaced without a reload: a restarted front end reloads it
        rewritten(tmp_path / NAME, lambda weights: -weights)
        os.kill(pids(running)[0], signal.SIGKILL)
        until(lambda: ready(client) and ask(client).status_code == 200)


def children_of(process):
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    ]


def fork_server_of(supervisor):
    """Return the process id of a supervisor's fork server, or None before it has forked a process."""
    return next((child for child in children_of(supervisor) if children_of(child)), None)


@pytest.mark.faults
def test_all_processes_restart_when_the_fork_server_is_killed():
    with processes() as (client, running):
        old = pids(running) + pids(running, "engine process")
        os.kill(fork_server_of(running.pid), signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in old))
        until(lambda: ready(client))
        assert ask(client).status_code == 200


def test_fork_server_shares_the_memory_of_its_imports_and_keeps_no_other_files():
    with processes() as (_, running):
        fork_server = fork_server_of(running.pid)
        memory = memory_of(fork_server)
        assert memory.pss < memory.rss / 3, memory
        command, same = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (running.pid, fork_server))
        assert command == same  # forked, and not a new program
        files = {os.readlink(entry) for entry in Path(f"/proc/{fork_server}/fd").iterdir()}
        assert not any("/convoy-" in file for file in files), files


@pytest.mark.faults
def test_signal_to_the_process_group_ends_a_starting_server():
    variables = {"MODELS": str(bundles()), "PORT": str(free_port()), "FRONTENDS": "1"}
    environment = os.environ | {f"CONVOY_{name}": value for name, value in variables.items()}
    command = [sys.executable, "-c", MAIN]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as running:
        until(lambda: fork_server_of(running.pid))
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait(300) == 0
