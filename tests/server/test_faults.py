"""Real faults of processes, devices, clocks and clients, by `make test-faults`.

Quick faults are among the ordinary tests: reloads, deadlines, drains and errors of the backend.
"""

import contextlib
import mmap
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from server.callers.keys import editing, make_key
from tests.server.test_server_process import GERMAN, MAIN, ROOT, SLOW, free_port, process, raw_request
from tests.support.load import offered
from tests.support.served import busy, server, until
from tests.support.timing import thrice

pytestmark = pytest.mark.faults


SECONDS = float(os.environ.get("CONVOY_FAULT_SECONDS", "10"))
NAME = "toy-de-en"
SHIPPED = ROOT / "models" / "tatoeba-de-en"


def test_killed_server_is_ready_again_within_five_seconds():
    """The supervisor here is a restart. Docker's is tested with the image."""
    port = free_port()
    variables = {"MODELS": str(SHIPPED), "PORT": str(port), "THREADS": "2"}
    environment = os.environ | {f"CONVOY_{name}": value for name, value in variables.items()}
    loop = 'trap "kill \\$child; exit" TERM; while true; do "$@" & child=$!; echo $child; wait $child; done'
    with subprocess.Popen(
        ["bash", "-c", loop, "supervisor", sys.executable, "-c", MAIN],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as supervisor:
        try:
            url = f"http://127.0.0.1:{port}"

            def ready():
                try:
                    return httpx.get(f"{url}/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            began = time.monotonic()
            pid = int(supervisor.stdout.readline())
            until(ready)
            usual = time.monotonic() - began  # seconds of a start on this machine

            def attempt():
                nonlocal pid
                with ThreadPoolExecutor(1) as pool:
                    values = {
                        "q": [f"Wo ist Haus {i}?" for i in range(200)],
                        "source": "de",
                        "target": "en",
                    }
                    flight = pool.submit(httpx.post, f"{url}/translate", json=values, timeout=600)
                    time.sleep(0.2)
                    os.kill(pid, signal.SIGKILL)
                    killed = time.monotonic()
                    with pytest.raises(httpx.TransportError):
                        flight.result()
                pid = int(supervisor.stdout.readline())
                until(ready)
                took = time.monotonic() - killed
                print(f"ready again {took:.1f} s after kill -9, at first after {usual:.1f} s")
                return "" if took < max(60.0, 10 * usual) else f"{took:.1f} s"

            thrice(attempt)
        finally:
            supervisor.terminate()
            supervisor.wait(300)


def test_sigterm_under_load_answers_all_accepted_requests():
    with process(LANES="1x8,4x8") as (client, running):
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(offered, client, 60.0, 6.0, {})
            time.sleep(3)
            running.send_signal(signal.SIGTERM)
            answers = load.result()
        assert running.wait(300) == 0
    statuses = [answer.status for answer in answers]
    assert set(statuses) <= {200, 503, 0}
    # 0 is a connection refused after the end; before it every request got an answer
    first_refused = min(a.due for a in answers if a.status == 0) if 0 in statuses else 6.0
    assert all(a.status in (200, 503) for a in answers if a.done < first_refused)
    assert statuses.count(200) > 100


def test_draining_server_never_resets_an_accepted_request():
    with process() as (client, running):
        with ThreadPoolExecutor(8) as pool:
            flights = [
                pool.submit(httpx.post, f"{client.base_url}/translate", json=SLOW, timeout=600)
                for _ in range(8)
            ]
            metric = 'convoy_slots_active{lane="1",model="toy-de-en"} 4.0'
            until(lambda: metric in client.get("/metrics").text)
            until(lambda: "convoy_requests_in_flight 9.0" in client.get("/metrics").text)
            running.send_signal(signal.SIGTERM)
            assert [flight.result().status_code for flight in flights] == [200] * 8
        assert running.wait(300) == 0


def test_lost_device_fails_running_requests_and_exits_with_70(tmp_path):
    broken = tmp_path / "broken"
    with (
        process(["-m", "tests.support.doomed", str(broken)]) as (client, running),
        ThreadPoolExecutor(8) as pool,
    ):
        # one client for both: making another takes so long that the first request may have ended
        flights = [pool.submit(client.post, "/translate", json=SLOW, timeout=600) for _ in range(8)]
        until(lambda: "convoy_requests_in_flight 9.0" in client.get("/metrics").text)
        assert client.get("/health/ready").status_code == 200
        broken.write_text("lost", "utf-8")
        lost = time.monotonic()
        answers = [flight.result() for flight in flights]
        assert {answer.status_code for answer in answers} == {503}
        assert all("device" in a.json()["error"] or "stopping" in a.json()["error"] for a in answers)
        with contextlib.suppress(httpx.TransportError):  # the process may have ended
            assert client.get("/health/ready").status_code == 503
            assert client.post("/translate", json=GERMAN).status_code == 503
        assert running.wait(300) == 70
        print(f"ended {time.monotonic() - lost:.1f} s after the device was lost")
        assert "a device is lost" in running.stderr.read()


DAY = 86_400


@contextlib.contextmanager
def shifted_clock(folder, monkeypatch):
    """Shift the wall clock of child processes; yield a function that sets the shift in seconds."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler to build the clock of the test with")
    library, offset = folder / "clock.so", folder / "offset"
    source = Path(__file__).with_name("clock_shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    offset.write_bytes(struct.pack("l", 0))
    with offset.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:

        def jump(seconds):
            shared[:] = struct.pack("l", seconds)

        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(library))
            patch.setenv("CLOCK_SHIM", str(offset))
            yield jump


def test_wall_clock_jumps_fail_no_request_and_lose_no_file(tmp_path, monkeypatch):
    """Jumps of days, under load, with limits, a stored file and a running document."""
    keys = tmp_path / "keys.json"
    with editing(keys) as kept:
        key, token = make_key("Ann", requests=100_000, characters=10_000_000)
        kept.append(key)
    own = {"Authorization": f"Bearer {token}"}
    with shifted_clock(tmp_path, monkeypatch) as jump, contextlib.ExitStack() as stack:
        served = process(API_KEY_FILE=str(keys), ANONYMOUS="true", REQ_LIMIT="100000", CHAR_QUOTA="10000000")
        client, running = stack.enter_context(served)

        def date():
            return parsedate_to_datetime(client.get("/health").headers["date"]).timestamp()

        file = ("a.txt", b"Das ist gut.", "text/plain")
        values = {"source": "de", "target": "en"}
        url = client.post("/translate_file", data=values, files={"file": file}).json()["translatedFileUrl"]
        stored = httpx.URL(url).path
        sent = {"target_lang": "EN", "source_lang": "DE"}
        document = client.post("/v2/document", data=sent, files={"file": file}, headers=own).json()
        used = client.get("/v2/usage", headers=own).json()["character_count"]
        pool = stack.enter_context(ThreadPoolExecutor(1))
        load = pool.submit(offered, client, 30.0, max(SECONDS, 10.0), {})
        for days in (1, -1, 40, -400, 0):
            time.sleep(max(SECONDS, 10.0) / 6)
            jump(days * DAY)
            # the clock has jumped; uvicorn updates its Date header each second
            until(lambda days=days: abs(date() - time.time() - days * DAY) < 60)
            for headers in ({}, own, {"X-Request-Timeout": "30"}):
                answer = client.post("/translate", json=GERMAN, headers=headers)
                assert answer.status_code == 200, answer.text
            assert client.get(stored).content
            path = f"/v2/document/{document['document_id']}"
            asked = client.post(path, json={"document_key": document["document_key"]}, headers=own)
            assert asked.json()["status"] in ("queued", "translating", "done"), asked.text
            more = client.get("/v2/usage", headers=own).json()["character_count"]
            assert more == used + len(GERMAN["q"])
            used = more
        assert {answer.status for answer in load.result()} == {200}
        assert client.get("/health/ready").status_code == 200
        running.send_signal(signal.SIGTERM)
        assert running.wait(300) == 0


def test_half_open_and_slow_clients_do_not_delay_others():
    body = raw_request(GERMAN)
    with server() as (client, house, _), contextlib.ExitStack() as stack:
        address = ("127.0.0.1", client.base_url.port)
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(200)]
        slow = [stack.enter_context(socket.create_connection(address)) for _ in range(50)]
        for number in range(40):  # each sends a byte at a time
            for connection in slow:
                connection.sendall(body[number : number + 1])
            if number % 10 == 0:
                assert client.post("/translate", json=GERMAN).status_code == 200
        for connection in slow:
            connection.sendall(body[40:])
        assert all(connection.recv(100).startswith(b"HTTP/1.1 200") for connection in slow)
        for connection in silent[:100]:
            connection.close()
        assert client.post("/translate", json=GERMAN).status_code == 200
        until(lambda: house.in_flight == 0)


def test_client_that_does_not_read_its_stream_frees_its_slot():
    with server() as (client, house, _):
        body = raw_request(SLOW | {"stream": True})
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            stalled.sendall(body)
            until(lambda: busy(house.service)[0] > 0)
            assert client.post("/translate", json=GERMAN).status_code == 200
            until(lambda: busy(house.service) == (0, 0), 600)  # after all is decoded, however slowly
        until(lambda: house.in_flight == 0)


def test_disconnecting_clients_free_their_slots_and_change_no_answer():
    chance = random.Random(3)
    with server() as (client, house, _):
        good = client.post("/translate", json=GERMAN).json()
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as connection:
                connection.sendall(raw_request(SLOW | {"q": SLOW["q"][: chance.randint(1, 8)]}))
                time.sleep(chance.random() * 0.05)
            if chance.random() < 0.3:
                assert client.post("/translate", json=GERMAN).json() == good
        left = time.monotonic()
        steps = house.service.stats()[NAME].steps
        until(lambda: busy(house.service) == (0, 0))
        print(
            f"free after {time.monotonic() - left:.3f} s, {house.service.stats()[NAME].steps - steps} steps"
        )
        until(lambda: house.in_flight == 0)
        assert client.post("/translate", json=GERMAN).json() == good


def test_server_survives_a_lack_of_file_descriptors():
    with process() as (client, running):
        client.post("/translate", json=GERMAN)
        used = len(os.listdir(f"/proc/{running.pid}/fd"))
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", client.base_url.port)))
            # existing connections are served
            for _ in range(5):
                assert client.post("/translate", json=GERMAN).status_code == 200
            assert running.poll() is None
        with httpx.Client(base_url=client.base_url, timeout=600) as fresh:
            assert fresh.post("/translate", json=GERMAN).status_code == 200
        assert client.get("/health/ready").status_code == 200
