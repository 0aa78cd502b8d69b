"""No attack delays other clients: attacks go to one running server, one after the other, while other clients
request the server's health, the translation of a sentence, and in turn each kind of work that has its own
way through the server: a sentence of an unknown language, a page, a long text and a form.

The processor time of the event loop's callbacks decides, and whether others wait for seconds. An attack that
delayed others is repeated, and must delay them in each of three attempts. Each wait excludes time that the
server did not cause: time in which its threads were ready to run while other processes had the cores, and the
lateness of the machine itself. A wait for an answer that needs little work counts at most the processor time
of the server's busiest thread meanwhile.
"""

import os
import re
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
from tests.server.test_server_process import GERMAN, MAIN, free_port, process
from tests.support.attack_files import FILES
from tests.support.attacks import ATTACKS, CALLS, LASTING, VICTIMS
from tests.support.callbacks import LongestCallback
from tests.support.raw_attacks import FLOODS, HEADS, PREFACE
from tests.support.served import until, value
from tests.support.sockets import exchange
from tests.support.thorough import THOROUGH
from tests.support.timing import MachineLag, Starved, busiest_seconds, slowness, thread_seconds, thrice

# bounds in seconds of a processor as fast as a Zen 4; requests that stopped a server took 4 to 40 s
CALLBACK = 0.25  # processor time of a callback of the event loop
HEALTH = 0.5  # wait for the server's health
SENTENCE = 1.0  # wait for a sentence, in addition to USUAL times its usual time
USUAL = 10.0
LONGEST = 8.0  # wait for the other kinds
MORE = 1.3  # allowed factor of the memory before the attacks, some seconds after them
PATIENCE = 10.0  # seconds until an attacker disconnects; most attacks are answered at once
SILENCE = 0.2  # seconds without bytes after which a client that sends frames disconnects
HANG = 300.0  # seconds after which a client gives up on a server that never answers
# seconds until an attacker disconnects whose document is decoded all the time
SHORT = 4.0 if THOROUGH else 0.7
TOGETHER = 1 if THOROUGH else 4  # attacks that are measured together
ALLOWED = (200, 400, 413, 414, 429, 503, 504)
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


@dataclass
class Times:
    """Seconds that other clients waited; `busy` caps sentences by the server's busiest thread.

    callback: processor time of the longest callback of the event loop; 0 if it is not measured.
    """

    health: list[float] = field(default_factory=list)
    sentence: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    others: dict[str, float] = field(default_factory=dict)  # longest wait of each other kind
    callback: float = 0.0


class Others:
    """Three clients that send requests to a server all the time."""

    def __init__(self, url, *pids, longest=None):
        """longest: `LongestCallback` of the server; None: its callbacks are not measured."""
        self._longest = longest
        self._url, self._over, self._starved = url, threading.Event(), Starved(*pids)
        self._pids, self._times, self._asking, self.faults = pids, Times(), {}, []
        self._rest = []
        self._threads = [
            threading.Thread(target=self._ask, args=one)
            for one in (("health", "GET", "/health", None), ("sentence", "POST", "/translate", GERMAN))
        ]
        self._threads.append(threading.Thread(target=self._send_in_turn))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.rest()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, name, method, path, values):
        with httpx.Client(base_url=self._url, timeout=HANG, verify=False) as client:
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
        with httpx.Client(base_url=self._url, timeout=HANG, verify=False) as client:
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

    def rest(self):
        """Return seconds of sentences without an attack: some from now, and those of the last call."""
        with self.times(kinds=0) as times:
            pass
        before, self._rest = self._rest, times.sentence
        return before + times.sentence

    @contextmanager
    def times(self, kinds=2):
        """Collect the waits of requests that are sent within the context.

        kinds: number of the other kinds to wait for. One of any two in turn is a page or a long text.
        """
        self._times = times = Times()
        if self._longest:
            self._longest.seconds = 0.0
        yield times
        until(lambda: min(len(times.health), len(times.sentence)) >= 3 and len(times.others) >= kinds, HANG)
        if self._longest:
            times.callback = self._longest.seconds
        self._times = Times()
        until(lambda: all(asked is not times for asked in self._asking.values()), HANG)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    port, path = free_port(), tmp_path_factory.mktemp("callbacks") / "longest"
    longest = LongestCallback(path)
    measured = (
        f"from pathlib import Path; from tests.support.callbacks import LongestCallback\n"
        f"LongestCallback(Path({str(path)!r})).record()\n{MAIN}"
    )
    plugins = "deeplx,immersive,mtran,google,apertium,nllb,xunity,mcp,ollama"
    with process(("-c", measured), PLUGINS=plugins, GRPC_PORT=str(port)) as (client, running):
        running.grpc_port = port
        client.post("/detect", json={"q": "Das ist gut."})  # its model stays
        client.post("/translate", json=GERMAN)
        running.idle = resident(running)
        with Others(str(client.base_url), running.pid, longest=longest) as others:
            yield client, running, others


def resident(running):
    """Bytes of a process in memory."""
    statm = Path(f"/proc/{running.pid}/statm").read_text("utf-8")
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


if THOROUGH:  # all go the same way through the processes for files
    ATTACKS |= FILES
    LASTING |= set(FILES)


