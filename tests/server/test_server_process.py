"""The server as a process: clients that leave, queues that fill, deadlines, and a signal to stop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from engine.bundle.bundle import open_bundle
from engine.text.tokenizers.tokenizer import open_tokenizer
from server.app import configure
from server.settings import ServerSettings
from tests.support.served import LINES, LONG, bundles, busy, open_service, server, slow_down, until, value

ROOT = Path(__file__).parents[2]
GERMAN = {"q": "Das ist gut.", "source": "de", "target": "en"}
SLOW = GERMAN | LONG | {"q": LINES[:8]}  # a second or more
ENDLESS = SLOW | {"q": LINES[:160]}


def raw_request(values, headers=None):
    body = json.dumps(values).encode()
    head = ["POST /translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


@contextmanager
def in_background(call):
    """Runs a call in a thread; yields a list that will hold its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    try:
        yield results
    finally:
        thread.join(300)


# a client that leaves


def test_a_client_that_leaves_frees_its_slots_and_its_place_in_the_queue():
    with server() as (client, house, _):
        service = house.service
        answered = service.stats()["toy-de-en"].answered
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(raw_request(SLOW))
            until(lambda: busy(service)[0] > 0)
            assert busy(service)[1] > 0
        until(lambda: busy(service) == (0, 0))
        until(lambda: house.in_flight == 0)
        assert service.stats()["toy-de-en"].answered == answered
        assert value(client, "convoy_rejected_total", reason="cancelled", model="toy-de-en") == 1
        assert client.post("/translate", json=GERMAN).status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_body_does_no_harm():
    with server() as (client, house, _):
        with socket.create_connection(("127.0.0.1", client.base_url.port)) as connection:
            connection.sendall(raw_request(SLOW)[:150])
            until(lambda: house.in_flight == 1)
        until(lambda: house.in_flight == 0)
        assert client.post("/translate", json=GERMAN).status_code == 200


# limits in time and space


def test_full_queue_gives_429_with_a_waiting_time():
    bundle = open_bundle(bundles() / "toy-de-en")
    size = sum(len(tokens) + 1 for tokens in map(open_tokenizer(bundle).encode, SLOW["q"][:4]))
    with server(service_settings={"queue_tokens": 7 * size // 4}) as (client, house, _):
        slow = SLOW | {"q": SLOW["q"][:4]}
        for lane in house.service.repository.loaded["toy-de-en"].engine.lanes:
            slow_down(lane.stepper)

        def ask():
            return httpx.post(f"{client.base_url}/translate", json=slow, timeout=600)

        with in_background(ask) as first:
            until(lambda: busy(house.service) == (2, 2))  # half of the lane's slots
            with in_background(ask) as second:
                until(lambda: busy(house.service) == (4, 4))
                answer = client.post("/translate", json=GERMAN | {"q": LINES[:4]})
        assert answer.status_code == 429, answer.text
        assert int(answer.headers["retry-after"]) >= 1
        assert "try again" in answer.json()["error"]
        assert first[0].status_code == second[0].status_code == 200
        assert client.post("/translate", json=GERMAN | {"q": LINES[:2]}).status_code == 200


def test_a_request_that_could_never_fit_is_a_413():
    with server(service_settings={"queue_tokens": 50}) as (client, _, _):
        answer = client.post("/translate", json=GERMAN | {"q": ["Das ist gut."] * 50})
        assert answer.status_code == 413
        assert "send fewer texts" in answer.json()["error"]


def test_a_deadline_is_a_504_and_frees_the_slots():
    with server() as (client, house, _):
        answer = client.post("/translate", json=SLOW, headers={"X-Request-Timeout": "0.05"})
        assert answer.status_code == 504
        assert "deadline" in answer.json()["error"]
        until(lambda: busy(house.service) == (0, 0))
    with server(request_timeout=0.05) as (client, house, _):
        answer = client.post("/translate", json=SLOW, headers={"X-Request-Timeout": "60"})
        assert answer.status_code == 504
        until(lambda: busy(house.service) == (0, 0))


# readiness


def test_a_dead_engine_turns_readiness_off_and_leaves_liveness_on():
    with server() as (client, house, _):
        house.service.repository.loaded["toy-title"].engine.stop(drain=False, timeout=10)
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"error": "an engine has stopped"})
        assert client.get("/health").status_code == 200


async def test_a_canary_that_fails_is_tried_again(caplog):
    from server.observing.metrics import Metrics
    from server.settings import ServerSettings
    from server.state import AppState

    service = open_service(queue_tokens=3)  # a canary never fits
    service.start()
    house = AppState(service, ServerSettings(), Metrics())
    singing = asyncio.create_task(house.prove_models())
    while "is not ready" not in caplog.text:
        await asyncio.sleep(0.01)
    assert not house.ready
    singing.cancel()
    service.stop(drain=False, timeout=10)


# stopping


