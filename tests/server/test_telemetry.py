"""Request ids, outcomes, JSON logs and traces, as they leave the process."""

import gzip
import hashlib
import json
import logging
import re
import socket
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ConfigError, ExecutorFailed
from server.observing.context import ID_HEADER, context_of
from server.observing.logs import LINE_FORMAT, Lines
from server.observing.tracing import Tracing
from tests.server.test_server_process import ENDLESS, GERMAN, process, raw_request
from tests.support.served import busy, draining, server, until

PATIENT = {"X-Request-Timeout": "300"}  # so that no slow machine refuses it as late
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def place():
    with server() as found:
        yield found


def outcomes(client):
    """Return the number of requests to /translate by model and outcome."""
    found = re.findall(
        r'convoy_request_duration_seconds_count\{model="(.*?)",outcome="(.*?)",route="/translate"\} (.*)',
        client.get("/metrics").text,
    )
    return {(model, outcome): float(value) for model, outcome, value in found}


# request ids


def test_a_request_id_comes_back_and_without_one_there_is_a_new_one(place):
    client = place[0]
    for answer in (
        client.post("/translate", json=GERMAN, headers={"X-Request-ID": "shop-17/a"}),
        client.get("/nowhere", headers={"X-Request-ID": "shop-17/a"}),
        client.options("/translate", headers={"X-Request-ID": "shop-17/a"}),
    ):
        assert answer.headers.get_list("x-request-id") == ["shop-17/a"]
    first, second = (client.get("/health").headers["x-request-id"] for _ in range(2))
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert first != second


@given(st.binary(max_size=200))
def test_no_request_id_can_forge_a_line_of_a_log_or_a_header(given_id):
    id_ = context_of({"type": "http", "headers": [(ID_HEADER.encode(), given_id)]}).id
    assert re.fullmatch(r"[!-~]{1,128}", id_)
    assert '"' not in id_


@given(st.text(max_size=50))
def test_no_text_of_a_client_can_forge_a_line_of_the_log(text):
    try:
        int(f"x{text}")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "%s failed", (text,), sys.exc_info())
    first, *rest = Lines(LINE_FORMAT).format(record).splitlines()
    assert re.match(r"\d{4}-", first)
    assert not [line for line in rest if not line.startswith("  ")]


