"""Metrics of streams, answers, languages, keys, files and refusals, as /metrics shows them."""

import hashlib
import sys
import threading
from types import SimpleNamespace

import pytest

from engine.api import DeviceFigures, ExecutorFailed
from engine.repository.figures import device_figures
from server.observing import metrics
from server.observing.figures import Sources
from server.observing.metrics import Metrics
from tests.server.test_server_process import GERMAN
from tests.support.served import LONG, server, until, value

KEYS = ("first-key-of-the-tests", "second-key-of-the-tests")
IDS = [hashlib.sha256(key.encode()).hexdigest()[:8] for key in KEYS]
TEXTS = ["Das ist gut.", "Guten Morgen!"]


@pytest.fixture(scope="module")
def place():
    """A server with two keys, the first of which the client sends."""
    with server(api_keys=",".join(KEYS), metrics_by_key=True) as (client, house, _):
        client.headers["X-API-Key"] = KEYS[0]
        yield client, house


@pytest.fixture
def grown(place):
    """A function that returns the growth of a metric since the beginning of the test."""
    text = place[0].get("/metrics").text

    class Before:
        def get(self, _):
            return self

    before = Before()
    before.text = text

    def growth(name, **labels):
        return value(place[0], name, **labels) - value(before, name, **labels)

    return growth


def test_a_stream_shows_the_time_to_its_first_words_and_between_the_parts(place, grown):
    client = place[0]
    with client.stream("POST", "/translate", json=GERMAN | LONG | {"stream": True}) as answer:
        parts = sum(line == "event: partial" for line in answer.iter_lines())
    assert parts > 1
    # the request is recorded after the end of its stream is sent
    until(lambda: grown("convoy_request_duration_seconds_count", route="/translate") == 1)
    assert grown("convoy_time_to_first_token_seconds_count", model="toy-de-en") == 1
    # parts that come faster than the server sends them are sent as one
    assert grown("convoy_inter_token_latency_seconds_count", model="toy-de-en") >= parts - 1
    spent = grown("convoy_time_to_first_token_seconds_sum") + grown("convoy_inter_token_latency_seconds_sum")
    assert 0 < spent <= grown("convoy_request_duration_seconds_sum", route="/translate")


def test_a_plain_answer_has_no_time_to_first_words(place, grown):
    place[0].post("/translate", json=GERMAN)
    assert grown("convoy_time_to_first_token_seconds_count") == 0


def test_characters_and_requests_are_counted_by_languages(place, grown):
    client = place[0]
    assert client.post("/translate", json=GERMAN | {"q": TEXTS}).status_code == 200
    assert client.post("/translate", json={"q": "Good.", "source": "en", "target": "de"}).status_code == 200
    german, english = {"source": "de", "target": "en"}, {"source": "en", "target": "de"}
    assert grown("convoy_language_requests_total", **german) == 1
    assert grown("convoy_language_characters_total", **german) == len("".join(TEXTS))
    assert grown("convoy_language_requests_total", **english) == 1
    assert grown("convoy_language_characters_total", **english) == len("Good.")


def test_detected_languages_are_the_labels_of_a_request_with_auto(place, grown):
    text = "Das ist ein sehr schönes Haus."
    assert place[0].post("/translate", json=GERMAN | {"q": text, "source": "auto"}).status_code == 200
    assert grown("convoy_language_characters_total", source="de", target="en") == len(text)


def test_lengths_and_ends_of_answers_agree_with_the_answer(place, grown):
    wanted = GERMAN | {"q": TEXTS, "scores": True, "max_length": 3, "max_length_b": 3}
    scores = place[0].post("/translate", json=wanted).json()["scores"]
    source = sum(one["sourceTokens"] for one in scores)
    assert grown("convoy_request_source_tokens_sum", model="toy-de-en") == source
    assert grown("convoy_request_source_tokens_count", model="toy-de-en") == 1
    assert grown("convoy_request_target_tokens_sum", model="toy-de-en") == 2 * 3
    assert grown("convoy_texts_finished_total", model="toy-de-en", reason="length") == 2
    assert grown("convoy_texts_finished_total", model="toy-de-en", reason="stop") == 0


def test_a_summary_of_the_beginning_of_a_text_counts_as_truncated(place, grown):
    text = "We prove a theorem. It is new." * 20
    assert place[0].post("/summarize", json={"q": text, "truncate": True}).json()["truncated"]
    assert grown("convoy_texts_truncated_total", model="toy-title") == 1


def test_keys_have_requests_and_characters_of_their_own(place, grown):
    client = place[0]
    other = {"X-API-Key": KEYS[1]}
    client.post("/translate", json=GERMAN)
    client.post("/translate", json=GERMAN | {"q": TEXTS}, headers=other)
    client.post("/translate", json=GERMAN | {"target": "zz"}, headers=other)
    client.get("/health")
    client.post("/translate", json=GERMAN, headers={"X-API-Key": "not-a-key-of-this-server"})
    assert grown("convoy_key_requests_total", key=IDS[0]) == 1
    assert grown("convoy_key_characters_total", key=IDS[0]) == len(GERMAN["q"])
    assert grown("convoy_key_requests_total", key=IDS[1], outcome="ok") == 1
    assert grown("convoy_key_requests_total", key=IDS[1], outcome="invalid") == 1
    assert grown("convoy_key_characters_total", key=IDS[1]) == len("".join(TEXTS)), "a failed one is free"
    assert grown("convoy_key_requests_total") == 3