def test_drain_answers_accepted_requests_and_refuses_new_ones():
    with server() as (client, house, instance):
        url = str(client.base_url)
        with in_background(lambda: httpx.post(f"{url}/translate", json=SLOW, timeout=600)) as done:
            until(lambda: busy(house.service)[0] > 0)
            instance.handle_exit(signal.SIGTERM, None)
            late = client.post("/translate", json=GERMAN)
            ready = client.get("/health/ready")
        assert (late.status_code, late.headers["connection"]) == (503, "close")
        assert "stopping" in late.json()["error"]
        assert (ready.status_code, ready.json()) == (503, {"error": "the server is stopping"})
        assert done[0].status_code == 200
        assert len(done[0].json()["translatedText"]) == len(SLOW["q"])
        until(lambda: not instance.started or instance.should_exit)
        assert instance.complete


def test_drain_timeout_answers_503_and_is_logged():
    with server(drain_timeout=0.05) as (client, house, instance):
        url = str(client.base_url)
        slow = SLOW | {"q": LINES[:32]}
        with in_background(lambda: httpx.post(f"{url}/translate", json=slow, timeout=600)) as done:
            until(lambda: busy(house.service)[0] > 0)
            instance.handle_exit(signal.SIGTERM, None)
        assert done[0].status_code == 503
        assert not instance.complete


def test_a_second_signal_does_not_wait(tmp_path):
    # a process that ends so leaves its own folder for files to the next one
    with server(store_folder=tmp_path) as (client, house, instance):
        url = str(client.base_url)
        slow = SLOW | {"q": LINES[:32]}

        def ask():
            return httpx.post(f"{url}/translate", json=slow, timeout=600).status_code

        with in_background(ask) as done:
            until(lambda: busy(house.service)[0] > 0)
            instance.handle_exit(signal.SIGTERM, None)
            instance.handle_exit(signal.SIGTERM, None)
        assert done[0] == 503
        assert not instance.complete


# as a process of its own

MAIN = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "onnx", "training", "export"}:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
from server.supervisor import serve
from server.settings import ServerSettings
sys.exit(serve(ServerSettings()))
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until_ready(client, running):
    """Wait for a server process to be ready; fail with its output if it has ended."""

    def ready():
        assert running.poll() is None, running.stderr.read()
        try:
            return client.get("/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    until(ready)


@contextmanager
def process(program=("-c", MAIN), **variables):
    """A server process that can't import torch, or another program: (httpx client, process)."""
    port = free_port()
    given = {"MODELS": str(bundles()), "PORT": str(port), "THREADS": "1", "LANES": "1x4,4x4"} | variables
    environment = os.environ | {f"CONVOY_{name}": value for name, value in given.items()}
    running = subprocess.Popen(
        [sys.executable, *program], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600, verify=False) as client:
            until_ready(client, running)
            yield client, running
    finally:
        running.kill()
        running.communicate()


def test_without_torch_it_translates_and_on_sigterm_it_drains_and_exits_with_0():
    with process() as (client, running):
        short = client.post("/translate", json=GERMAN | {"source": "auto"})
        assert short.status_code == 200
        assert short.json()["translatedText"]
        url = str(client.base_url)
        with in_background(lambda: httpx.post(f"{url}/translate", json=SLOW, timeout=600)) as done:
            until(
                lambda: 'convoy_slots_active{lane="1",model="toy-de-en"} 2.0' in client.get("/metrics").text
            )
            running.send_signal(signal.SIGTERM)
            until(lambda: client.get("/health/ready").status_code == 503)
            assert client.post("/translate", json=GERMAN).status_code == 503
        assert done[0].status_code == 200
        assert running.wait(300) == 0
        assert "loaded toy-de-en" in running.stderr.read()


def test_garbage_collection_skips_the_objects_of_the_server():
    tell = "import atexit, gc, sys; atexit.register(lambda: print(len(gc.get_objects()), file=sys.stderr))"
    with process(("-c", f"{tell}\n{MAIN}"), PLUGINS="mcp") as (client, running):
        assert client.post("/translate", json=GERMAN).status_code == 200
        running.send_signal(signal.SIGTERM)
        assert running.wait(300) == 0
        assert int(running.stderr.read().split()[-1]) < 25_000, "it was 60,000"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_exits_with_0_at_once(number):
    with process(MODELS=str(bundles() / "toy-de-en")) as (_, running):
        running.send_signal(number)
        assert running.wait(300) == 0


def test_server_runs_on_the_loop_of_asyncio_where_uvloop_is_installed(monkeypatch):
    uvloop = types.ModuleType("uvloop")
    uvloop.new_event_loop = lambda: pytest.fail("sockets of uvloop can't be duplicated")
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    factory = configure(FastAPI(), ServerSettings()).get_loop_factory()
    with closing(factory()) as loop:
        assert isinstance(loop, asyncio.BaseEventLoop)
