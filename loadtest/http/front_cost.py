"""What a front end costs by itself: processor time of a request over an engine that answers at once.

The bundle is real, and so are its text side, queue and forecast; in the place of decoding each source is its
own answer. A client in another process keeps so many requests under way. Prints milliseconds of the
processor: of the event loop's thread, of the engine's, and of all of the process but the engine's; the least
of its runs.

    python -m loadtest.http.front_cost --texts 1,50 --turn 0.5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from engine.api import Service, share_threads
from engine.bundle.bundle import open_bundle
from engine.errors import ConvoyError
from engine.executors import open_executors
from engine.repository.folders import Folders
from engine.repository.loading import ModelSource, open_model
from engine.repository.repository import Repository
from engine.schedule.engine import Engine, EngineSettings
from engine.search.executor import Executor
from engine.types import Hypothesis, Request, Result, Timings
from loadtest.http.overhead import in_thread
from loadtest.texts import sentences
from server.observing.metrics import Metrics
from server.settings import ServerSettings

BODIES: Final = 256  # different ones that a client sends in turn
NO_TIME: Final = Timings(0.0, 0.0, 0.0, 1)


class EchoEngine(Engine):
    """An engine whose lanes do nothing: each source is its own answer, after a turn for each of its tokens.

    turn_seconds: that a turn takes; 0: the answer is there as soon as the thread sees the request.
    """

    turn_seconds = 0.0

    def __init__(self, executors: Sequence[Executor], settings: EngineSettings) -> None:
        super().__init__(executors, settings)
        self._turns_left: dict[Request, int] = {}

    def turn(self) -> bool:
        with self._wake:
            while not (self._stopping or self._queue.requests or self._turns_left):
                self._wake.wait()
            requests, over = self._queue.clear(), self._stopping
        self._turns_left |= {request: len(request.source) if self.turn_seconds else 1 for request in requests}
        if self.turn_seconds:
            time.sleep(self.turn_seconds)
        for request in list(self._turns_left):
            self._turns_left[request] -= 1
            if not self._turns_left[request]:
                del self._turns_left[request]
                self._reply(request, _echo(request))
        self.told()
        self._replied.clear()
        return not over


def _echo(request: Request) -> Result | ConvoyError:
    tokens = request.source[:-1]
    return Result([Hypothesis(tokens, -0.5, [-0.1] * (len(tokens) + 1), "stop")], NO_TIME)


@dataclass(frozen=True, slots=True)
class FrontCost:
    """Seconds of the processor, of one run.

    answered: requests.
    loop, engine: of these threads.
    process: of all threads.
    wall: seconds of the run.
    """

    answered: int
    loop: float
    engine: float
    process: float
    wall: float

    def __str__(self) -> str:
        times = (self.loop, self.engine, self.process - self.engine)
        return " | ".join(
            [*(f"{1e3 * t / self.answered:.3f}" for t in times), f"{self.answered / self.wall:.0f}"]
        )


def echo_service(path: Path, settings: ServerSettings, metrics: Metrics) -> tuple[Service, EchoEngine]:
    """Open a bundle behind an engine that echoes; returns the service and that engine.

    path: of the bundle.
    settings: of the server.
    metrics: told of what the bundle's own engine does, which is nothing.
    """
    bundle, placed = open_bundle(path), settings.service()
    model = open_model(bundle, placed, metrics.observer(bundle.name))
    limits = EngineSettings(placed.queue_tokens, placed.encode_tokens, f"engine {bundle.name}")
    engine = EchoEngine(open_executors(bundle, placed.placement), limits)
    model = replace(model, engine=engine)
    source = ModelSource(lambda _: model.facts, lambda _: model)
    repository = Repository([model.facts], source, loaded=[model])
    return Service(repository, Folders([path], {bundle.name: path}, ())), engine


class Asker(asyncio.Protocol):
    """Sends a request when the answer before it is whole, until none are left."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self._requests, self._done, self._rest = requests, done, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, separator, body = self._rest.partition(b"\r\n\r\n")
        if not separator:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a request was answered: {head[:200]!r} {body[:200]!r}")
        (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) == int(length.partition(b":")[2]):
            self._rest = b""
            self._send()

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._transport.close()
            self._done.set_result(None)


