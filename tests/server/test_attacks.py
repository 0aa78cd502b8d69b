"""No attack delays other clients: attacks go to one running server, one after the other, while other clients
request the server's health, the translation of a sentence, and in turn each kind of work that has its own
way through the server: a sentence of an unknown language, a page, a long text and a form.

The longest waits decide, in one attempt. Each wait excludes time that the server did not cause: time in which
its threads were ready to run while other processes had the cores, and the lateness of the machine itself.
A wait under attack counts at most the processor time of the server's busiest thread meanwhile.
"""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import grpc
import httpx
import pytest

from server.grpc.bridge import STATUS_CODES
from tests.server.test_server_process import GERMAN, free_port, process
from tests.support.attacks import ATTACKS, CALLS, LASTING, VICTIMS, file
from tests.support.served import until
from tests.support.thorough import THOROUGH
from tests.support.timing import MachineLag, Starved, busiest_seconds, slowness, thread_seconds

HEALTH = 0.1  # seconds, on a processor as fast as a Zen 4
SLOWER = 2.0  # allowed factor of a sentence's usual time
SHARED = 3.0  # the same, while the attacker's text is decoded too
LONGEST = 5.0  # seconds of the other kinds, on such a processor
MORE = 1.3  # allowed factor of the memory before the attacks, some seconds after them
PATIENCE = 10.0  # seconds until an attacker disconnects; most attacks are answered at once
# seconds until an attacker disconnects whose document is decoded all the time
SHORT = 4.0 if THOROUGH else 0.7
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


@dataclass
class Times:
    """Seconds that other clients waited; `busy` caps sentences by the server's busiest thread."""

    health: list[float] = field(default_factory=list)
    sentence: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    others: dict[str, float] = field(default_factory=dict)  # longest wait of each other kind


class Others:
    """Three clients that send requests to a server all the time."""

    def __init__(self, url, *pids):
        self._url, self._over, self._starved = url, threading.Event(), Starved(*pids)
        self._pids, self._times, self._asking, self.faults = pids, Times(), {}, []
        self._threads = [
            threading.Thread(target=self._ask, args=one)
            for one in (("health", "GET", "/health", None), ("sentence", "POST", "/translate", GERMAN))
        ]
        self._threads.append(threading.Thread(target=self._send_in_turn))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, name, method, path, values):
        with httpx.Client(base_url=self._url, timeout=60, verify=False) as client:
            while not self._over.is_set():
                times = self._asking[name] = self._times
                before, used, began = self._starved.read(), thread_seconds(*self._pids), time.perf_counter()
                answer = client.request(method, path, json=values)
                seconds = time.perf_counter() - began - self._starved.since(before)
                busy = busiest_seconds(used, thread_seconds(*self._pids))
                busy = min(seconds, busy) if seconds < PATIENCE else seconds
                if name == "sentence":
                    times.busy.append(max(0.0, busy))
                getattr(times, name).append(max(0.0, busy if name == "health" else seconds))
                if answer.status_code != 200:
                    self.faults.append(answer.text)
                time.sleep(0.01)

    def _send_in_turn(self):
        with httpx.Client(base_url=self._url, timeout=60, verify=False) as client:
            for name, request in cycle(VICTIMS.items()):
                if self._over.is_set():
                    return
                times, before, began = self._times, self._starved.read(), time.perf_counter()
                answer = client.post("/translate", **request)
                seconds = time.perf_counter() - began - self._starved.since(before)
                times.others[name] = max(seconds, times.others.get(name, 0.0))
                if answer.status_code != 200:
                    self.faults.append(f"{name}: {answer.text}")
                time.sleep(0.01)

    @contextmanager
    def times(self):
        """Collect the waits of requests that are sent within the context."""
        self._times = times = Times()
        yield times
        until(lambda: min(len(times.health), len(times.sentence), len(times.others)) >= 3, 60)
        self._times = Times()
        until(lambda: all(asked is not times for asked in self._asking.values()), 60)


@pytest.fixture(scope="module")
def place():
    port = free_port()
    plugins = "deeplx,immersive,mtran,google,apertium,mcp"
    with process(PLUGINS=plugins, GRPC_PORT=str(port)) as (client, running):
        running.grpc_port = port
        client.post("/detect", json={"q": "Das ist gut."})  # its model stays
        client.post("/translate", json=GERMAN)
        running.idle = resident(running)
        with Others(str(client.base_url), running.pid) as others:
            yield client, running, others


def resident(running):
    """Bytes of a process in memory."""
    statm = Path(f"/proc/{running.pid}/statm").read_text("utf-8")
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


