"""Processes or threads: `convoy serve --workers N --threads 1` beside one process with N threads.

Both serve on this machine at once and are asked in turns, so that what else the machine does meets both.

    python -m loadtest.http.workers --model models/tatoeba-de-en --count 2 --rates 5,20 --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx

from loadtest.http.openloop import arrivals, run, summarise, translate
from loadtest.http.serving import free_port, serving
from loadtest.texts import sentences


@contextmanager
def server(model: Path, workers: int, threads: int) -> Iterator[str]:
    """Start a server, and yield its URL once it is ready.

    model: a bundle.
    workers: processes.
    threads: of each.
    """
    port = free_port()
    values = {"MODELS": model, "WORKERS": workers, "THREADS": threads, "PORT": port, "LOG_LEVEL": "error"}
    command = [sys.executable, "-c", "from cli.main import app; app()", "serve"]
    with serving(command, port, {f"CONVOY_{name}": str(value) for name, value in values.items()}) as (url, _):
        yield url


def resident(url: str) -> float:
    """Read the MiB of all processes of a server together."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (sample,) = [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    return float(sample.split()[1]) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--count", type=int, default=2, help="workers, or threads")
    parser.add_argument("--rates", default="5,20", help="requests a second, with commas between")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ask = translate({"source": "de", "target": "en"}, stream=False)
    with ExitStack() as stack:
        urls = {
            f"{workers} x {threads}": stack.enter_context(server(options.model, workers, threads))
            for workers, threads in ((options.count, 1), (1, options.count))
        }
        print("workers x threads | offered /s | answered /s | p50 ms | p99 ms | MiB (medians of rounds)")
        for rate in map(float, options.rates.split(",")):
            results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in urls}
            for number in range(options.rounds):
                times = arrivals(rate, options.seconds, number)
                for name, url in urls.items():
                    summary = summarise(asyncio.run(run(url, ask, sentences(number), times)), rate)
                    latency = summary.latency
                    results[name].append((summary.throughput, latency["p50"] * 1e3, latency["p99"] * 1e3))
            for name, rows in results.items():
                rate_, p50, p99 = (median(column) for column in zip(*rows, strict=True))
                memory = resident(urls[name])
                print(f"{name} | {rate:g} | {rate_:.1f} | {p50:.0f} | {p99:.0f} | {memory:.0f}", flush=True)


if __name__ == "__main__":
    main()
