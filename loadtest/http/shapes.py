"""Compare servers with other numbers of front ends and engine processes, one after the other.

Prints a row for each shape FRONTENDS/ENGINES: seconds until the server is ready, median latency of one
request at a time, peak of a closed loop, and other statuses than 200. Clients have processes of their own, so
that they do not limit the server. `--set NAME=VALUE` sets CONVOY_NAME of all servers.

    python -m loadtest.http.shapes --shapes 0/1,1/1,2/1,4/1 --set DEVICE=cuda --texts newstest2013.en
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

from loadtest.http.closedloop import keep_busy
from loadtest.http.openloop import TimedAnswer, translate
from loadtest.http.serving import serving_convoy
from loadtest.texts import sentences

SINGLES: Final = 40  # requests that are sent one at a time
WARMING_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """The requests of a client.

    values: fields of the body in addition to the text.
    texts: file of one sentence a line, or None for random sentences.
    seed: number that determines the order of the texts.
    """

    values: dict[str, str]
    texts: Path | None
    seed: int

    def send(self, url: str, under_way: int, seconds: float, count: int) -> list[TimedAnswer]:
        """Keep requests running until `seconds` have passed, or `count` are answered.

        url: address of the server.
        under_way: number of running requests.
        seconds: duration.
        count: number of requests.
        """
        began, texts = time.perf_counter(), sentences(self.seed, self.texts)
        ask = translate(dict(self.values), stream=False)

        def goes_on(done: int) -> bool:
            return done < count and time.perf_counter() - began < seconds

        return asyncio.run(keep_busy(url, ask, texts, under_way, goes_on))


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """The figures of one shape.

    start: seconds until the server was ready.
    one_ms: median milliseconds of one request at a time.
    peak: answers a second of all clients together.
    other: number of answers by other statuses than 200.
    """

    shape: str
    start: float
    one_ms: float
    peak: float
    other: dict[int, int]


def measure(shape: str, settings: dict[str, object], options: argparse.Namespace) -> ShapeRow:
    """Start a server of a shape, measure it, and stop it.

    shape: FRONTENDS/ENGINES.
    settings: further settings of the server.
    options: parsed arguments of the command line.
    """
    front_ends, engines = shape.split("/")
    values = dict(pair.split("=", 1) for pair in options.values)
    loads = [ClientLoad(values, options.texts, seed) for seed in range(options.clients)]
    share = max(1, options.under_way // options.clients)
    began = time.monotonic()
    with (
        ProcessPoolExecutor(options.clients, mp_context=get_context("spawn")) as pool,
        serving_convoy(settings | {"FRONTENDS": front_ends, "ENGINES": engines}) as (url, _),
    ):
        start = time.monotonic() - began
        first, *_ = loads
        single = first.send(url, 1, options.seconds, SINGLES)
        answers = list[TimedAnswer]()
        for seconds in (WARMING_SECONDS, options.seconds):
            jobs = [pool.submit(load.send, url, share, seconds, 1 << 30) for load in loads]
            answers = [answer for job in jobs for answer in job.result()]
        good = [answer for answer in answers if answer.status == 200]
        other = Counter(answer.status for answer in answers if answer.status != 200)
        peak = len(good) / max(answer.done for answer in answers)
        one = median(answer.latency for answer in single[len(single) // 4 :]) * 1e3
    return ShapeRow(shape, start, one, peak, dict(other))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="0/1,1/1,1/2", help="FRONTENDS/ENGINES, with commas between")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="a setting: DEVICE=cuda")
    parser.add_argument("--values", action="append", default=[], help="a field of the body: source=en")
    parser.add_argument("--texts", type=Path, help="file of one sentence a line; default: random German")
    parser.add_argument("--clients", type=int, default=2, help="processes that send requests")
    parser.add_argument("--under-way", type=int, default=64, help="running requests of all clients")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of the peak of a shape")
    parser.add_argument("--out", type=Path, help="JSON file of the rows")
    options = parser.parse_args(arguments)
    options.values = options.values or ["source=de", "target=en"]
    settings: dict[str, object] = {"LOG_LEVEL": "warning"}
    settings |= dict(pair.split("=", 1) for pair in options.settings)
    rows = []
    print("| frontends/engines | start, s | one at a time, ms | peak /s | other statuses |")
    print("|---|---:|---:|---:|---|")
    for shape in options.shapes.split(","):
        row = measure(shape, settings, options)
        rows.append(asdict(row))
        print(f"| {shape} | {row.start:.1f} | {row.one_ms:.1f} | {row.peak:.0f} | {row.other} |", flush=True)
        if options.out:  # after each row, for an interrupted call
            options.out.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
