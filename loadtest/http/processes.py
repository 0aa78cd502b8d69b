"""One process, or front ends and engine processes: `convoy serve` in several shapes, each asked in turns.

All serve on this machine at once, so that what else the machine does meets all of them. A shape is
FRONTENDS/ENGINES/THREADS. First each is asked as fast as it answers, then in an open loop at a share of what
the first shape did at its best.

    python -m loadtest.http.processes --model models/tatoeba-de-en --shapes 0/1/2,1/1/2,1/2/1 --seconds 8
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from loadtest.http.closedloop import busiest
from loadtest.http.openloop import arrivals, run, summarise, translate
from loadtest.http.serving import memory_mib, serving_convoy
from loadtest.texts import sentences


@contextmanager
def server(model: Path, shape: str, precision: str) -> Iterator[tuple[str, int]]:
    """Start a server, and yield its URL and the number of its process once it is ready.

    model: a bundle.
    shape: FRONTENDS/ENGINES/THREADS.
    precision: of the model.
    """
    front_ends, engines, threads = shape.split("/")
    settings = {"MODELS": model, "PRECISION": precision, "LOG_LEVEL": "error"}
    settings |= {"FRONTENDS": front_ends, "ENGINES": engines, "THREADS": threads}
    with serving_convoy(settings) as (url, one):
        yield url, one.pid


def memory(process: int) -> float:
    """Add up the MiB of a process and all below it; pages that several share count once."""
    shares, left = 0.0, [process]
    while left:
        one = left.pop()
        shares += memory_mib(one)["Pss"]
        children = subprocess.run(["pgrep", "-P", str(one)], capture_output=True, text=True, check=False)
        left += map(int, children.stdout.split())
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("models/tatoeba-de-en"))
    parser.add_argument("--shapes", default="0/1/2,1/1/2,1/2/1,2/2/1", help="with commas between")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--under-way", type=int, default=32, help="requests at any time, at the peak")
    parser.add_argument("--share", type=float, default=0.7, help="of the first shape's peak, offered then")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ask = translate({"source": "de", "target": "en"}, stream=False)
    with ExitStack() as stack:
        servers = {
            shape: stack.enter_context(server(options.model, shape, options.precision))
            for shape in options.shapes.split(",")
        }
        peaks: dict[str, list[float]] = {shape: [] for shape in servers}
        for number in range(-1, options.rounds):
            for shape, (url, _) in servers.items():
                seconds = options.seconds if number >= 0 else 2.0  # the first warms up
                peak = busiest(url, ask, sentences(number), options.under_way, seconds)
                if number >= 0:
                    peaks[shape].append(peak)
        rate = options.share * median(next(iter(peaks.values())))
        print(f"frontends/engines/threads | peak /s | answered of {rate:.0f} /s | p50 ms | p99 ms | MiB")
        rows: dict[str, list[tuple[float, float, float]]] = {shape: [] for shape in servers}
        for number in range(options.rounds):
            times = arrivals(rate, options.seconds, number)
            for shape, (url, _) in servers.items():
                summary = summarise(asyncio.run(run(url, ask, sentences(number), times)), rate)
                latency = summary.latency
                rows[shape].append((summary.throughput, latency["p50"] * 1e3, latency["p99"] * 1e3))
        for shape, (_, process) in servers.items():
            answered, p50, p99 = (median(column) for column in zip(*rows[shape], strict=True))
            figures = f"{median(peaks[shape]):.0f} | {answered:.1f} | {p50:.0f} | {p99:.0f}"
            print(f"{shape} | {figures} | {memory(process):.0f}", flush=True)


if __name__ == "__main__":
    main()