def slowed(others, send):
    """Send an attack; return a description of what was too long, or "".

    send: function that sends the attack; returns the HTTP status and text of its answer.
    """
    others.faults.clear()
    answers, done = [], threading.Event()

    def attack():
        with suppress(httpx.TransportError):
            answers.append(send())
        done.set()

    with MachineLag() as lag, others.times() as times:
        threading.Thread(target=attack, daemon=True).start()
        assert done.wait(HANG), "neither answered nor left"
    faults = [text for status, text in answers if status not in ALLOWED]
    assert not faults, faults
    usual = nearly_longest(others.rest())
    assert not others.faults, others.faults[:3]
    return too_long(times, usual, lag.longest)


def too_long(times, usual, late):
    """Return a description of the times that are too long, or "".

    times: times of other clients under attack.
    usual: seconds of a sentence without an attack.
    late: seconds by which the machine was late.
    """
    slow = slowness()
    bounds = {
        "a callback": (times.callback, CALLBACK * slow),
        "/health": (max(times.health), HEALTH * slow + late),
        "a sentence": (max(times.busy), SENTENCE * slow + USUAL * usual + late),
    }
    bounds |= {name: (seconds, LONGEST * slow + late) for name, seconds in times.others.items()}
    print(", ".join(f"{name}: {seconds:.3f} of {bound:.2f} s" for name, (seconds, bound) in bounds.items()))
    return "; ".join(
        f"{name} took {seconds:.2f} s" for name, (seconds, bound) in bounds.items() if seconds > bound
    )


def nearly_longest(seconds):
    """Return the 90th percentile."""
    return sorted(seconds)[round(0.9 * (len(seconds) - 1))]


def in_groups(names):
    """Return names in groups of `TOGETHER` by the first name of each."""
    names = list(names)
    return {names[n]: names[n : n + TOGETHER] for n in range(0, len(names), TOGETHER)}


@pytest.mark.parametrize("first", groups := in_groups(ATTACKS))
def test_attacks_delay_no_other_client(place, first):
    client, _, others = place
    thrice(lambda: slowed(others, sender(client, groups[first])))


def sender(client, names):
    """Return a function that sends attacks one after the other until one is answered with a fault; it returns
    the last answer. The requests are made before the measurement."""
    requests = [ATTACKS[name](client) for name in names]
    for name, request in zip(names, requests, strict=True):
        patience = SHORT if name in LASTING else PATIENCE
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), patience)

    def send():
        for name, request in zip(names, requests, strict=True):
            with suppress(httpx.TransportError), httpx.Client(verify=False) as own:
                answer = own.send(request)
                if answer.status_code not in ALLOWED:
                    return answer.status_code, f"{name}: {answer.text}"
        return 200, ""

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

    thrice(lambda: slowed(others, send))


def each_or_all(attacks):
    """Return attacks by name, in groups: each alone if thorough, otherwise all together."""
    return {name: [content] for name, content in attacks.items()} if THOROUGH else {"all": attacks.values()}


def statuses_of(port, content):
    """Send heads on a connection of their own; return the status of each answer."""
    answer = exchange(port, content, half_close=True, patience=HANG)
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


@pytest.mark.parametrize("name", heads := each_or_all(HEADS))
def test_long_head_delays_no_other_client(place, name):
    client, _, others = place

    def send():
        for content in heads[name]:
            found = statuses_of(client.base_url.port, content)
            if not found or 101 in found or max(found) >= 500:  # 101: another protocol
                return 500, f"{content[:200]}: {found}"
        return 200, ""

    thrice(lambda: slowed(others, send))


@pytest.mark.parametrize("name", floods := each_or_all(FLOODS))
def test_frames_of_http_2_delay_no_other_client(place, name):
    _, running, others = place

    def send():
        for content in floods[name]:
            with suppress(OSError), socket.create_connection(("127.0.0.1", running.grpc_port)) as one:
                one.settimeout(SILENCE)
                one.sendall(PREFACE + content)
                while one.recv(65_536):
                    pass
        return 200, ""

    thrice(lambda: slowed(others, send))


def test_body_in_tiny_chunks_delays_no_other_client(place):
    client, _, others = place
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

    def send():
        with socket.create_connection((client.base_url.host, client.base_url.port)) as sender:
            with suppress(ConnectionError):  # the server may close the connection early
                sender.sendall(head.encode() + b"1\r\na\r\n" * 1_000_000)
            return 400, ""

    thrice(lambda: slowed(others, send))


def test_silent_connections_and_abandoned_files_delay_no_client(place):
    client, _, others = place
    address = (client.base_url.host, client.base_url.port)
    with ExitStack() as silent:

        def send():
            for _ in range(100):
                silent.enter_context(socket.create_connection(address))
            for _ in range(6):
                with socket.create_connection(address) as gone:
                    body = b"--x\r\n" + b"-a" * 10_000
                    head = (
                        f"POST /translate_file HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                    )
                    kind = "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
                    gone.sendall(f"{head}{kind}".encode() + body)
            time.sleep(0.3)
            return 200, ""

        thrice(lambda: slowed(others, send))


def test_memory_returns_and_the_process_ends_on_sigterm(place):
    client, running, others = place
    most = resident(running)
    assert most < 700 << 20, f"{most >> 20} MiB"
    until(lambda: resident(running) < MORE * running.idle)
    lag = next(x for x in client.get("/metrics").text.splitlines() if x.startswith("convoy_event_loop_lag"))
    print(lag, "MiB:", running.idle >> 20, most >> 20, resident(running) >> 20)
    others.stop()
    until(lambda: value(client, "convoy_requests_in_flight") == 1)  # the request of the metrics
    running.send_signal(signal.SIGTERM)
    assert running.wait(300) == 0, running.stderr.read()[-2000:]
