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

from engine.types import Request, Result
from loadtest.gpu_bench import models
from loadtest.gpu_bench.book import Desk
from loadtest.gpu_bench.clock import Rules, alternate, summary
from loadtest.gpu_bench.contenders import Flow, all_opened, asked, excused
from loadtest.gpu_bench.sentences import Sentence, lengths, sentences
from loadtest.gpu_bench.setting import Scale, Setting
from loadtest.gpu_bench.window import WindowBatcher

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

    work: Sequence[Sentence]
    beam: int
    rate: float


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """The moments of `count` arrivals, in seconds from now: the gaps between them are exponential."""
    moments: list[float] = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)).tolist()
    return moments


def latencies(server: Server, load: Load, seed: int) -> list[float]:
    """Seconds from when each request was due to its answer, in the order of asking."""
    due = poisson(load.rate, len(load.work), seed)
    requests, answers = asked(load.work, load.beam)
    ended = [0.0] * len(requests)
    for i, request in enumerate(requests):
        request.reply = _stamped(request, ended, i)
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
    return [end - began - at for end, at in zip(ended, due, strict=True)]


def peak(server: Server, work: Sequence[Sentence], beam: int) -> float:
    """Answers a second when all have arrived at once."""
    requests, answers = asked(work, beam)
    began = time.monotonic()
    server.submit(requests)
    answers.results()
    return len(work) / (time.monotonic() - began)


def p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99, method="inverted_cdf"))


def arrivals(setting: Setting, floors: dict[str, Any], until: float, desk: Desk) -> dict[str, Any]:
    """p99 and p50 of the engine and of the best window batcher, runs in turn, and their ratio: on the likely
    fastest backend that does it."""
    scale = setting.scale
    bundle = models.bundle_of(setting.folder, models.SIX, tiny=scale.tiny)
    said, pairs = lengths(setting.corpora, scale.requests)
    work = sentences(bundle.config, pairs)
    found: dict[str, Any] = {"model": bundle.name, "beam": scale.beam, "slots": scale.open, "lengths": said}
    found |= {"share": SHARE, "not_run": {}}
    lanes = [(scale.beam, scale.open)] * 2
    for contender, executors in all_opened(setting, bundle, lanes, (desk, found["not_run"])):
        with excused(f"{bundle.name}, {contender}", found["not_run"]), ExitStack() as stack:
            found["contender"] = str(contender)
            flow = Flow(executors[0], scale.beam)
            stack.callback(flow.stop)
            batcher = WindowBatcher(executors[1], scale.windows[0], max(scale.batches))
            stack.callback(batcher.stop)
            _measured(flow, batcher, work, Case(scale, until, desk, found))
            break
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """How much to measure and until when, and where it goes: `found` is filled."""

    scale: Scale
    until: float
    desk: Desk
    found: dict[str, Any]


def _measured(flow: Flow, batcher: WindowBatcher, work: list[Sentence], case: Case) -> None:
    scale, found = case.scale, case.found
    peaks = _peaks(flow, batcher, work, scale.beam)
    rate = SHARE * min(peaks.values())
    # a run of each setting, and of both in each turn
    runs = len(scale.windows) * len(scale.batches) + 2 * (scale.turns + 1)
    fits = int((case.until - time.monotonic()) * rate / runs)
    load = Load(work[: max(min(FEWEST, len(work)), min(len(work), fits))], scale.beam, rate)
    found |= {"peaks": peaks, "rate": rate, "requests": len(load.work)}
    case.desk.tell(found)
    found |= _tuned(batcher, load, scale)
    case.desk.tell(found)
    batcher.tune(found["window"], found["batch"])
    name = found["contender"]
    servers: dict[str, Server] = {f"{FLIGHT}, {name}": flow, f"{WINDOW}, {name}": batcher}
    _compared(servers, load, Rules(scale.turns, case.until, case.desk), found)


def _peaks(flow: Flow, batcher: WindowBatcher, work: list[Sentence], beam: int) -> dict[str, float]:
    """After a run of the first sentences, to warm up."""
    found: dict[str, float] = {}
    servers: dict[str, Server] = {FLIGHT: flow, WINDOW: batcher}
    for name, server in servers.items():
        peak(server, work[: 2 * batcher.batch], beam)
        found[name] = peak(server, work, beam)
    return found


def _tuned(batcher: WindowBatcher, load: Load, scale: Scale) -> dict[str, Any]:
    """The window and batch with the lowest p99, and all that were tried."""
    tried = []
    for window, batch in itertools.product(scale.windows, scale.batches):
        batcher.tune(window, batch)
        tried.append({"window": window, "batch": batch, "p99": p99(latencies(batcher, load, TUNING))})
    chosen = min(tried, key=lambda one: one["p99"])
    return {"window": chosen["window"], "batch": chosen["batch"], "tuning": tried}


def _compared(servers: dict[str, Server], load: Load, rules: Rules, found: dict[str, Any]) -> None:
    """In turn; in each turn both meet the same moments. Ratio: the batcher's p99 to the engine's. servers: by
    kind of batching and contender."""
    medians: dict[str, list[float]] = {name: [] for name in servers}
    turn = dict.fromkeys(servers, 0)

    def runner(name: str, server: Server) -> Callable[[], float]:
        def run() -> float:
            values = latencies(server, load, TRAFFIC + turn[name])
            turn[name] += 1
            medians[name].append(float(np.median(values)))
            return p99(values)

        return run

    turns = alternate({name: runner(name, server) for name, server in servers.items()}, rules)
    found["not_run"] |= turns.not_run
    found["p99"] = {name.partition(", ")[0]: summary(values) for name, values in turns.values.items()}
    later = {name.partition(", ")[0]: values[1:] for name, values in medians.items()}
    found["p50"] = {name: summary(values) for name, values in later.items() if values}
    if len(turns.values) == len(servers):
        flight, window = (found["p99"][kind]["runs"] for kind in (FLIGHT, WINDOW))
        found["ratio"] = summary([b / a for a, b in zip(flight, window, strict=False)])


def _stamped(request: Request, ended: list[float], i: int) -> Callable[[Any], None]:
    answer = request.reply

    def reply(outcome: Any) -> None:
        ended[i] = time.monotonic()
        answer(outcome)

    return reply
