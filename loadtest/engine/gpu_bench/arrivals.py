"""Random arrivals: the engine with in-flight batching against the best window batcher.

Both have an executor of the same bundle and width, and receive the same sentences at the same times. Window
and size of the batcher are tuned on other traffic; the engine needs no tuning. The load is a share of the
lower of the two peaks. Latency starts when a request is due.
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
from engine.errors import ExecutorFailed
from engine.schedule.lane import Lane
from engine.search.executor import Executor
from engine.types import Outcome, Request, Result
from loadtest.engine.gpu_bench import models
from loadtest.engine.gpu_bench.clock import alternate, summary
from loadtest.engine.gpu_bench.contenders import Flow, make_requests, open_all, record_failure
from loadtest.engine.gpu_bench.sentences import SizedSentence, lengths, sentences
from loadtest.engine.gpu_bench.setting import PartRun, Scale
from loadtest.traffic import percentile, poisson
from loadtest.window import WindowBatcher

PEAK_SHARE: Final = 0.7  # load as a share of peak throughput
TUNING: Final = 1_000  # seed of the traffic for tuning
TRAFFIC: Final = 2_000  # first seed of the reported traffic
FLIGHT: Final = "in flight"
WINDOW: Final = "window"
LEAST_REQUESTS: Final = 100  # least number of requests of a run: a p99 needs as many


class Server(Protocol):
    def submit(self, group: Sequence[Request]) -> None: ...


class LaneBatcher(WindowBatcher[Request]):
    """A window batcher with the same executor and search as the engine."""

    def __init__(self, executor: Executor, window: float, batch: int) -> None:
        """executor: executor of the lane.
        window: seconds that the first request of a batch waits for others.
        batch: largest number of requests of a batch.
        """
        self._done: list[tuple[Request, Outcome]] = []
        self._lane = Lane(executor, lambda request, outcome: self._done.append((request, outcome)))
        super().__init__(self._translate, window, batch)
        self.tune(window, batch)

    def tune(self, window: float, batch: int) -> None:
        """Change window and batch from the next batch on.

        Raises ValueError if the lane is too small for the batch.
        """
        if not 1 <= batch <= self._lane.executor.slots or window < 0:
            raise ValueError(f"a batch of {batch} in a lane of {self._lane.executor.slots}, {window} seconds")
        self.window, self.batch = window, batch

    def _translate(self, batch: list[Request]) -> None:
        """Answer a batch; after an error, the requests without an answer get the error."""
        self._done = []
        try:
            self._lane.drain(batch)
        except Exception as error:
            self._lane.clear()
            answered = {request for request, _ in self._done}
            failed = ExecutorFailed(f"the backend failed: {type(error).__name__}: {error}")
            self._done += [(request, failed) for request in batch if request not in answered]
        for request, outcome in self._done:
            request.reply(outcome)


@dataclass(frozen=True, slots=True)
class Load:
    """Sentences that arrive at a mean rate a second."""

    work: Sequence[SizedSentence]
    beam: int
    rate: float


def latencies(server: Server, load: Load, seed: int) -> list[float]:
    """Return the seconds from the due time of each request to its answer, in the order of the requests.

    server: engine or window batcher.
    load: sentences, beam size and rate.
    seed: number that determines the due times.
    """
    due = [*itertools.islice(poisson(load.rate, seed), len(load.work))]
    requests, answers = make_requests(load.work, load.beam)
    # submit all requests that are due together, then sleep until the next one is
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
    """Return the answers a second if all requests arrive at once.

    server: engine or window batcher.
    work: sentences, one a request.
    beam: number of beams of each request.
    """
    requests, answers = make_requests(work, beam)
    began = time.monotonic()
    server.submit(requests)
    answers.results()
    return len(work) / (time.monotonic() - began)


def arrivals(run: PartRun) -> dict[str, Any]:
    """Measure p99 and p50 of the engine and of the best window batcher in alternating runs, and their ratio,
    on the first backend that works."""
    setting, scale = run.setting, run.setting.scale
    bundle = models.bundle_of(setting.folder, models.SIX, tiny=scale.tiny)
    origin, pairs = lengths(setting.corpora, scale.requests)
    work = sentences(bundle.config, pairs)
    findings: dict[str, Any] = {"model": bundle.name, "beam": scale.beam, "slots": scale.open}
    findings |= {"lengths": origin, "share": PEAK_SHARE, "not_run": {}}
    lanes = [LaneSize(scale.beam, scale.open)] * 2
    for contender, executors in open_all(run, bundle, lanes, findings["not_run"]):
        with record_failure(f"{bundle.name}, {contender}", findings["not_run"]), ExitStack() as stack:
            findings["contender"] = str(contender)
            flow = Flow(executors[0], scale.beam)
            stack.callback(flow.stop)
            batcher = LaneBatcher(executors[1], scale.windows[0], max(scale.batches))
            stack.callback(batcher.stop)
            _measure(flow, batcher, work, run, findings)
            break
    return findings


def _measure(
    flow: Flow, batcher: LaneBatcher, work: list[SizedSentence], run: PartRun, findings: dict[str, Any]
) -> None:
    """Measure the peaks, tune the batcher, and compare both in alternating runs."""
    scale = run.setting.scale
    peaks = _peaks(flow, batcher, work, scale.beam)
    rate = PEAK_SHARE * min(peaks.values())
    # one run for each setting, and one for both servers in each turn
    runs = len(scale.windows) * len(scale.batches) + 2 * (scale.turns + 1)
    fits = int((run.until - time.monotonic()) * rate / runs)
    load = Load(work[: max(min(LEAST_REQUESTS, len(work)), min(len(work), fits))], scale.beam, rate)
    findings |= {"peaks": peaks, "rate": rate, "requests": len(load.work)}
    run.save(findings)
    findings |= _tune(batcher, load, scale)
    run.save(findings)
    batcher.tune(findings["window"], findings["batch"])
    name = findings["contender"]
    _compare({f"{FLIGHT}, {name}": flow, f"{WINDOW}, {name}": batcher}, load, run, findings)


def _peaks(flow: Flow, batcher: LaneBatcher, work: list[SizedSentence], beam: int) -> dict[str, float]:
    """Return the peak of each server, after a run to warm up."""
    peaks: dict[str, float] = {}
    servers: dict[str, Server] = {FLIGHT: flow, WINDOW: batcher}
    for name, server in servers.items():
        peak(server, work[: 2 * batcher.batch], beam)
        peaks[name] = peak(server, work, beam)
    return peaks


def _tune(batcher: LaneBatcher, load: Load, scale: Scale) -> dict[str, Any]:
    """Return the window and batch with the lowest p99, and all tried settings."""
    tried = []
    for window, batch in itertools.product(scale.windows, scale.batches):
        batcher.tune(window, batch)
        tried.append(
            {"window": window, "batch": batch, "p99": percentile(latencies(batcher, load, TUNING), 99)}
        )
    best = min(tried, key=lambda setting: setting["p99"])
    return {"window": best["window"], "batch": best["batch"], "tuning": tried}


def _compare(servers: dict[str, Server], load: Load, run: PartRun, findings: dict[str, Any]) -> None:
    """Run both kinds of batching in turn, at the same due times; the ratio is the batcher's p99 over the
    engine's.

    servers: engine and window batcher, by names such as "in flight, cuda".
    load: sentences, beam size and rate.
    run: setting and end of the measurement.
    findings: results so far; p99, p50 and ratio are added.
    """
    medians: dict[str, list[float]] = {name: [] for name in servers}
    turn = dict.fromkeys(servers, 0)

    def runner(name: str, server: Server) -> Callable[[], float]:
        """Return a function that measures the p99 of a server; each call has new due times."""

        def measure() -> float:
            values = latencies(server, load, TRAFFIC + turn[name])
            turn[name] += 1
            medians[name].append(float(np.median(values)))
            return percentile(values, 99)

        return measure

    turns = alternate({name: runner(name, server) for name, server in servers.items()}, run)
    findings["not_run"] |= turns.not_run
    findings["p99"] = {name.partition(", ")[0]: summary(values) for name, values in turns.values.items()}
    # without the first turn, which warms up
    later = {name.partition(", ")[0]: values[1:] for name, values in medians.items()}
    findings["p50"] = {name: summary(values) for name, values in later.items() if values}
    if len(turns.values) == len(servers):
        flight, window = (findings["p99"][kind]["runs"] for kind in (FLIGHT, WINDOW))
        findings["ratio"] = summary([b / a for a, b in zip(flight, window, strict=False)])
