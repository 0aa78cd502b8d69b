"""Convoy over HTTP beside a server that calls fxtranslate in a thread pool, on one and the same student.

The student is that of `loadtest.engine.students_compare`: Firefox's sizes, random int8 weights, a shortlist.
The other server is what people build around the package: FastAPI, and one translator for each thread. Its
peak is found with clients that ask again when they are answered; then texts arrive at a share of that peak,
by a Poisson process, at both servers by turns. What counts is the 99th percentile.

    python -m loadtest.http.students --size tiny --share 0.7

Needs fxtranslate from PyPI and the extras `load` and `torch`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from loadtest.engine import students_compare
from loadtest.http.argos_compare import rate, server
from loadtest.http.openloop import arrivals, run, summarise, translate

PORTS = 5057, 5058
BODY = {"source": "de", "target": "en", "format": "text"}


def serve_peer(folder: Path, port: int, threads: int) -> None:
    """Run the other server, until it is stopped.

    folder: of the student.
    port: of the loopback.
    threads: translators.
    """
    import anyio.to_thread
    import uvicorn
    from fastapi import Body, FastAPI

    own = threading.local()

    def answer(text: str) -> str:
        if not hasattr(own, "translate"):
            own.translate = students_compare.fxtranslate(folder)[0]
        return str(own.translate([text])[0])

    app = FastAPI()

    @app.post("/translate")
    async def handle(values: dict[str, Any] = Body()) -> dict[str, str]:  # noqa: B008
        return {"translatedText": await anyio.to_thread.run_sync(answer, values["q"], limiter=limiter)}

    limiter = anyio.CapacityLimiter(threads)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def prepare(folder: Path, size: str) -> list[str]:
    """Write a student and its bundle, and return texts for it."""
    from export.graphs.onnx import add_graphs
    from export.importers import convert

    lines = students_compare.corpus(20_000)
    students_compare.write_student(folder, students_compare.STUDENT_SIZES[size], lines)
    add_graphs(convert("bergamot", folder, folder / "bundle"))
    return students_compare.sentences(folder, lines, 200)


def compare(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the milliseconds of both at a share of the other's peak, and the ratios of each round."""
    texts = prepare(folder, given.size)
    threads = ["--threads", str(given.threads)]
    ours = [sys.executable, "-m", "cli.main", "serve", "--models", str(folder / "bundle"), *threads]
    ours += ["--precision", "int8", "--port", str(PORTS[0]), "--no-access-log"]
    theirs = [sys.executable, "-m", "loadtest.http.students", "--peer", str(folder), *threads]
    urls = [f"http://127.0.0.1:{port}" for port in PORTS]
    figures: dict[str, list[dict[str, float]]] = {"convoy": [], "fxtranslate": []}
    with server(ours, PORTS[0], {}), server(theirs, PORTS[1], {}) as peer:
        peak, _ = rate(peer, texts, 16, given.seconds)
        for number in range(given.rounds):
            for name, url in zip(figures, urls, strict=True):
                due = arrivals(given.share * peak, given.seconds, number)
                answers = asyncio.run(run(url, translate(BODY, stream=False), itertools.cycle(texts), due))
                told = summarise(answers, given.share * peak)
                assert told.answered == told.sent, told
                figures[name].append({key: 1000 * value for key, value in told.latency.items()})
    pairs = list(zip(figures["convoy"], figures["fxtranslate"], strict=True))
    medians = {
        name: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        for name, rounds in figures.items()
    }
    ratios = [round(b["p99"] / a["p99"], 2) for a, b in pairs]
    return {
        "size": given.size,
        "peak of fxtranslate": peak,
        "share": given.share,
        "ms": medians,
        "p99": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=sorted(students_compare.STUDENT_SIZES), default="tiny")
    parser.add_argument("--share", type=float, default=0.7, help="of the other server's peak")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each server")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer is not None:
        serve_peer(given.peer, PORTS[1], given.threads)
        return
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(compare(given, Path(name)), indent=1))


if __name__ == "__main__":
    main()