def test_path_of_a_failing_request_is_escaped_in_the_log(place, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr("server.contracts.libretranslate.files.download_response", fail)
    monkeypatch.setattr("server.files.store.Store.get", fail)
    assert place[0].get("/download_file/secret%0A2026-01-01%20ERROR").status_code == 500
    (line,) = [record.getMessage() for record in caplog.records if record.exc_info]
    assert line == "GET /download_file/... failed"


# outcomes


def test_each_way_a_request_can_end_is_an_outcome_of_its_own(place, monkeypatch):
    client, house, _ = place
    before = outcomes(client)
    client.post("/translate", json=GERMAN)
    client.post("/translate", json=GERMAN | {"source": "auto"})
    client.post("/translate", json=GERMAN | {"target": "zz"})
    # the turn that answered has ended: an engine without work refuses nothing as late
    until(lambda: busy(house.service) == (0, 0))
    time.sleep(0.1)
    client.post("/translate", json=ENDLESS, headers={"X-Request-Timeout": "0.5"})
    until(lambda: busy(house.service) == (0, 0))
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as leaving:
        leaving.sendall(raw_request(ENDLESS, PATIENT))
        until(lambda: busy(house.service)[0] > 0)

    async def fail(*_):
        raise ExecutorFailed("no device")

    with monkeypatch.context() as patch:
        patch.setattr(house.service.__class__, "run", fail)
        client.post("/translate", json=GERMAN)
    with draining(house):
        client.post("/translate", json=GERMAN)
    wanted = {
        ("toy-de-en", "ok"): 2,
        ("none", "invalid"): 1,
        ("toy-de-en", "late"): 1,
        ("toy-de-en", "cancelled"): 1,
        ("toy-de-en", "failed"): 1,
    }

    def grown():
        return {
            key: count - before.get(key, 0)
            for key, count in outcomes(client).items()
            if count > before.get(key, 0)
        }

    until(lambda: sum(grown().values()) == 6)
    assert grown() == wanted
    # the gate refuses before any route is known
    assert 'outcome="rejected",route="other"' in client.get("/metrics").text


def test_a_client_that_leaves_a_stream_is_a_cancelled_one(place):
    client = place[0]
    gone = ("toy-de-en", "cancelled")
    before = outcomes(client).get(gone, 0)
    for count in range(1, 11):  # in any state of the stream
        with client.stream("POST", "/translate", json=ENDLESS | {"stream": True}, headers=PATIENT) as answer:
            assert answer.status_code == 200
            next(answer.iter_lines())
        until(lambda: outcomes(client).get(gone, 0) == before + count)  # noqa: B023


def test_no_request_makes_a_new_series_of_its_own(place):
    client = place[0]

    def series():
        return {line.rpartition(" ")[0] for line in client.get("/metrics").text.splitlines()}

    def odd(number):
        client.request(f"BREW{number}", f"/odd/{number}")
        client.get(f"/v2/models/m{number}")
        client.post(f"/models/m{number}/reload")
        client.post("/translate", json=GERMAN | {"model": f"m{number}", "source": f"x{number}"})
        client.get("/health", headers={"X-Request-ID": f"id-{number}", "User-Agent": f"agent-{number}"})

    odd(0)
    odd(1)
    before = series()
    for number in range(2, 20):
        odd(number)
    assert series() == before


def test_token_counters_agree_with_the_answers(place):
    client = place[0]

    def tokens(kind):
        text = client.get("/metrics").text
        (found,) = re.findall(rf'convoy_tokens_total\{{kind="{kind}",model="toy-en-de"\}} (.*)', text)
        return float(found)

    before = tokens("source"), tokens("target")
    answer = client.post(
        "/translate", json={"q": "That is good.", "source": "en", "target": "de", "scores": True}
    )
    scores = answer.json()["scores"]
    until(lambda: tokens("target") > before[1])
    assert tokens("source") - before[0] == scores["sourceTokens"]
    assert tokens("target") - before[1] == len(scores["tokenScores"])


# logs


SECRET_KEY = "a-key-that-is-very-secret-indeed"


def lines_of(send, **settings):
    """Return the JSON log lines of a server during the requests of `send`, and its whole output."""
    with process(LOG_FORMAT="json", ACCESS_LOG="true", **settings) as (client, running):
        send(client)
        running.terminate()
        written = running.communicate(timeout=600)[1]
    return [json.loads(line) for line in written.splitlines()], written


def test_json_logs_are_an_object_a_line_and_name_the_request():
    body = json.dumps(GERMAN | {"q": "Das ist geheim."}).encode()
    answers = []

    def send(client):
        headers = {"X-Request-ID": "order-66", "Content-Type": "application/json", "X-API-Key": SECRET_KEY}
        headers["traceparent"] = PARENT
        answers.append(client.post("/translate", content=body, headers=headers))
        client.head("/health?q=geheim", headers={"X-Request-ID": "order-67"})
        client.get("/download_file/geheim.txt", headers={"X-Request-ID": "order-68", "X-API-Key": SECRET_KEY})
        client.post("/translate", json=GERMAN, headers={"X-Request-ID": "order-69", "X-API-Key": "geheim"})

    lines, written = lines_of(send, LOG_LEVEL="debug", API_KEYS=SECRET_KEY)
    assert all({"time", "level", "process", "pid", "logger", "message"} <= set(line) for line in lines)
    assert {line["process"] for line in lines} == {"server"}
    assert len({line["pid"] for line in lines}) == 1
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"]) for line in lines)
    logged = [line for line in lines if line["logger"] == "convoy.access" and "order" in line["request_id"]]
    assert [line["request_id"] for line in logged] == ["order-66", "order-67", "order-68", "order-69"]
    access, head, file, refused = logged
    assert (access["trace_id"], "trace_id" in head) == (PARENT.split("-")[1], False)
    assert (access["method"], access["path"], access["status"]) == ("POST", "/translate", 200)
    assert (access["client"], access["outcome"], access["model"]) == ("127.0.0.1", "ok", "toy-de-en")
    assert (access["received"], access["sent"]) == (len(body), len(answers[0].content))
    assert access["key"] == hashlib.sha256(SECRET_KEY.encode()).hexdigest()[:8], (
        "as /metrics and limits know it"
    )
    assert 0.0005 < access["seconds"] < 30
    assert (head["method"], head["path"], head["key"]) == ("HEAD", "/health", "-")
    assert (file["path"], file["status"]) == ("/download_file/...", 404)
    assert (refused["status"], refused["key"], refused["outcome"]) == (403, "-", "invalid")
    assert "geheim" not in written
    assert SECRET_KEY not in written


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_request_forges_a_line_of_the_log(log_format):
    forged = "/health%0A2026-01-01%20INFO%20convoy.access:%20forged%0D%0A%1B[31m%E2%80%A8%00%22%20200"
    with process(LOG_FORMAT=log_format, ACCESS_LOG="true") as (client, running):
        client.get(forged)
        client.get("/health", headers={"X-Request-ID": "id\tx", "X-Forwarded-For": "1.2.3.4\tforged"})
        running.terminate()
        written = running.communicate(timeout=600)[1]
    found = [line for line in written.split("\n") if "convoy.access" in line and "/ready" not in line]
    assert len(found) == 2
    assert forged.replace("[", "%5B").replace(":", "%3A") in found[0]
    assert all(line.isprintable() for line in found)


def test_text_logs_name_the_request_too():
    with process(ACCESS_LOG="true") as (client, running):
        client.get("/health", headers={"X-Request-ID": "order-66"})
        running.terminate()
        written = running.communicate(timeout=600)[1]
    line = r'server\[\d+\] INFO convoy\.access \[order-66\]: 127\.0\.0\.1 "GET /health" 200 ok '
    assert re.search(line + r"received=0 sent=15 seconds=0\.\d{6} key=- model=none$", written, re.MULTILINE)
    assert "uvicorn.access" not in written


# traces


@contextmanager
def collector():
    """An OTLP collector over HTTP: (its address, the spans it has been sent, the names of their services)."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans, names = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                known = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
                names.append(known["service.name"])
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}", spans, names
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def test_traces_show_where_the_time_went_and_go_on_with_the_callers_trace():
    pytest.importorskip("opentelemetry.proto", reason="needs the extra otel")
    with collector() as (address, spans, _):
        with server(traces=address) as (client, _, _):
            headers = {"traceparent": PARENT, "X-Request-ID": "order-66"}
            client.post("/translate", json=GERMAN, headers=headers)
            client.post("/translate", json={})
        # closing the server has sent the remaining spans
        (root,) = [span for span in spans if span.trace_id.hex() == PARENT.split("-")[1] and span.kind == 2]
        (refused,) = [span for span in spans if span.kind == 2 and span != root and "POST" in span.name]
        stages = [span for span in spans if span.parent_span_id == root.span_id]
        known = {entry.key: entry.value for entry in root.attributes}
    assert refused.status.code == 0, "what a client does wrong is no failure of the server's"
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    assert root.name == "POST /translate"
    assert known["convoy.request_id"].string_value == "order-66"
    assert known["http.response.status_code"].int_value == 200
    assert [span.name for span in stages] == ["queue", "encode", "decode"]
    moments = [root.start_time_unix_nano]
    for span in stages:
        moments += [span.start_time_unix_nano, span.end_time_unix_nano]
    moments.append(root.end_time_unix_nano)
    assert moments[2] == moments[3]
    assert moments[4] == moments[5]
    assert moments == sorted(moments)


def test_traces_without_the_extra_name_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'convoy-server\[otel\]'"):
        Tracing.to("http://localhost:4318")


def traced(monkeypatch, **variables):
    """Return the service names and spans of a server with OpenTelemetry's variables and one request."""
    pytest.importorskip("opentelemetry.proto", reason="needs the extra otel")
    with collector() as (address, spans, names):
        for name, text in variables.items():
            monkeypatch.setenv(name, text.replace("ADDRESS", address))
        with server() as (client, _, _):
            client.post("/translate", json=GERMAN)
    return set(names), spans


def test_opentelemetrys_own_variables_name_the_collector_and_the_service(monkeypatch):
    names, spans = traced(
        monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT="ADDRESS", OTEL_SERVICE_NAME="shop-translations"
    )
    assert names == {"shop-translations"}
    assert "POST /translate" in {span.name for span in spans}


def test_an_endpoint_of_traces_alone_is_used_as_it_is(monkeypatch):
    names, spans = traced(monkeypatch, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="ADDRESS/v1/traces")
    assert names == {"convoy"}
    assert "POST /translate" in {span.name for span in spans}


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "ADDRESS", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "ADDRESS", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "ADDRESS", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_variables_that_turn_traces_off_make_no_tracing(monkeypatch, variables):
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert Tracing.configured("") is None


def test_a_collector_in_a_variable_without_the_extra_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert Tracing.configured("") is None
    assert "pip install 'convoy-server[otel]'" in caplog.text


def test_log_lines_name_the_trace_of_the_callers_header_or_none():
    def trace_of(header):
        return context_of({"type": "http", "headers": [(b"traceparent", header.encode())]}).trace_id

    trace = PARENT.split("-")[1]
    assert trace_of(PARENT) == trace
    for forged in (
        "",
        "x",
        PARENT + "\n",
        PARENT.replace(trace, "0" * 32),
        PARENT.upper(),
        "ff" + PARENT[2:],
    ):
        assert trace_of(forged) == ""