FILES = {
    "aliases in YAML": file(
        "a.yaml", b"a: &a {x: y}\n" + b"".join(b"b%d: {<<: *a}\n" % n for n in range(40_000))
    ),
    "anchors in YAML": file("a.yaml", b"a: " + b"&a " * 200_000 + b"x"),
    "lines of a message in PO": file("a.po", b'msgid ""\n' + b'"a"\n' * 400_000 + b'msgstr ""\n'),
    "escapes in PO": file("a.po", b'msgid "' + rb"\\" * 3_000_000 + b'"\nmsgstr ""\n'),
    "groups in groups of XLIFF": file("a.xliff", b'<xliff version="1.2"><file><body>' + b"<group>" * 200_000),
    "keys in JSON": file("a.json", b"{" + b",".join(b'"%d":"x y"' % n for n in range(90_000)) + b"}"),
    "cues": file("a.vtt", b"WEBVTT\n\n" + b"00:00.000 --> 00:01.000\nx y\n\n" * 90_000),
    "objects of a PDF": file("a.pdf", b"%PDF-1.4\n" + b"1 0 obj\n<<" * 300_000),
}
if THOROUGH:  # all go the same way through the processes for files
    ATTACKS |= FILES
    LASTING |= set(FILES)


def slowed(others, send):
    """Send an attack; return a description of a wait that was too long, or "".

    send: function that sends the attack; returns the HTTP status and text of its answer.
    """
    with others.times() as usual:
        time.sleep(0.1)
    others.faults.clear()
    answers, done = [], threading.Event()

    def attack():
        with suppress(httpx.TransportError):
            answers.append(send())
        done.set()

    with MachineLag() as lag, others.times() as times:
        threading.Thread(target=attack, daemon=True).start()
        assert done.wait(2 * PATIENCE), "neither answered nor left"
    faults = [text for status, text in answers if status not in (200, 400, 413, 414, 429, 503, 504)]
    assert not faults, faults
    with others.times() as after:
        pass
    assert not others.faults, others.faults[:3]
    longest, bound = max(times.health), HEALTH * slowness()
    if longest > bound + lag.longest:
        return f"/health took {longest:.2f} s where the machine was {lag.longest:.3f} s late"
    usual_sentence = nearly_longest(usual.sentence + after.sentence)
    decoded = not answers or answers[0][0] in (200, 504)
    allowed = (SHARED if decoded else SLOWER) * usual_sentence + bound + lag.longest
    if late := {name: s for name, s in times.others.items() if s > LONGEST * slowness() + lag.longest}:
        return f"other kinds took {late} s"
    tenth, worst = nearly_longest(times.busy), max(times.busy)
    if tenth > allowed:
        return f"a tenth of the sentences took {tenth:.3f} s or more, {usual_sentence:.3f} s else"
    return f"a sentence took {worst:.3f} s, {usual_sentence:.3f} s else" if worst > 2 * allowed else ""


def nearly_longest(seconds):
    """Return the 90th percentile."""
    return sorted(seconds)[round(0.9 * (len(seconds) - 1))]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_delays_no_other_client(place, name):
    client, _, others = place
    assert not slowed(others, sender(client, name))


def sender(client, name):
    """Return a function that sends an attack. The request is made before the measurement."""
    request = ATTACKS[name](client)
    patience = SHORT if name in LASTING else PATIENCE
    request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), patience)

    def send():
        with httpx.Client(base_url=client.base_url, verify=False) as own:
            answer = own.send(request)
            return answer.status_code, answer.text

    return send


@pytest.mark.parametrize("name", CALLS)
def test_attack_by_grpc_delays_no_other_client(place, name):
    _, running, others = place
    messages = CALLS[name]()
    statuses = {code: status for status, code in reversed(STATUS_CODES.items())}

    def send():
        with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
            try:
                if len(messages) == 1:
                    channel.unary_unary(INFER)(messages[0], timeout=PATIENCE)
                else:
                    list(channel.stream_stream(STREAM)(iter(messages), timeout=PATIENCE))
            except grpc.RpcError as error:
                if "Deadline Exceeded" in (error.details() or ""):  # its own, of whatever code it is called
                    return 504, ""
                return statuses.get(error.code(), 500), error.details()
            return 200, ""

    assert not slowed(others, send)


def test_body_in_tiny_chunks_delays_no_other_client(place):
    client, _, others = place
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    def send():
        with socket.create_connection((client.base_url.host, client.base_url.port)) as sender:
            with suppress(ConnectionError):  # the server may close the connection early
                sender.sendall(head.encode() + b"1\r\na\r\n" * 1_000_000)
            return 400, ""

    assert not slowed(others, send)


def test_silent_connections_and_abandoned_files_delay_no_client(place):
    client, _, others = place
    address = (client.base_url.host, client.base_url.port)

    with MachineLag() as lag, others.times() as times, ExitStack() as silent:
        for _ in range(100):
            silent.enter_context(socket.create_connection(address))
        for _ in range(6):
            with socket.create_connection(address) as gone:
                body = b"--x\r\n" + b"-a" * 10_000
                head = f"POST /translate_file HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                kind = "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
                gone.sendall(f"{head}{kind}".encode() + body)
        time.sleep(0.3)
    assert max(times.health) < HEALTH + lag.longest


def test_memory_returns_and_the_process_ends_on_sigterm(place):
    client, running, others = place
    most = resident(running)
    assert most < 700 << 20, f"{most >> 20} MiB"
    until(lambda: resident(running) < MORE * running.idle, 60)
    lag = next(x for x in client.get("/metrics").text.splitlines() if x.startswith("convoy_event_loop_lag"))
    print(lag, "MiB:", running.idle >> 20, most >> 20, resident(running) >> 20)
    others.stop()
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0