def test_keys_are_counted_only_on_request():
    with server(api_keys=KEYS[0]) as (client, _, _):
        assert client.post("/translate", json=GERMAN, headers={"X-API-Key": KEYS[0]}).status_code == 200
        assert IDS[0] not in client.get("/metrics").text


def test_a_file_has_a_time_a_format_and_an_outcome(place, grown, monkeypatch):
    def send():
        file = {"file": ("brief.txt", b"Das ist gut.\n")}
        return place[0].post("/translate_file", files=file, data={"source": "de", "target": "en"}).status_code

    assert send() == 200
    assert grown("convoy_file_duration_seconds_count", format="txt", outcome="ok") == 1
    assert grown("convoy_file_duration_seconds_sum", format="txt", outcome="ok") > 0
    assert grown("convoy_files_running") == 0

    async def fail(*_):
        raise ExecutorFailed("no device")

    monkeypatch.setattr("server.files.documents.run_segments", fail)
    assert send() == 500
    assert grown("convoy_file_duration_seconds_count", format="txt", outcome="failed") == 1


def test_running_and_waiting_files_are_counted_while_they_run_and_wait(place, monkeypatch):
    client, _ = place
    go, began = threading.Event(), threading.Event()

    async def slow(*_):
        began.set()
        while not go.is_set():
            await asyncio_sleep(0.01)
        raise ExecutorFailed("no device")

    from asyncio import sleep as asyncio_sleep

    monkeypatch.setattr("server.files.documents.run_segments", slow)
    monkeypatch.setattr("engine.schedule.places.Places.waiting", 3)
    file, form = {"file": ("brief.txt", b"Das ist gut.\n")}, {"source": "de", "target": "en"}
    sending = threading.Thread(target=lambda: client.post("/translate_file", files=file, data=form))
    sending.start()
    try:
        assert began.wait(300)
        assert value(client, "convoy_files_running") == 1
        assert value(client, "convoy_files_waiting") == 2 * 3, "of small and of large files"
    finally:
        go.set()
        sending.join(300)
    until(lambda: value(client, "convoy_files_running") == 0)


def test_a_refusal_names_its_model_and_route(place, grown):
    client = place[0]
    late = client.post("/translate", json=GERMAN | LONG, headers={"X-Request-Timeout": "0.001"})
    assert late.status_code in (503, 504)
    unknown = client.post("/v2/models/toy-de-en/infer", json={"inputs": []})
    assert unknown.status_code == 400
    assert grown("convoy_rejected_total", route="/translate", model="toy-de-en") == 1
    assert grown("convoy_rejected_total", route="/v2/models/{model}/infer", model="none") == 1


def test_build_info_names_the_version_that_version_answers(place):
    client = place[0]
    version = client.get("/version").json()["version"]
    assert value(client, "convoy_build_info", version=version) == 1


def test_pairs_of_languages_and_keys_beyond_a_limit_are_counted_together(monkeypatch):
    monkeypatch.setattr(metrics, "MOST_LABELS", 2)
    figures = Metrics()
    for number in range(5):
        figures.record_key(f"key-{number}", "ok", 10)
        figures._answers._pair(f"l{number}", "en")[0].inc()
    text = figures.text().decode()
    assert 'convoy_key_characters_total{key="key-1"} 10.0' in text
    assert 'convoy_key_characters_total{key="other"} 30.0' in text
    assert 'convoy_language_requests_total{source="other",target="other"} 3.0' in text
    assert "key-2" not in text
    assert "l2" not in text


def driver(monkeypatch, **queries):
    """Replace the queries of the driver, each by its answer or error."""

    def query(answer):
        def ask(_):
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=LookupError))
    for name, answer in queries.items():
        monkeypatch.setattr(torch.cuda, name, query(answer))
    figures = Metrics()
    figures.watch(Sources(ready=lambda: True, devices=lambda: device_figures(["cuda:1", "cpu"])))
    return figures.text().decode()


def test_gpus_have_their_memory_use_and_power(monkeypatch):
    text = driver(monkeypatch, mem_get_info=(10, 80), utilization=37, power_draw=251_300)
    for line in ("memory_used_bytes{D} 70.0", "utilization_ratio{D} 0.37", "power_watts{D} 251.3"):
        assert f"convoy_gpu_{line}\n".replace("{D}", '{device="cuda:1"}') in text
    assert 'device="cpu"' not in text


@pytest.mark.parametrize("error", [LookupError("not supported by MIG"), RuntimeError("no driver")])
def test_figures_that_the_driver_refuses_are_absent(monkeypatch, error):
    text = driver(monkeypatch, mem_get_info=(10, 80), utilization=error, power_draw=251_300)
    assert "convoy_gpu_utilization_ratio{" not in text
    assert 'convoy_gpu_power_watts{device="cuda:1"} 251.3' in text


def test_memory_of_gpus_needs_no_library_of_the_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10, 80))
    assert device_figures(["cuda:0"]) == {"cuda:0": DeviceFigures(70, 80)}
