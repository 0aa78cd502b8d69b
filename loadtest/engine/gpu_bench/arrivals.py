"""Requests that arrive at random: the engine in flight against the best window batcher over the same
executor.

Both have an executor of the same bundle and width, and meet the same sentences at the same moments. The
batcher's window and size are chosen on other traffic, the engine has nothing to choose. The load is a
share of the lower of the two peaks, so that either can carry it. Latency counts from when a request was
due.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from engine.backends import LaneSize
from engine.types import Request, Result
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.book import Desk
from loadtest.engine.gpu_bench.clock import TurnRules, alternate, summary
from loadtest.engine.gpu_bench.contenders import Flow, make_requests, open_all, record_failure
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import Scale, Setting
from loadtest.engine.gpu_bench.window import LaneBatcher
from loadtest.traffic import percentile, poisson

SHARE: Final = 0.7  # of peak throughput
TUNING: Final = 1_000  # seeds of the traffic that settings are chosen on, and
TRAFFIC: Final = 2_000  # of that which is reported
FLIGHT: Final = "in flight"
WINDOW: Final = "window"
FEWEST: Final = 100  # requests of a run; a p99 of fewer says nothing


class Server(Protocol):
    def submit(self, group: Sequence[Request]) -> None: ...


@dataclass(frozen=True, slots=True)
class Load:
    """Sentences that arrive at a mean of `rate` a second."""

    work: Sequence[SizedSentence]
    beam: int
    rate: float


def latencies(server: Server, load: Load, seed: int) -> list[float]:
    """Measure the seconds from when each request was due to its answer, in the order of asking."""
    due = [*itertools.islice(poisson(load.rate, seed), len(load.work))]
    requests, answers = make_requests(load.work, load.beam)
    began, next_one = time.monotonic(), 0
    while next_one < len(due):
        now = time.monotonic() - began
        if due[next_one] > now:
            time.sleep(due[next_one] - now)
            continue
        upto = next_one
        while upto < len(due) and due[upto] <= now:
            requests[upto].arrived = began + due[upto]
            upto += 1
        server.submit(requests[next_one:upto])
        next_one = upto
    results: list[Result] = answers.results()
    assert len(results) == len(due)
    return [end - began - at for end, at in zip(answers.ended, due, strict=True)]


def peak(server: Server, work: Sequence[SizedSentence], beam: int) -> float:
    """Measure the answers a second when all have arrived at once."""
    requests, answers = make_requests(work, beam)
    began = time.monotonic()
    server.submit(requests)
    answers.results()
    return len(work) / (time.monotonic() - began)


def arrivals(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """Measure p99 and p50 of the engine and of the best window batcher, runs in turn, and their ratio: on the
    likely fastest backend that does it."""
    scale = setting.scale
    bundle = models.bundle_of(setting.folder, models.SIX, tiny=scale.tiny)
    origin, pairs = lengths(setting.corpora, scale.requests)
    work = sentences(bundle.config, pairs)
    record: dict[str, Any] = {
        "model": bundle.name,
        "beam": scale.beam,
        "slots": scale.open,
        "lengths": origin,
    }
    record |= {"share": SHARE, "not_run": {}}
    lanes = [LaneSize(scale.beam, scale.open)] * 2
    for contender, executors in open_all(setting, bundle, lanes, (desk, record["not_run"])):
        with record_failure(f"{bundle.name}, {contender}", record["not_run"]), ExitStack() as stack:
            record["contender"] = str(contender)
            flow = Flow(executors[0], scale.beam)
            stack.callback(flow.stop)
            batcher = LaneBatcher(executors[1], scale.windows[0], max(scale.batches))
            stack.callback(batcher.stop)
            _measure(flow, batcher, work, ArrivalCase(scale, until, desk, record))
            break
    return record


@dataclass(frozen=True, slots=True)
class ArrivalCase:
    """How much to measure and until when, and where it goes: `found` is filled."""

    scale: Scale
    until: float
    desk: Desk
    found: dict[str, Any]


def _measure(flow: Flow, batcher: LaneBatcher, work: list[SizedSentence], case: ArrivalCase) -> None:
    scale, record = case.scale, case.found
    peaks = _peaks(flow, batcher, work, scale.beam)
    rate = SHARE * min(peaks.values())
    # a run of each setting, and of both in each turn
    runs = len(scale.windows) * len(scale.batches) + 2 * (scale.turns + 1)
    fits = int((case.until - time.monotonic()) * rate / runs)
    load = Load(work[: max(min(FEWEST, len(work)), min(len(work), fits))], scale.beam, rate)
    record |= {"peaks": peaks, "rate": rate, "requests": len(load.work)}
    case.desk.tell(record)
    record |= _tune(batcher, load, scale)
    case.desk.tell(record)
    batcher.tune(record["window"], record["batch"])
    name = record["contender"]
    servers: dict[str, Server] = {f"{FLIGHT}, {name}": flow, f"{WINDOW}, {name}": batcher}
    _compare(servers, load, TurnRules(scale.turns, case.until, case.desk), record)


def _peaks(flow: Flow, batcher: LaneBatcher, work: list[SizedSentence], beam: int) -> dict[str, float]:
    """After a run of the first sentences, to warm up."""
    peaks: dict[str, float] = {}
    servers: dict[str, Server] = {FLIGHT: flow, WINDOW: batcher}
    for name, server in servers.items():
        peak(server, work[: 2 * batcher.batch], beam)
        peaks[name] = peak(server, work, beam)
    return peaks


def _tune(batcher: LaneBatcher, load: Load, scale: Scale) -> dict[str, Any]:
    """The window and batch with the lowest p99, and all that were tried."""
    tried = []
    for window, batch in itertools.product(scale.windows, scale.batches):
        batcher.tune(window, batch)
        tried.append(
            {"window": window, "batch": batch, "p99": percentile(latencies(batcher, load, TUNING), 99)}
        )
    best = min(tried, key=lambda one: one["p99"])
    return {"window": best["window"], "batch": best["batch"], "tuning": tried}


def _compare(servers: dict[str, Server], load: Load, rules: TurnRules, record: dict[str, Any]) -> None:
    """In turn; in each turn both meet the same moments. Ratio: the batcher's p99 to the engine's.

    servers: by kind of batching and contender.
    """
    medians: dict[str, list[float]] = {name: [] for name in servers}
    turn = dict.fromkeys(servers, 0)

    def runner(name: str, server: Server) -> Callable[[], float]:
        def run() -> float:
            values = latencies(server, load, TRAFFIC + turn[name])
            turn[name] += 1
            medians[name].append(float(np.median(values)))
            return percentile(values, 99)

        return run

    turns = alternate({name: runner(name, server) for name, server in servers.items()}, rules)
    record["not_run"] |= turns.not_run
    record["p99"] = {name.partition(", ")[0]: summary(values) for name, values in turns.values.items()}
    later = {name.partition(", ")[0]: values[1:] for name, values in medians.items()}
    record["p50"] = {name: summary(values) for name, values in later.items() if values}
    if len(turns.values) == len(servers):
        flight, window = (record["p99"][kind]["runs"] for kind in (FLIGHT, WINDOW))
        record["ratio"] = summary([b / a for a, b in zip(flight, window, strict=False)])
