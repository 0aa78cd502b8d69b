"""What metrics cost: of a request, of a decoding step, and of a scrape; in one process, or in a worker.

python -m loadtest.http.metrics_cost [--worker]
"""

from __future__ import annotations

import sys
import tempfile
import timeit
from pathlib import Path
from typing import Final

from engine.api import Stats, TextResult
from server.observing.context import RequestContext, current
from server.observing.metrics import Metrics, Sources, share

TIMES: Final = 20_000
IDLE: Final = Stats(0, 0, (1, 2), (8, 16), 10, 1.0, 5, 0.5, 100, 5, 0)


def main(folder: Path | None) -> None:
    metrics = Metrics(folder)
    names = [f"model-{number}" for number in range(3)]
    metrics.watch(Sources(lambda: True, stats=lambda: dict.fromkeys(names, IDLE)))
    observers = [metrics.observer(name) for name in names]
    results = [TextResult("text")]

    def request() -> None:
        note = RequestContext("id")
        token = current.set(note)
        metrics.in_flight.inc()
        metrics.record_work(names[0], results)
        metrics.in_flight.dec()
        metrics.latency.labels("/translate", note.model, note.outcome_of(200)).observe(0.1)
        current.reset(token)

    def step() -> None:
        observers[0].on_step(0.001, 8)

    for route in range(30):  # as many series as a busy server has
        for outcome in ("ok", "invalid", "late"):
            metrics.latency.labels(f"/{route}", names[0], outcome).observe(0.1)
    for name, call in {"request": request, "step": step}.items():
        print(f"{name}: {timeit.timeit(call, number=TIMES) / TIMES * 1e6:.1f} microseconds")
    print(f"scrape: {timeit.timeit(metrics.text, number=20) / 20 * 1e3:.1f} milliseconds")


if __name__ == "__main__":
    if "--worker" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            share(Path(folder), 0)
            main(Path(folder))
    else:
        main(None)