async def ask(address: str, requests: Iterator[bytes], under_way: int) -> None:
    """Send requests and wait for all answers. Raises SystemExit on a refusal.

    address: of the server, as HOST:PORT.
    requests: as they go over the wire.
    under_way: requests at any time.
    """
    loop, (host, port) = asyncio.get_running_loop(), address.split(":")
    waits: list[asyncio.Future[None]] = [loop.create_future() for _ in range(under_way)]
    for done in waits:
        await loop.create_connection(partial(Asker, requests, done), host, int(port))
    await asyncio.gather(*waits)


def requests_of(texts: int, count: int) -> Iterator[bytes]:
    """Yield so many requests as they go over the wire.

    texts: of each; 1 is a plain string.
    count: requests.
    """
    source, bodies = sentences(1), []
    for _ in range(BODIES):
        q = next(source) if texts == 1 else list(islice(source, texts))
        body = json.dumps({"q": q, "source": "de", "target": "en", "format": "text"}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        bodies.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    for number in range(count):
        yield bodies[number % BODIES]


@contextmanager
def waiting_client(address: str, texts: int, options: argparse.Namespace) -> Iterator[Callable[[], object]]:
    """Start a client in a process of its own, which has warmed the server up; yield what has it send all
    requests, and returns when they are answered.

    address: of the server, as HOST:PORT.
    texts: of each request.
    options: of the command line.
    """
    command = [sys.executable, "-m", "loadtest.http.front_cost", "--client", address, "--texts", str(texts)]
    command += ["--under-way", str(options.under_way), "--requests", str(options.requests)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asks, answers = process.stdin, process.stdout
        assert asks is not None
        assert answers is not None
        if answers.readline() != "ready\n":
            raise SystemExit("the client could not start")

        def send_all() -> object:
            print(file=asks, flush=True)
            return answers.readline()

        yield send_all


def measure(
    address: str, thread: threading.Thread, engine: EchoEngine, texts: int, options: argparse.Namespace
) -> FrontCost:
    """Measure a run of a client.

    address: of the server, as HOST:PORT.
    thread: of the event loop.
    engine: behind the server.
    texts: of each request.
    options: of the command line.
    """
    with waiting_client(address, texts, options) as send_all:
        clocks = [time.pthread_getcpuclockid(one.ident or 0) for one in (thread, engine._thread)]
        wall, process_time = time.perf_counter(), time.process_time()
        before = [time.clock_gettime(clock) for clock in clocks]
        send_all()
        loop, echo = (time.clock_gettime(c) - b for c, b in zip(clocks, before, strict=True))
        total = time.process_time() - process_time
        count = max(1, options.requests // texts)
        return FrontCost(count, loop, echo, total, time.perf_counter() - wall)


def client(options: argparse.Namespace) -> None:
    texts = int(options.texts)
    count = max(1, options.requests // texts)
    asyncio.run(
        ask(options.client, requests_of(texts, max(options.under_way, count // 5)), options.under_way)
    )
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(ask(options.client, requests_of(texts, count), options.under_way))
    print("done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--texts", default="1,50", help="texts of a request; comma separated")
    parser.add_argument("--under-way", type=int, default=32)
    parser.add_argument("--requests", type=int, default=3000, help="texts of a run, in all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turn", type=float, default=0.0, help="milliseconds of a turn of the engine")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client(options)
        return
    share_threads("onnx", 1)
    values = {
        "models": [options.model],
        "precision": "int8",
        "port": 0,
        "log_level": "error",
        "batch_limit": -1,
    }
    settings = ServerSettings.model_validate(values)
    print("| texts | event loop, ms | engine, ms | all but the engine, ms | requests/s |")
    print("|---:|---:|---:|---:|---:|")
    metrics = Metrics()
    service, engine = echo_service(options.model, settings, metrics)
    with in_thread(service, settings, metrics) as (address, thread):
        engine.turn_seconds = options.turn / 1e3
        for texts in map(int, options.texts.split(",")):
            rows = [measure(address, thread, engine, texts, options) for _ in range(options.runs)]
            print(f"| {texts} | {min(rows, key=lambda row: row.process)} |", flush=True)


if __name__ == "__main__":
    main()
