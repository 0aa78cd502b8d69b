"""Measure the cost of a server in addition to the model: seconds in ONNX Runtime against seconds of HTTP
requests.

The server runs in this process, as `convoy serve` would, and each call of a session is timed; a client in
another process keeps a number of requests running over loopback. The cost is the rest of the wall time of the
run, and of the processor time of this process. The first includes the client's work and other load of the
machine; the second only this process. Prints a row for each number of running requests, of the fastest run.
With --threads above 1 the second figure is useless: it lacks the time of the pool.

    python -m loadtest.http.overhead --model models/tatoeba-de-en --precision int8 --concurrency 1,32
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import uvicorn

from engine.api import Service, share_threads
from loadtest.http.closedloop import keep_busy
from loadtest.http.openloop import translate
from loadtest.texts import sentences
from server.app import configure, create_app
from server.observing.metrics import Metrics
from server.settings import ServerSettings


@dataclass(slots=True)
class Clock:
    """Wall and CPU seconds inside sessions."""

    wall: float = 0.0
    cpu: float = 0.0

    def time_calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with the time of its calls added to the clock."""

        def run(*values: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*values, **named)
            finally:
                self.wall += time.perf_counter() - wall
                self.cpu += time.thread_time() - cpu

        return run


@dataclass(frozen=True, slots=True)
class Overhead:
    """Wall and CPU seconds of the run, those inside sessions, and the median latency of a request."""

    answered: int
    wall: float
    cpu: float
    model: Clock
    median: float

    def __str__(self) -> str:
        shares = 1.0 - self.model.wall / self.wall, 1.0 - self.model.cpu / self.cpu
        figures = [f"{self.answered / self.wall:.1f}", f"{1e3 * self.median:.1f}"]
        figures += [f"{1e3 * self.cpu / self.answered:.1f}", *(f"{share:.1%}" for share in shares)]
        return " | ".join(figures)


def time_sessions() -> Clock:
    """Time every session that is created from now on."""
    clock = Clock()
    original = onnxruntime.InferenceSession

    class TimedSession(original):  # type: ignore[misc, valid-type]
        def __init__(self, *values: Any, **named: Any) -> None:
            super().__init__(*values, **named)
            self.run = clock.time_calls(super().run)
            self.run_with_iobinding = clock.time_calls(super().run_with_iobinding)

    onnxruntime.InferenceSession = TimedSession
    return clock


@contextmanager
def in_thread(
    service: Service, settings: ServerSettings, metrics: Metrics
) -> Iterator[tuple[str, threading.Thread]]:
    """Serve in a thread of this process; yield host and port once it is ready, and the event loop's thread.

    service: translates the texts of the requests.
    settings: configuration of the HTTP server.
    metrics: counters that each request updates.
    """
    server = uvicorn.Server(configure(create_app(service, settings, metrics), settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not (server.started and server.servers):
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{port}", thread
    finally:
        server.should_exit = True
        thread.join()


def latencies_of(url: str, count: int, under_way: int, values: dict[str, Any]) -> list[float]:
    """Return the seconds of each of `count` requests, with `under_way` running at any time.

    url: address of the server.
    count: number of requests.
    under_way: number of running requests.
    values: fields of the body in addition to the text.

    Raises SystemExit on a refusal.
    """
    post = translate(values, stream=False)
    answers = asyncio.run(keep_busy(url, post, sentences(1, None), under_way, lambda done: done < count))
    if refused := {a.status for a in answers} - {200}:
        raise SystemExit(f"a request was answered with {min(refused)}")
    return [a.latency for a in answers]


def measure(clock: Clock, url: str, options: argparse.Namespace, under_way: int) -> Overhead:
    """Measure one run of the client, in a process of its own that waits for a line before it begins.

    clock: measures the time in the sessions.
    url: address of the server.
    options: parsed arguments of the command line.
    under_way: number of running requests.
    """
    command = [sys.executable, "-m", "loadtest.http.overhead", "--client", url]
    command += [
        "--requests",
        str(options.requests),
        "--concurrency",
        str(under_way),
        "--values",
        options.values,
    ]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the client could not start")
        before, cpu = Clock(clock.wall, clock.cpu), time.process_time()
        process.stdin.write("\n")
        process.stdin.flush()
        report = json.loads(process.stdout.readline())
        cpu = time.process_time() - cpu
        model = Clock(clock.wall - before.wall, clock.cpu - before.cpu)
    latencies = sorted(report["latencies"])
    return Overhead(len(latencies), report["wall"], cpu, model, latencies[len(latencies) // 2])


def client(options: argparse.Namespace) -> None:
    """Measure latencies from a process of its own, after a line on standard input."""
    values, under_way = json.loads(options.values), int(options.concurrency)
    latencies_of(options.client, 2 * under_way, under_way, values)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    latencies = latencies_of(options.client, options.requests, under_way, values)
    print(json.dumps({"wall": time.perf_counter() - began, "latencies": latencies}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime")
    parser.add_argument("--concurrency", default="1,32", help="requests under way; comma separated")
    parser.add_argument("--requests", type=int, default=200, help="of each run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--values", default='{"source": "de", "target": "en"}', help="of each body, as JSON")
    parser.add_argument("--client", help=argparse.SUPPRESS)  # set only for the client process
    options = parser.parse_args()
    if options.client:
        client(options)
        return
    clock = time_sessions()
    share_threads("onnx", options.threads)
    values = {"models": [options.model], "precision": options.precision, "port": 0, "log_level": "error"}
    settings = ServerSettings.model_validate(values)
    print("| under way | requests/s | median ms | processor, ms a request | all else | of the processor |")
    print("|---:|---:|---:|---:|---:|---:|")
    metrics = Metrics()
    service = Service.open(settings.models, settings.service(), metrics.observer)
    with in_thread(service, settings, metrics) as (address, _):
        url = f"http://{address}"
        for under_way in map(int, options.concurrency.split(",")):
            rows = [measure(clock, url, options, under_way) for _ in range(options.runs)]
            print(f"| {under_way} | {min(rows, key=lambda row: row.wall)} |", flush=True)


if __name__ == "__main__":
    main()
